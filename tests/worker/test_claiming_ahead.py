"""Claiming ahead: very short tasks in batches, long tasks only when they can start, and no task is starved."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import Event, Released, State
from dibs.model.claim import ClaimRequest
from dibs.procedures import claim_now
from tests.helpers import ahead
from tests.helpers.clients import Clock, follow
from tests.helpers.consistency import assert_balanced
from tests.helpers.handlers import doze, heard, nap, persist, say
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcesses


def test_very_short_tasks_are_claimed_in_batches_after_the_first(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    for handler in (nap, doze):
        app.enqueue_many([handler.new() for _ in range(300)])
    worker = workers.start(concurrency=2)
    until(lambda: app.stats().depth == {"completed": 600}, 30)
    entries = assert_balanced(app)
    batches = claims_by_moment(entries)
    print("claims at once:", batches)
    assert batches[0] <= 2
    assert max(batches) > 20
    assert len(batches) < 100
    worker.terminate()
    assert worker.exit_code() == 0


def test_long_tasks_are_claimed_only_when_they_can_start(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    takes = 0.15
    app.enqueue_many([handler.new(seconds=takes) for handler in (nap, doze) for _ in range(16)])
    workers.start(concurrency=2)
    until(lambda: app.stats().depth == {"completed": 32}, 30)
    claims = [entry for entry in assert_balanced(app) if entry.event is Event.CLAIMED]
    for lane in (range(1, 17), range(17, 33)):
        moments = [entry.at.timestamp() for entry in claims if entry.task_id in lane]
        # With two places, the next but one can begin only after one of two has taken its time.
        assert min(third - first for first, third in zip(moments, moments[2:], strict=False)) >= takes


def test_a_long_task_is_not_starved_by_a_stream_of_short_ones(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    workers.start(concurrency=2).wait_until_ready(app)
    app.enqueue_many([nap.options(priority=5).new(seconds=0.004) for _ in range(3000)])
    until(lambda: app.stats().depth.get("completed", 0) > 50, 30)
    long = persist.enqueue(folder=str(tmp_path))
    until(lambda: heard(tmp_path, "persist.1.began"))
    assert app.stats().depth.get("pending", 0) > 0  # although those before it were not done
    say(tmp_path, "persist.go")
    assert app.wait(long.id, 30).state is State.COMPLETED


def test_tasks_claimed_ahead_that_cannot_start_soon_are_released(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    workers.start(concurrency=1, worker_id="stuck").wait_until_ready(app)
    held, behind = ahead.hold(app, tmp_path)
    workers.start(concurrency=1, worker_id="free")
    done = [app.wait(task.id, 30) for task in behind]
    assert {(task.worker_id, task.attempts) for task in done} == {("free", 1)}
    assert app.get(held.id).state is State.CLAIMED  # type: ignore[union-attr]
    ahead.let_go(held, tmp_path)
    assert app.wait(held.id, 30).worker_id == "stuck"
    assert_balanced(app)


def claims_by_moment(entries: list[Any]) -> list[int]:
    """How many tasks were claimed at each moment that claims were made: one claim of many has one moment."""
    return list(Counter(entry.at for entry in entries if entry.event is Event.CLAIMED).values())


@pytest.mark.parametrize(("passed", "begins"), [(9.9, True), (10.0, False)])
def test_a_worker_does_not_start_a_task_that_expired_in_its_memory(url: str, passed: float, begins: bool) -> None:
    """The clock of the database decides, not that of the worker."""
    clock = Clock()
    with dibs.Dibs(url, clock=clock) as app:
        app.task(name="nap")(lambda: None)
        task = app.enqueue("nap", expires_in=10)
        request = ClaimRequest(worker_id="worker-1", ahead=True)
        claims = follow(app, claim_now(app._store, request))
        with app.worker(worker_id="worker-1") as worker:
            [attempt] = worker._receive(claims, None, True)  # type: ignore[arg-type]
            clock.advance(passed)
            assert worker._may_begin(attempt) is begins
            assert attempt.decided is not begins
            worker._attempts.decide(attempt, Released())  # as `_may_begin` did, unless the task may begin
            done = app.wait(task.id, 30)
        assert (done.expired, done.attempts) == (not begins, int(begins))
