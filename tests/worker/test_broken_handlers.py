"""No exception, result or argument of a handler ends its thread, its event loop or its lane."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import dibs
from dibs import State
from tests.helpers.waiting import until


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application without handlers."""
    with dibs.Dibs(url) as app:
        yield app


class Speechless(Exception):
    """Raises another exception from its message."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Endless(dibs.Snooze):
    """A Snooze without its duration."""

    def __init__(self) -> None: ...


@dataclass
class Picky:
    """Refuses in its own way."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise KeyError("too small")


def speechless() -> None:
    raise Speechless


def endless() -> None:
    raise Endless


def contains_itself() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("does", "error"),
    [(speechless, "Speechless"), (endless, "AttributeError"), (contains_itself, "InvalidValue")],
)
def test_an_error_or_result_that_cannot_be_formatted_fails_the_attempt_and_frees_the_lane(
    app: dibs.Dibs, does: Callable[[], Any], error: str
) -> None:
    @app.task(max_attempts=1)
    def plain(fine: bool = False) -> Any:
        return None if fine else does()

    @app.task(max_attempts=1)
    async def coroutine(fine: bool = False) -> Any:
        return None if fine else does()

    with app.worker(concurrency=1):
        for handler in (plain, coroutine):
            failed = handler.enqueue().wait(30)
            assert failed.error is not None
            assert (failed.state, failed.error.type) == (State.FAILED, error)
            assert handler.enqueue(fine=True).wait(30).state is State.COMPLETED


def test_a_params_type_that_raises_an_unusual_exception_fails_the_attempt(app: dibs.Dibs) -> None:
    @app.task(max_attempts=1)
    def plain(picky: Picky) -> int:
        return picky.size

    @app.task(max_attempts=1)
    async def coroutine(picky: Picky) -> int:
        return picky.size

    with app.worker(concurrency=1):
        for handler in (plain, coroutine):
            failed = app.enqueue(handler.name, {"picky": {"size": -1}}, max_attempts=1).wait(30)
            assert failed.error is not None
            assert (failed.error.type, failed.error.message) == ("KeyError", "'too small'")
            assert handler.enqueue(Picky(3)).wait(30).result == 3


def test_a_thread_that_runs_past_its_timeout_does_not_occupy_a_lane(app: dibs.Dibs) -> None:
    enough = threading.Event()

    @app.task(timeout=0.2, max_attempts=1)
    def hang() -> None:
        enough.wait(30)

    @app.task
    def stay() -> None:
        enough.wait(30)

    @app.task
    def quick() -> None: ...

    with app.worker(concurrency=2):
        try:
            assert hang.enqueue().wait(30).state is State.FAILED
            stay.enqueue()
            assert quick.enqueue().wait(30).state is State.COMPLETED
        finally:
            enough.set()


def test_a_lane_that_cannot_start_a_thread_releases_its_tasks_and_tries_again(
    app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    start = threading.Thread.start

    def refuse_the_first(thread: threading.Thread) -> None:
        if thread.name.startswith("dibs-lane") and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    @app.task
    def quick() -> None: ...

    monkeypatch.setattr(threading.Thread, "start", refuse_the_first)
    tasks = app.enqueue_many([quick.new() for _ in range(5)])
    with app.worker(concurrency=2):
        assert {app.wait(task.id, 30).state for task in tasks} == {State.COMPLETED}
    assert refused
    assert {app.get(task.id).attempts for task in tasks} == {1}


def test_a_task_that_was_cancelled_before_it_started_does_not_run(app: dibs.Dibs) -> None:
    begun: list[str] = []
    blocking, enough = threading.Event(), threading.Event()

    @app.task
    async def block() -> None:
        blocking.set()
        enough.wait(30)

    @app.task
    async def waits() -> None:
        begun.append("waits")

    with app.worker(lease=1.5):
        block.enqueue()
        assert blocking.wait(30)
        task = waits.enqueue()
        try:
            until(lambda: app.get(task.id).state is State.CLAIMED)
            app.cancel(task.id)
            for _ in range(2):  # the worker learns it from a renewal; the next renewal shows that it has
                renewed(app, task.id)
        finally:
            enough.set()
        assert task.wait(30).state is State.CANCELLED
    assert begun == []


def renewed(app: dibs.Dibs, task_id: int) -> None:
    """Wait until the task's lease is longer than now."""
    before = app.get(task_id).lease_until
    until(lambda: app.get(task_id).lease_until > before)
