"""A suspect starts after the outcomes of other tasks are written: if it kills the worker, no other task loses one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import dibs
from dibs.handlers.context import Context
from dibs.model.claim import Completed
from dibs.worker import finisher
from dibs.worker.attempt import Attempt, HeldAttempts, now
from dibs.worker.finisher import Finisher
from dibs.worker.progress import ProgressReports
from dibs.worker.store_access import StoreAccess, StoreTaskData


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application without handlers."""
    with dibs.Dibs(url) as app:
        yield app


class PausedQueue(queue.SimpleQueue[Any]):
    """A queue that holds back what its reader has taken until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.taken, self.go = threading.Event(), threading.Event()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        item = super().get(block, timeout)
        self.taken.set()
        assert self.go.wait(30)
        return item


class QueueOfWaiters(PausedQueue):
    """A queue that also continues when a thread waits for what is in it."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        if isinstance(item, threading.Event):
            self.go.set()


def test_an_outcome_that_the_finisher_has_just_taken_is_waited_for(app: dibs.Dibs) -> None:
    handler: Any = app.task(name="nothing")(lambda: None)
    task = handler.enqueue()
    claim = app.claim("w-1")
    assert claim is not None
    access = StoreAccess(app._store, None)
    writer = Finisher(access, HeldAttempts(lambda *_: None).forget, ProgressReports(access))
    writer._queue = paused = PausedQueue()
    writer.start()
    try:
        writer.put(
            Attempt(Context(claim, print, StoreTaskData(app._store, access.run)), handler, now(), False),
            Completed(None),
        )
        assert paused.taken.wait(30)
        assert not writer.wait_until_written(0.05)
        paused.go.set()
        assert writer.wait_until_written(30)
        assert app.get(task.id).state is dibs.State.COMPLETED  # type: ignore[union-attr]
    finally:
        paused.go.set()
        writer.end(30)


@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_a_task_whose_last_claim_was_lost_starts_after_the_outcomes_of_others_are_written(
    app: dibs.Dibs, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = QueueOfWaiters()
    states: list[dibs.State] = []

    def look(other: int) -> None:
        states.append(app.get(other).state)  # type: ignore[union-attr]
        outcomes.go.set()

    async def look_async(other: int) -> None:
        look(other)

    async def pass_async() -> None:
        pass

    app.task(name="look")(look if lane == "thread" else look_async)
    app.task(name="pass")((lambda: None) if lane == "thread" else pass_async)
    lost = app.enqueue("look", {"other": 2})
    assert app.claim("w-1", lease=0.01) is not None
    app.enqueue("pass", priority=1)
    monkeypatch.setattr(finisher, "queue", SimpleNamespace(SimpleQueue=lambda: outcomes, Empty=queue.Empty))
    with app.worker(concurrency=1, upkeep_every=0.1):
        app.wait(lost.id, 30)
    assert states == [dibs.State.COMPLETED]
