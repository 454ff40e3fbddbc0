"""Coalesced claims of several workers: each worker gets its own tasks, as by a single claim."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dibs
from dibs import procedures
from dibs.model.claim import Claim, ClaimRequest
from tests.helpers.clients import follow


@pytest.fixture
def queue(url: str) -> Iterator[dibs.Dibs]:
    with dibs.Dibs(url) as app:
        yield app


def ask(worker_id: str, **options: Any) -> ClaimRequest:
    return ClaimRequest(worker_id=worker_id, **options)


def claim_each(queue: dibs.Dibs, requests: list[ClaimRequest]) -> list[list[Claim]]:
    return follow(queue, procedures.claim_each(queue._store, requests))  # type: ignore[arg-type]


def test_each_worker_gets_its_own_tasks_in_the_order_of_the_list(queue: dibs.Dibs) -> None:
    ids = [queue.enqueue("resize").id for _ in range(5)]
    dealt = claim_each(queue, [ask("first"), ask("second", count=3), ask("third")])
    assert [[claim.task_id for claim in claims] for claims in dealt] == [ids[:1], ids[1:4], ids[4:]]
    assert [{claim.worker_id for claim in claims} for claims in dealt] == [{"first"}, {"second"}, {"third"}]
    assert all(queue.get(claim.task_id).worker_id == claim.worker_id for claims in dealt for claim in claims)


def test_every_claim_is_in_the_history_with_its_worker(queue: dibs.Dibs) -> None:
    ids = [queue.enqueue("resize").id for _ in range(2)]
    claim_each(queue, [ask("first"), ask("second")])
    events = [queue.history(task_id)[-1] for task_id in ids]
    assert [(event.event, event.worker_id, event.token) for event in events] == [
        ("claimed", "first", 1),
        ("claimed", "second", 1),
    ]


def test_the_last_workers_get_no_task_when_there_are_too_few(queue: dibs.Dibs) -> None:
    queue.enqueue("resize")
    assert [len(claims) for claims in claim_each(queue, [ask("first"), ask("second")])] == [1, 0]


def test_the_incarnation_of_each_worker_is_kept(queue: dibs.Dibs) -> None:
    for name in ("first", "second"):
        queue.heartbeat(name, incarnation=f"life of {name}")
        queue.enqueue("resize")
    claim_each(queue, [ask(name, incarnation=f"life of {name}") for name in ("first", "second")])
    assert {worker.incarnation: len(worker.holds) for worker in queue.workers()} == {
        "life of first": 1,
        "life of second": 1,
    }


def test_a_worker_with_two_requests_gets_tasks_for_both(queue: dibs.Dibs) -> None:
    for _ in range(3):
        queue.enqueue("resize")
    dealt = claim_each(queue, [ask("one"), ask("other"), ask("one")])
    assert [len(claims) for claims in dealt] == [1, 1, 1]
    assert len({claim.task_id for claims in dealt for claim in claims}) == 3


@pytest.mark.parametrize("order", list(dibs.Order))
def test_every_order_assigns_each_task_once(queue: dibs.Dibs, order: str) -> None:
    for priority in range(20):
        queue.enqueue("resize", priority=priority % 4)
    requests = [ask(f"worker-{n}", order=order) for n in range(12)]
    first = claim_each(queue, requests)
    second = claim_each(queue, requests)
    ids = [claim.task_id for claims in first + second for claim in claims]
    assert len(ids) == len(set(ids)) == 20
    assert [len(claims) for claims in first] == [1] * 12


def test_concurrent_coalesced_claims_take_every_task_once(queue: dibs.Dibs) -> None:
    queue.enqueue_many(dibs.NewTask("resize") for _ in range(300))

    def take(group: int) -> list[tuple[int, int, str, str]]:
        found = []
        while True:
            requests = [ask(f"worker-{group}-{n}") for n in range(7)]
            dealt = claim_each(queue, requests)
            claims = [(each, claim) for each, claims in zip(requests, dealt, strict=True) for claim in claims]
            if not claims:
                return found
            found += [(claim.task_id, claim.token, claim.worker_id, each.worker_id) for each, claim in claims]

    with ThreadPoolExecutor(4) as crews:
        taken = [each for found in crews.map(take, range(4)) for each in found]
    assert sorted(task_id for task_id, *_ in taken) == sorted({task_id for task_id, *_ in taken})
    assert len(taken) == 300
    assert all(token == 1 and worker == asked for _, token, worker, asked in taken)


def test_only_claims_with_equal_options_can_be_coalesced(queue: dibs.Dibs) -> None:
    with pytest.raises(dibs.InvalidValue, match="same kind"):
        claim_each(queue, [ask("first"), ask("second", order="fifo")])
    with pytest.raises(dibs.InvalidValue, match="same kind"):
        claim_each(queue, [ask("first", request="again"), ask("second", request="again")])
