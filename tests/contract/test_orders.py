"""Orders of claims: a claim takes the tasks that a plain model of order and filters takes, in any batch size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dibs import Claim, NewTask, Order, Released, Task

SORTED: dict[str, Callable[[Task], tuple[int, ...]]] = {
    "priority": lambda task: (-task.priority, task.id),
    "priority_lifo": lambda task: (-task.priority, -task.id),
    "priority_asc": lambda task: (task.priority, task.id),
    "fifo": lambda task: (task.id,),
    "lifo": lambda task: (-task.id,),
}
DRAWN = ("random", "weighted")

FILTERS: list[dict[str, Any]] = [
    {},
    {"queues": ["mail", "media"]},
    {"types": ["resize", "send"]},
    {"queues": ["default", "media"], "types": ["send"]},
    {"max_attempts_remaining": 2},
    {"queues": ["mail", "default"], "types": ["resize", "scrape"], "max_attempts_remaining": 2},
]


# What a claim takes


def test_the_tests_here_cover_every_order() -> None:
    assert {*SORTED, *DRAWN} == set(Order)


@pytest.mark.parametrize("order", SORTED)
def test_a_sorted_order_claims_what_the_model_says_under_every_filter(app: Any, order: str) -> None:
    tasks = enqueue_a_mixture(app)
    for filters in FILTERS:
        expected = [task.id for task in sorted(filter(passes(**filters), tasks), key=SORTED[order])]
        assert len(expected) > 4, filters
        assert [task.id for task in app.peek(4, order=order, **filters)] == expected[:4], filters
        for batch in (4, 1):
            assert drain(app, batch, order=order, **filters) == in_batches(expected, batch), (filters, batch)


@pytest.mark.parametrize("order", DRAWN)
def test_a_random_or_weighted_order_claims_each_task_once_under_every_filter(app: Any, order: str) -> None:
    tasks = enqueue_a_mixture(app)
    for filters in FILTERS:
        expected = sorted(task.id for task in filter(passes(**filters), tasks))
        seen = [task.id for task in app.peek(4, order=order, **filters)]
        assert len(set(seen)) == 4, filters
        assert set(seen) <= set(expected), filters
        for batch in (4, 1):
            drained = drain(app, batch, order=order, **filters)
            sizes = [len(ids) for ids in in_batches(expected, batch)]
            assert [len(ids) for ids in drained] == sizes, (filters, batch)
            assert sorted(task_id for ids in drained for task_id in ids) == expected, (filters, batch)


@pytest.mark.parametrize("order", Order)
def test_a_name_given_twice_in_a_filter_claims_no_task_twice(app: Any, order: str) -> None:
    tasks = app.enqueue_many([NewTask("send", queue="mail") for _ in range(5)])
    filters = {"queues": ["mail", "none", "mail"], "types": ["send", "send"]}
    assert len(app.peek(10, order=order, **filters)) == 5
    claims = app.claim_many("worker-1", 10, order=order, **filters)
    assert sorted(claim.task_id for claim in claims) == [task.id for task in tasks]


@pytest.mark.parametrize("order", Order)
def test_every_order_accepts_the_extremes_of_priority(app: Any, order: str) -> None:
    highest, lowest = 2**31 - 1, -(2**31 - 1)
    app.enqueue_many([NewTask("send", priority=priority) for priority in (0, highest, lowest)])
    claimed = [claim.task.priority for claim in app.claim_many("worker-1", 3, order=order)]
    assert sorted(claimed) == [lowest, 0, highest]
    if order in ("priority", "priority_lifo", "weighted"):
        # Drawn by weight, the highest comes second in one run of two thousand million.
        assert claimed[0] == highest


def enqueue_a_mixture(app: Any) -> list[Task]:
    """Pending tasks in three queues, of four types, with many priorities, one to four attempts left, some spent."""
    app.enqueue_many(
        NewTask(
            ("resize", "send", "scrape", "resize", "index")[n % 5],
            queue=("default", "mail", "media")[n % 3],
            priority=(n * 7) % 11 - 4,
            max_attempts=1 + (n // 2) % 4,
        )
        for n in range(48)
    )
    for task in app.list_tasks():
        if task.id % 4 == 0 and task.max_attempts > 1:
            app.fail(app.claim_by_id(task.id, "worker-1"), "to be tried again", retry_in=0)
    tasks: list[Task] = app.list_tasks(state="pending")
    assert len(tasks) == 48
    assert {task.attempts for task in tasks} == {0, 1}
    return tasks


def passes(
    queues: list[str] | None = None, types: list[str] | None = None, max_attempts_remaining: int = 1
) -> Callable[[Task], bool]:
    """The filters, as a reader of the documentation would write them."""
    return lambda task: (
        (queues is None or task.queue in queues)
        and (types is None or task.type in types)
        and task.max_attempts - task.attempts >= max_attempts_remaining
    )


def drain(app: Any, batch: int, **options: Any) -> list[list[int]]:
    """The ids of every batch until nothing is left; afterwards all are pending again."""
    batches: list[list[Claim]] = []
    while claims := app.claim_many("worker-1", batch, **options):
        batches.append(claims)
    app.finish([(claim, Released()) for claims in batches for claim in claims])
    return [[claim.task_id for claim in claims] for claims in batches]


def in_batches(ids: list[int], size: int) -> list[list[int]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]
