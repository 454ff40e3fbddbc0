"""Running handlers get a cancel request when their task is cancelled, and end at their timeout, in every lane."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import Backoff, State
from tests.helpers.consistency import assert_balanced
from tests.helpers.handlers import heard, linger, nap, persist, remain, say, stay, toil
from tests.helpers.tasks import events
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcesses

SOON = 2.0
"""Seconds, on a machine that has other things to do as well; a second is what the worker promises."""


def test_a_handler_sees_a_cancel_request_soon_in_every_lane(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    workers.start(lease=60)
    for handler in (stay, linger, remain):
        task = begin(handler, tmp_path)
        asked = time.time()
        assert app.cancel(task.id).state is State.CLAIMED
        ended = app.wait(task.id, 30)
        seen = float(until(lambda name=handler.name: heard(tmp_path, f"{name}.stopped"))) - asked  # type: ignore[misc]
        print(f"{handler.lane}: seen after {seen:.3f} s, cancelled after {ended.finished_at.timestamp() - asked:.3f} s")
        assert seen < SOON
        assert ended.finished_at.timestamp() - asked < SOON
        assert (ended.state, ended.error) == (State.CANCELLED, None)
        assert events(app, task.id) == ["enqueued", "claimed", "cancel_requested", "cancelled"]
    assert_balanced(app, [State.CANCELLED])


def test_a_handler_that_completes_despite_a_cancel_request_completes_its_task(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    workers.start()
    task = begin(persist, tmp_path)
    app.cancel(task.id)
    say(tmp_path, "persist.go")
    assert app.wait(task.id, 30).state is State.COMPLETED
    assert_balanced(app)


def test_a_task_cancelled_while_its_child_process_starts_gets_the_cancel_request(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    workers.start(program="tests.helpers.work_slowly")
    task = remain.enqueue(folder=str(tmp_path))
    until(lambda: app.get(task.id).state is State.CLAIMED, 30)  # type: ignore[union-attr]
    app.cancel(task.id)
    assert app.wait(task.id, 30).state is State.CANCELLED
    assert heard(tmp_path, "remain.stopped"), "the handler was killed before it heard of the cancellation"


def test_a_coroutine_is_cancelled_at_its_timeout_and_tried_again(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    workers.start()
    task = begin(linger, tmp_path, timeout=0.5, max_attempts=2)
    until(lambda: heard(tmp_path, "linger.stopped"))
    until(lambda: heard(tmp_path, "linger.2.began"))
    timed_out_for_good(app, task.id)


def test_a_child_process_is_killed_at_its_timeout_and_the_task_tried_again_in_another(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    workers.start(children=1)
    assert app.wait(toil.enqueue().id, 30).state is State.COMPLETED  # so that the first child has started
    task = begin(remain, tmp_path, timeout=1, max_attempts=2)
    first = int(heard(tmp_path, "remain.1.began") or 0)
    second = int(until(lambda: heard(tmp_path, "remain.2.began")))
    assert first != second
    timed_out_for_good(app, task.id)
    assert heard(tmp_path, "remain.stopped") is None


def test_a_thread_continues_after_its_timeout_while_the_task_is_tried_again(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    workers.start(concurrency=1)
    task = begin(persist, tmp_path, timeout=0.5, max_attempts=2)
    until(lambda: heard(tmp_path, "persist.2.began"))  # at concurrency 1: another thread took its place
    timed_out_for_good(app, task.id)
    assert heard(tmp_path, "persist.ended") is None
    say(tmp_path, "persist.go")
    until(lambda: heard(tmp_path, "persist.ended"))
    assert app.wait(nap.enqueue().id, 30).state is State.COMPLETED
    assert app.get(task.id).state is State.FAILED  # type: ignore[union-attr]


@pytest.mark.parametrize("handler", [nap, toil])
def test_a_task_that_ends_before_its_timeout_is_not_cancelled(
    app: dibs.Dibs, workers: WorkerProcesses, handler: Any
) -> None:
    workers.start()
    task = handler.options(timeout=60).enqueue(seconds=0.1)
    assert app.wait(task.id, 30).state is State.COMPLETED


def begin(handler: Any, folder: Path, **options: Any) -> Any:
    """A task of the handler that has begun."""
    task = handler.options(backoff=Backoff(0.01, 0.01), **options).enqueue(folder=str(folder))
    until(lambda: heard(folder, f"{handler.name}.1.began"), 30)
    return task


def timed_out_for_good(app: dibs.Dibs, task_id: int) -> None:
    dead = app.wait(task_id, 30)
    assert (dead.state, dead.attempts) == (State.FAILED, 2)
    assert dead.error is not None
    assert dead.error.type == "TimedOut"
    assert "timeout of" in dead.error.message
