"""The overlap of a schedule's tasks: with "skip" and "queue", no tick starts a task beside one that has not ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from tests.contract.test_schedules import HOUR, MINUTE, NOON, at, due, tick_one, ticks_of, turn_to
from tests.helpers.clients import Clock, run
from tests.helpers.waiting import until


@pytest.fixture
def clock() -> Clock:
    """A clock that shows noon of a summer's day."""
    clock = Clock()
    turn_to(clock, NOON)
    return clock


def tick_after(app: Any, clock: Clock, seconds: float) -> int:
    clock.advance(seconds)
    ticked: int = app.tick()
    return ticked


def test_allow_enqueues_beside_a_task_that_has_not_ended(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "* * * * *", "report")
    assert [tick_after(app, clock, MINUTE) for _ in range(3)] == [1, 1, 1]
    assert app.get_schedule("some").unfinished_task_id is None  # it is of no interest where tasks may overlap


# Skip


def test_skip_enqueues_nothing_while_a_task_has_not_ended_and_counts_the_skipped_ticks(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "* * * * *", "report", overlap="skip")
    assert [tick_after(app, clock, MINUTE) for _ in range(3)] == [1, 0, 0]
    claim = app.claim("worker-1")
    assert tick_after(app, clock, MINUTE) == 0
    schedule = app.get_schedule("some")
    assert (schedule.skipped, schedule.last_skipped_at, schedule.last_at) == (3, at("12:04"), at("12:01"))
    assert (schedule.unfinished_task_id, schedule.next_at) == (claim.task.id, at("12:05"))
    app.complete(claim)
    assert tick_after(app, clock, MINUTE) == 1
    assert ticks_of(app) == ["06-15 12:01", "06-15 12:05"]


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_task_that_waits_for_its_next_attempt_has_not_ended(app: Any, clock: Clock, overlap: str) -> None:
    app.set_schedule("some", "* * * * *", "report", overlap=overlap)
    tick_after(app, clock, MINUTE)
    app.fail(app.claim("worker-1"), "broken", retry_in=3600)
    assert tick_after(app, clock, MINUTE) == 0


@pytest.mark.parametrize("overlap", ["skip", "queue"])
@pytest.mark.parametrize("end", ["complete", "dead", "cancel", "prune"])
def test_a_completed_failed_cancelled_or_pruned_task_has_ended(app: Any, clock: Clock, overlap: str, end: str) -> None:
    app.set_schedule("some", "*/5 * * * *", "report", overlap=overlap)
    tick_after(app, clock, 5 * MINUTE)
    if end == "cancel":
        app.cancel(app.list_tasks()[0].id)
    elif end == "dead":
        app.fail(app.claim("worker-1"), "broken", permanent=True)
    else:
        app.complete(app.claim("worker-1"))
    if end == "prune":
        app.set_retention("completed", 0)
        clock.advance(1)
        app.prune()
        assert app.list_tasks() == []
    assert tick_after(app, clock, 5 * MINUTE) == 1


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_dead_task_that_is_retried_has_not_ended_any_more(app: Any, clock: Clock, overlap: str) -> None:
    app.set_schedule("some", "* * * * *", "report", overlap=overlap)
    tick_after(app, clock, MINUTE)
    app.fail(app.claim("worker-1"), "broken", permanent=True)
    app.retry(app.list_tasks()[0].id)
    assert tick_after(app, clock, MINUTE) == 0


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_task_enqueued_by_hand_counts_and_is_enqueued_beside_any_task(app: Any, clock: Clock, overlap: str) -> None:
    app.set_schedule("some", "* * * * *", "report", overlap=overlap)
    by_hand = app.run_schedule("some")
    assert tick_after(app, clock, MINUTE) == 0
    app.run_schedule("some")
    app.complete(app.claim("worker-1"))
    app.complete(app.claim("worker-1"))
    assert app.get_schedule("some").unfinished_task_id is None
    assert by_hand.key.startswith("schedule:some:run-")


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_the_tasks_of_a_schedule_with_a_similar_name_do_not_count(app: Any, clock: Clock, overlap: str) -> None:
    for name in ("some", "some:more", "some:run-0000000000000000", "som", "some2"):
        app.set_schedule(name, "* * * * *", "report")
    tick_after(app, clock, MINUTE)
    for task in app.list_tasks():
        if task.key.startswith("schedule:some:2"):
            app.cancel(task.id)
    app.set_schedule("some", "* * * * *", "report", overlap=overlap)
    assert app.get_schedule("some").unfinished_task_id is None
    assert tick_after(app, clock, MINUTE) == 5


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_key_of_the_same_form_in_another_queue_does_not_count(app: Any, clock: Clock, overlap: str) -> None:
    app.set_schedule("some", "* * * * *", "report", overlap=overlap, queue="ours")
    app.enqueue("report", key="schedule:some:2020-01-01T00:00:00Z", queue="theirs")
    assert tick_after(app, clock, MINUTE) == 1


def test_a_skipped_tick_does_not_clear_the_error_of_a_refused_one(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "* * * * *", "report", overlap="skip")
    app.run_schedule("some")
    app.register_type("report", {"type": "object", "required": ["text"]})
    claim = app.claim("worker-1")
    app.complete(claim)
    assert tick_after(app, clock, MINUTE) == 0
    assert "text" in app.get_schedule("some").last_error
    app.register_type("report", True)
    app.run_schedule("some")
    assert tick_after(app, clock, MINUTE) == 0
    assert app.get_schedule("some").skipped == 1
    assert "text" in app.get_schedule("some").last_error


def test_skip_enqueues_the_first_of_several_due_ticks(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report", overlap="skip", catch_up="all")
    assert tick_after(app, clock, 4 * HOUR) == 1
    schedule = app.get_schedule("some")
    assert (ticks_of(app), schedule.skipped, schedule.next_at) == (["06-15 13:00"], 3, at("17:00"))


# Queue


def test_queue_enqueues_each_tick_after_the_task_before_it_has_ended_in_order(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "* * * * *", "report", overlap="queue")
    assert [tick_after(app, clock, MINUTE) for _ in range(5)] == [1, 0, 0, 0, 0]
    waiting = app.get_schedule("some")
    assert (waiting.next_at, waiting.skipped) == (at("12:02"), 0)
    for _ in range(5):  # the worker catches up: four ticks have waited for longer than a minute
        assert app.tick() == len(due(app)) == 0
        app.complete(app.claim("worker-1"))
        tick_after(app, clock, 1)
    assert ticks_of(app) == [f"06-15 12:0{minute}" for minute in range(1, 6)]
    assert app.get_schedule("some").next_at == at("12:06")


def test_queue_follows_catch_up_for_ticks_that_were_missed_after_the_end_of_a_task(app: Any, clock: Clock) -> None:
    for catch_up in ("one", "all", "none"):
        app.set_schedule(catch_up, "@hourly", catch_up, overlap="queue", catch_up=catch_up)
    clock.advance(HOUR)
    assert app.tick() == 3
    clock.advance(30 * MINUTE)
    for _ in range(3):
        app.complete(app.claim("worker-1"))
    clock.advance(5 * HOUR)  # 14:00 to 18:00, now 18:30
    for _ in range(9):
        app.tick()
        if claim := app.claim("worker-1"):
            app.complete(claim)
    assert ticks_of(app, "one") == ["06-15 13:00", "06-15 18:00"]
    assert ticks_of(app, "all") == [f"06-15 {hour}:00" for hour in range(13, 19)]
    assert ticks_of(app, "none") == ["06-15 13:00"]


def test_a_tick_that_waits_is_not_urgent_for_waiting_claims(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "* * * * *", "report", overlap="queue")
    tick_after(app, clock, MINUTE)
    clock.advance(MINUTE)
    assert run(app, app._store.upkeep.next_due()) is None


# Races


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_tick_that_was_read_before_another_process_ticked_enqueues_nothing(
    app: Any, clock: Clock, overlap: str
) -> None:
    app.set_schedule("some", "* * * * *", "report", overlap=overlap)
    clock.advance(MINUTE)
    [stale] = due(app)
    assert app.tick() == 1
    assert tick_one(app, stale) == 0
    assert (len(app.list_tasks()), app.get_schedule("some").skipped) == (1, 0)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_threads_that_tick_and_finish_concurrently_never_overlap_tasks(
    url: str, clock: Clock, open_app: Callable[..., Any], overlap: str
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(2)]
    apps[0].set_schedule("some", "* * * * * *", "report", overlap=overlap, catch_up="all")

    def act(number: int) -> None:
        app = apps[number % 2]
        app.tick()
        if claim := app.claim(f"worker-{number}"):
            app.complete(claim)

    for _ in range(25):
        clock.advance(1)
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(act, range(6)))
        assert len(apps[0].list_tasks(state="pending")) <= 1
    served = ticks_of(apps[0])
    schedule = apps[0].get_schedule("some")
    assert len(served) == len({task.run_at for task in apps[0].list_tasks(limit=1000)})
    if overlap == "skip":
        assert len(served) + schedule.skipped == 25


@pytest.mark.database("processes that tick need the database")
@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_processes_that_tick_claim_and_finish_never_overlap_tasks(
    url: str, open_app: Callable[..., Any], overlap: str
) -> None:
    app = open_app(url)  # the real clock
    app.set_schedule("some", every=1, type="report", overlap=overlap)
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.ticking", url, f"worker-{number}"], stdin=subprocess.PIPE
        )
        for number in range(3)
    ]
    try:
        until(lambda: app.stats().depth.get("completed", 0) >= 3, timeout=60)
    finally:
        for worker in workers:
            worker.communicate(timeout=60)  # closes its input, at which it stops
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    changes = [entry for entry in app.all_history() if entry.event in ("enqueued", "completed")]
    assert [entry.event.value for entry in changes[:4]] == ["enqueued", "completed"] * 2
    assert all(one.event != other.event for one, other in pairwise(changes))
