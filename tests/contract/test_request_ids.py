"""Request ids: a claim whose response was lost can be repeated, and returns the tasks that its worker already holds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from dibs import AlreadyClaimed, Claim, InvalidValue, NewTask, State
from dibs.model.claim import ClaimRequest
from tests.helpers import tables
from tests.helpers.clients import Clock, run


def fill(app: Any, count: int, **options: Any) -> list[int]:
    return [task.id for task in app.enqueue_many([NewTask("resize", **options) for _ in range(count)])]


def ids(claims: list[Claim]) -> list[int]:
    return [claim.task_id for claim in claims]


def by_id(app: Any, task_id: int, **options: Any) -> Claim:
    return run(app, app._store.queue.claim_by_id(task_id, ClaimRequest(worker_id="worker-1", **options)))


def test_a_repeated_claim_returns_the_same_tasks_and_changes_nothing(app: Any, url: str) -> None:
    fill(app, 10)
    claims = app.claim_many("worker-1", 3, request="r-1")
    before = tables.read(url)
    assert app.claim_many("worker-1", 3, request="r-1") == claims
    assert app.claim("worker-1", request="r-1") == claims[0]
    assert tables.read(url) == before


def test_a_repeated_claim_returns_the_same_tasks_for_any_count_and_order(app: Any) -> None:
    fill(app, 10)
    claims = app.claim_many("worker-1", 2, request="r-1")
    assert app.claim_many("worker-1", 7, request="r-1", order="lifo", types=["other"]) == claims


def test_a_repeated_claim_returns_only_tasks_of_the_requested_queues(app: Any) -> None:
    fill(app, 1, queue="theirs")
    fill(app, 1, queue="ours")
    claims = app.claim_many("worker-1", 2, request="r-1")
    [ours] = [claim for claim in claims if claim.task.queue == "ours"]
    assert app.claim_many("worker-1", 2, request="r-1", queues=["ours"]) == [ours]
    assert app.claim_many("worker-1", 2, request="r-1", queues=["elsewhere"]) == []
    assert app.claim_many("worker-1", 2, request="r-1", queues=["ours", "theirs"]) == claims


def test_a_repeated_claim_takes_no_more_tasks_to_reach_the_count(app: Any) -> None:
    fill(app, 2)
    claims = app.claim_many("worker-1", 5, request="r-1")
    fill(app, 5)
    assert app.claim_many("worker-1", 5, request="r-1") == claims


def test_a_repetition_of_an_empty_claim_is_a_new_claim(app: Any) -> None:
    assert app.claim_many("worker-1", 2, request="r-1") == []
    fill(app, 2)
    assert len(app.claim_many("worker-1", 2, request="r-1")) == 2


def test_another_request_id_gets_other_tasks(app: Any) -> None:
    all_ids = fill(app, 4)
    one = app.claim_many("worker-1", 2, request="r-1")
    other = app.claim_many("worker-1", 2, request="r-2")
    assert ids(one + other) == all_ids


def test_claims_without_a_request_id_are_never_returned_again(app: Any) -> None:
    all_ids = fill(app, 3)
    assert ids([app.claim("worker-1") for _ in range(3)]) == all_ids


def test_another_worker_with_the_same_request_id_gets_other_tasks(app: Any) -> None:
    all_ids = fill(app, 4)
    one = app.claim_many("worker-1", 2, request="r-1")
    other = app.claim_many("worker-2", 2, request="r-1")
    assert ids(one + other) == all_ids


@pytest.mark.parametrize(("first", "second"), [("one", "two"), (None, "one"), ("one", None)])
def test_another_incarnation_of_the_worker_gets_other_tasks(app: Any, first: str | None, second: str | None) -> None:
    all_ids = fill(app, 2)
    one = app.claim_many("worker-1", 1, request="r-1", incarnation=first)
    other = app.claim_many("worker-1", 1, request="r-1", incarnation=second)
    assert ids(one + other) == all_ids
    assert app.claim_many("worker-1", 1, request="r-1", incarnation=first) == one


# What is still held


def test_a_repeated_claim_leaves_out_tasks_that_were_finished_since(app: Any) -> None:
    fill(app, 4)
    claims = app.claim_many("worker-1", 3, request="r-1")
    app.complete(claims[0])
    app.release(claims[2])
    assert app.claim_many("worker-1", 3, request="r-1") == [claims[1]]


def test_a_repetition_after_all_tasks_were_finished_is_a_new_claim(app: Any) -> None:
    all_ids = fill(app, 2)
    app.complete(app.claim("worker-1", request="r-1"))
    assert app.claim("worker-1", request="r-1").task_id == all_ids[1]


def test_a_repeated_claim_returns_the_renewed_lease(app: Any, clock: Clock) -> None:
    fill(app, 1)
    claim = app.claim("worker-1", request="r-1", lease=10)
    clock.advance(9)
    renewed = app.renew(claim, 60)
    clock.advance(30)
    again = app.claim("worker-1", request="r-1")
    assert (again.token, again.lease_until) == (claim.token, renewed.lease_until)


def test_a_claim_whose_lease_ran_out_is_not_returned_again(app: Any, clock: Clock) -> None:
    fill(app, 1)
    claim = app.claim("worker-1", request="r-1", lease=10)
    clock.advance(10)
    again = app.claim("worker-1", request="r-1", lease=10)
    assert (again.task_id, again.token) == (claim.task_id, claim.token + 1)


def test_a_repeated_claim_does_not_return_a_later_claim_of_the_worker_without_the_request_id(app: Any) -> None:
    fill(app, 1)
    app.release(app.claim("worker-1", request="r-1"))
    later = app.claim("worker-1")
    assert later.token == 2
    assert app.claim_many("worker-1", 1, request="r-1") == []


def test_a_repeated_claim_does_not_return_a_task_that_another_worker_claimed_since(app: Any) -> None:
    fill(app, 1)
    app.release(app.claim("worker-1", request="r-1"))
    app.claim("worker-2", request="r-1")
    assert app.claim_many("worker-1", 1, request="r-1") == []


def test_a_repeated_claim_returns_a_task_with_its_cancel_request(app: Any) -> None:
    fill(app, 1)
    claim = app.claim("worker-1", request="r-1")
    app.cancel(claim.task_id)
    assert app.claim("worker-1", request="r-1").task.cancel_requested


# By id


@pytest.mark.database("over HTTP a claim by id has no request id")
def test_a_claim_by_id_can_be_repeated(app: Any, url: str) -> None:
    [task_id, other_id] = fill(app, 2)
    claim = by_id(app, task_id, request="r-1")
    before = tables.read(url)
    assert by_id(app, task_id, request="r-1") == claim
    assert tables.read(url) == before
    assert by_id(app, other_id, request="r-1").task_id == other_id


@pytest.mark.database("over HTTP a claim by id has no request id")
def test_a_claim_by_id_repeated_without_its_request_id_is_refused(app: Any) -> None:
    [task_id] = fill(app, 1)
    by_id(app, task_id, request="r-1")
    for options in ({}, {"request": "r-2"}, {"request": "r-1", "incarnation": "other"}):
        with pytest.raises(AlreadyClaimed):
            by_id(app, task_id, **options)


@pytest.mark.database("over HTTP a claim by id has no request id")
def test_a_claim_by_id_without_a_request_id_clears_the_request_id_of_the_claim_before(app: Any) -> None:
    [task_id] = fill(app, 1)
    app.release(by_id(app, task_id, request="r-1"))
    by_id(app, task_id)
    assert app.claim_many("worker-1", 1, request="r-1") == []


# The rest


@pytest.mark.parametrize("request_id", ["a", "A-Z_09", "x" * 64])
def test_a_request_id_has_letters_digits_dashes_and_underscores(app: Any, request_id: str) -> None:
    fill(app, 2)
    assert app.claim("worker-1", request=request_id) == app.claim("worker-1", request=request_id)


@pytest.mark.parametrize("request_id", ["", "x" * 65, "a b", "a\n", "ä", "٣", 7, b"r-1", "\x00"])
def test_any_other_request_id_is_refused_and_claims_nothing(app: Any, request_id: Any) -> None:
    [task_id] = fill(app, 1)
    with pytest.raises(InvalidValue, match="request id"):
        app.claim("worker-1", request=request_id)
    assert app.get(task_id).state is State.PENDING


@pytest.mark.parametrize("order", ["priority", "random"])
def test_concurrent_repetitions_never_issue_a_token_twice(
    url: str, clock: Clock, open_app: Callable[..., Any], order: str
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(2)]
    fill(apps[0], 100)
    start = Barrier(8)

    def ask(number: int) -> list[tuple[int, int]]:
        start.wait()
        claims = apps[number % 2].claim_many("worker-1", 5, request="r-1", order=order)
        return [(claim.task_id, claim.token) for claim in claims]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    issued = [(each.task_id, each.token) for each in apps[0].all_history() if each.event == "claimed"]
    assert len(set(issued)) == len(issued)
    assert {pair for answer in answers for pair in answer} == set(issued)
    assert all(len(answer) >= 5 for answer in answers)
