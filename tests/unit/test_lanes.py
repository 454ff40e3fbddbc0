"""A lane claims short tasks ahead; a task that starts slowly is not short."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest

import dibs
from dibs import Claim, Context, State, Task
from dibs.worker.attempt import Attempt, now
from dibs.worker.lanes import SHORT_TASK_SECONDS, LaneCallbacks, LaneRunner, ThreadLane
from dibs.worker.loop_lane import LoopLane

NOW = datetime(2026, 1, 1, tzinfo=UTC)
app = dibs.Dibs("sqlite:///never-opened.db")


@app.task
def blink() -> None: ...


@app.task
async def wink() -> None: ...


@pytest.mark.parametrize("handler", [blink, wink])
@pytest.mark.parametrize(("seconds", "is_short"), [(0.0, True), (SHORT_TASK_SECONDS + 0.01, False)])
def test_the_time_until_a_task_may_start_counts_for_its_duration(handler: Any, seconds: float, is_short: bool) -> None:
    """The start of a suspect is noted in the store, which can take long where many wait for it."""
    ended = threading.Semaphore(0)

    def begin(attempt: Attempt) -> bool:
        time.sleep(seconds)
        return True

    lane = a_lane(handler, LaneCallbacks(begin, lambda *_: ended.release(), lambda: None, None))  # type: ignore[arg-type]
    wanted: list[bool] = []
    while len(wanted) < 3 or (is_short and not wanted[-1] and len(wanted) < 50):  # a busy machine makes one slow
        lane.submit([an_attempt(handler)])
        assert ended.acquire(timeout=30)
        wanted.append(lane.wanted_ahead()[0] == [handler.name])
    lane.close()
    assert any(wanted) is is_short


def a_lane(handler: Any, callbacks: LaneCallbacks) -> LaneRunner:
    if handler is blink:
        return ThreadLane([handler.name], 1, callbacks)
    return LoopLane([handler.name], 1, callbacks, None)


def an_attempt(handler: Any) -> Attempt:
    task = Task(1, handler.name, "default", State.CLAIMED, {}, 0, 0, 3, 1, NOW, NOW, dropped=1)
    claim = Claim(task, 1, "worker", NOW)
    return Attempt(Context(claim, lambda *_: None, None), handler, now(), ahead=True)  # type: ignore[arg-type]
