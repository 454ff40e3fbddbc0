"""Clients for the contract tests: a clock that tests advance, and AsyncDibs called like Dibs."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from typing import Any, TypeVar

import dibs
from dibs.store.operation import Operation, drive

T = TypeVar("T")


class Clock:
    """The database's clock, turned by hand. It starts at the real time and stands still."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * 1_000_000)


class Loop:
    """An event loop in a thread, for tests that are written as plain functions."""

    def __init__(self) -> None:
        self.asyncio_loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.asyncio_loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of the coroutine; callable from any number of threads."""
        return asyncio.run_coroutine_threadsafe(work, self.asyncio_loop).result()

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        self.asyncio_loop.call_soon_threadsafe(self.asyncio_loop.stop)
        self._thread.join()
        self.asyncio_loop.close()


class AsyncAsSync:
    """AsyncDibs whose verbs are called like those of Dibs."""

    def __init__(self, app: dibs.AsyncDibs, loop: Loop) -> None:
        self.app = app
        self.loop = loop

    def on(self, connection: Any) -> AsyncAsSync:
        """See Dibs.on."""
        return AsyncAsSync(self.app.on(connection), self.loop)

    def signed(self, by: str) -> AsyncAsSync:
        """See Dibs.signed."""
        return AsyncAsSync(self.app.signed(by), self.loop)

    def events(self, *args: Any, **options: Any) -> Iterator[Any]:
        """See Dibs.events."""
        events = self.app.events(*args, **options)
        try:
            while (event := self.loop.run(anext(events, None))) is not None:
                yield event
        finally:
            self.loop.run(events.aclose())

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.app, name)
        if inspect.isasyncgenfunction(verb):
            return lambda *args, **options: self._iterate(verb(*args, **options))
        if not asyncio.iscoroutinefunction(verb):
            return verb
        return lambda *args, **options: self.loop.run(verb(*args, **options))

    def _iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()
        while (item := self.loop.run(_next(items, end))) is not end:
            yield item


async def _next(items: AsyncIterator[Any], end: object) -> Any:
    return await anext(items, end)


def run(app: Any, operation: Operation[T], by: str | None = None) -> T:
    """The result of an operation, run as the client under test runs its own: for operations without a public method."""
    if isinstance(app, AsyncAsSync):
        result: T = app.loop.run(app.app._store.run_async(operation, by=by))
        return result
    done: T = app._store.run(operation, by=by)
    return done


def follow(app: Any, procedure: Generator[Operation[Any], Any, T]) -> T:
    """The result of a procedure that does not wait, run the way the client under test runs its own operations."""
    return drive(procedure, lambda operation: run(app, operation))


def sweep_every(app: Any, seconds: float) -> None:
    """How often the claims of this client sweep in passing, which is otherwise a matter of real time."""
    store = app._store._store  # the one that is counted
    store._operations.claims.sweeper.every = seconds
