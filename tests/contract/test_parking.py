"""Pausing a queue parks its tasks outside of the indexes that claims read, and resuming brings them back in order."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs import NewTask, Order, State
from dibs.store.operations import registry
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql

pytestmark = pytest.mark.database("parking is upkeep that a server does by itself")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause parks two tasks itself, and a resume unparks two."""
    monkeypatch.setattr(registry, "PAUSE_BATCH", 2)
    monkeypatch.setattr(registry, "RESUME_BATCH", 2)


def fill(app: Any, count: int, **options: Any) -> list[int]:
    return [task.id for task in app.enqueue_many([NewTask("resize", **options)] * count)]


def parked(url: str) -> list[int]:
    return [row[0] for row in run_sql(url, "SELECT id FROM dibs_tasks WHERE parked ORDER BY id")]


def queue(app: Any, name: str = "default") -> dibs.QueueInfo:
    return next(each for each in app.queues() if each.name == name)


def drain(app: Any, order: str = "priority") -> list[int]:
    ids = []
    while claim := app.claim("worker-1", order=order):
        ids.append(claim.task_id)
    return ids


def test_a_pause_parks_the_tasks_of_the_queue_and_they_stay_pending(app: Any, url: str) -> None:
    ids, other = fill(app, 3), fill(app, 1, queue="mail")
    app.pause("default")
    assert parked(url) == ids
    assert [app.get(task_id).state for task_id in ids] == [State.PENDING] * 3
    assert (queue(app).parked, queue(app, "mail").parked) == (3, 0)
    assert drain(app) == other


def test_a_pause_parks_the_first_tasks_and_upkeep_parks_the_others(app: Any, url: str, small_batches: None) -> None:
    ids = fill(app, 5)
    app.pause("default")
    assert parked(url) == ids[:2]
    assert drain(app) == []
    app.upkeep()
    assert parked(url) == ids


def test_upkeep_parks_tasks_that_are_enqueued_into_a_paused_queue(app: Any, url: str) -> None:
    app.pause("default")
    ids = fill(app, 2)
    assert parked(url) == []
    assert drain(app) == []
    app.upkeep()
    assert parked(url) == ids


def test_a_resume_unparks_the_first_tasks_by_priority_and_upkeep_the_others(
    app: Any, url: str, small_batches: None
) -> None:
    low, high = fill(app, 3), fill(app, 3, priority=1)
    app.pause("default")
    app.upkeep()
    app.resume("default")
    assert parked(url) == sorted([*low, high[2]])
    assert (queue(app).paused, queue(app).condition, queue(app).parked) == (False, "resuming", 4)
    app.upkeep()
    assert parked(url) == []
    assert (queue(app).condition, queue(app).parked) == ("", 0)


def test_a_claim_that_finds_nothing_unparks_tasks_of_a_resumed_queue(app: Any, small_batches: None) -> None:
    ids = fill(app, 7)
    app.pause("default")
    app.upkeep()
    app.resume("default")
    assert drain(app) == ids


@pytest.mark.parametrize("order", Order)
def test_a_pause_and_a_resume_do_not_change_the_order_of_claims(app: Any, order: str) -> None:
    for priority in (2, 0, 1):
        fill(app, 3, priority=priority)
    for number in range(3):
        fill(app, 1, queue="mail", priority=number)
    app.release(app.claim("worker-1", order=order))
    expected = [task.id for task in app.peek(20, order=order)]
    app.pause("default")
    app.resume("default")
    if order in ("random", "weighted"):
        assert sorted(drain(app, order)) == sorted(expected)
    else:
        assert drain(app, order) == expected


def test_a_parked_task_can_be_cancelled_and_retried(app: Any, url: str) -> None:
    [task_id] = fill(app, 1)
    app.pause("default")
    assert app.cancel(task_id).state == State.CANCELLED
    assert parked(url) == []
    app.resume("default")
    app.retry(task_id)
    assert drain(app) == [task_id]


def test_a_parked_task_is_found_by_every_list_and_search(app: Any) -> None:
    ids = fill(app, 3, tags=["red"])
    app.pause("default")
    newest_first = ids[::-1]
    assert [task.id for task in app.list_tasks(state="pending")] == newest_first
    assert [task.id for task in app.list_tasks(state="pending", queue="default", tags=["red"])] == newest_first
    assert [task.id for task in app.list_tasks(state="pending", type="resize", text="{}")] == newest_first
    assert app.stats().depth == {"pending": 3}


def test_explain_says_that_a_parked_task_of_a_resumed_queue_waits_for_upkeep(app: Any, small_batches: None) -> None:
    *_, last = fill(app, 3)
    app.pause("default")
    app.upkeep()
    app.resume("default")
    [reason, *_] = app.explain(last).reasons
    assert (reason.code, "upkeep" in reason.message) == ("queue_resuming", True)


def test_a_parked_task_of_a_resumed_queue_is_claimed_by_id(app: Any, small_batches: None) -> None:
    *_, last = fill(app, 3)
    app.pause("default")
    app.upkeep()
    app.resume("default")
    assert app.claim_by_id(last, "worker-1").task_id == last


def test_a_queue_that_is_paused_again_while_it_resumes_is_parked_again(app: Any, url: str, small_batches: None) -> None:
    ids = fill(app, 6)
    app.pause("default")
    app.upkeep()
    app.resume("default")
    app.pause("default")
    app.upkeep()
    assert parked(url) == ids
    assert drain(app) == []
    app.resume("default")
    assert drain(app) == ids


def test_many_paused_queues_are_parked_in_one_round_of_upkeep(app: Any, url: str) -> None:
    names = [f"queue-{number}" for number in range(30)]
    for name in names:
        app.pause(name)
    ids = [task.id for task in app.enqueue_many([NewTask("resize", queue=name) for name in names])]
    app.upkeep()
    assert parked(url) == ids


def test_a_random_order_that_no_claim_used_for_a_day_ends_and_begins_again(app: Any, url: str, clock: Clock) -> None:
    fill(app, 2)
    app.release(app.claim("worker-1", order="random"))
    clock.advance(24 * 3600)
    app.upkeep()
    fill(app, 1)
    assert run_sql(url, "SELECT count(*) FROM dibs_tasks WHERE random_key IS NULL") == [(1,)]
    assert len(drain(app, "random")) == 3
    fill(app, 1)
    assert run_sql(url, "SELECT count(*) FROM dibs_tasks WHERE state = 'pending' AND random_key IS NULL") == [(0,)]
