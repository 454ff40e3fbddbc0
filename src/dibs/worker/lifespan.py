"""A running lifespan: the context manager of an app, entered in this process until the worker ends.

A plain context manager is entered and left in one thread of its own, an async one in one task on the event loop of the
async handlers: what it opens often belongs to a thread, a task or a loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from dibs.errors import LifespanFailed
from dibs.handlers.lifespan import Lifespan, Manager, is_async_manager

logger = logging.getLogger("dibs.worker")

CHECK_INTERVAL = 0.1
"""Seconds between two checks during the start whether the worker has to stop."""

LIFESPAN_END_TIMEOUT = 10.0
"""Seconds for which a worker or a child process that stops waits for the end of its lifespan."""

Future = concurrent.futures.Future


class RunningLifespan:
    """The lifespan of an app in this process. `loop`: the event loop for an async lifespan; None: a new one in a
    separate thread."""

    def __init__(self, lifespan: Lifespan, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.name = lifespan.name
        self._lifespan = lifespan
        self.loop = loop
        self._own_loop: threading.Thread | None = None
        self._started: Future[Any] = Future()
        self._ended: Future[None] = Future()
        self._ending = threading.Event()
        self._ending_async: asyncio.Event | None = None

    def start(self, stopping: Callable[[], bool] = lambda: False) -> Any:
        """Enter the context manager and return what it yields. Raises LifespanFailed; also when `stopping` returns True
        before: the caller then ends without the lifespan."""
        try:
            manager = self._lifespan.manager()
            if is_async_manager(manager):
                self._start_async(manager)
            else:
                threading.Thread(target=self._run, args=[manager], name="dibs-lifespan", daemon=True).start()
        except Exception as error:
            self._started.set_exception(error)
        while not concurrent.futures.wait([self._started], CHECK_INTERVAL).done:
            if stopping():
                self._signal_end()
                raise LifespanFailed(f"The worker was stopped while its lifespan {self.name} started.")
        if (reason := self._started.exception()) is not None:
            self._close_own_loop()
            raise _failed(self.name, reason) from reason
        return self._started.result()

    def end(self, timeout: float = LIFESPAN_END_TIMEOUT) -> bool:
        """Leave the context manager. False, and an entry in the log, if that fails or takes too long."""
        self._signal_end()
        done = concurrent.futures.wait([self._ended], timeout).done
        error = self._ended.exception() if done else None
        about = {"event": "lifespan.end_failed", "lifespan": self.name}
        if not done:
            logger.error("the lifespan %s has not ended within %g s", self.name, timeout, extra=about)
        elif error is not None:
            logger.error("the end of the lifespan %s failed: %s", self.name, error, exc_info=error, extra=about)
        self._close_own_loop()
        return bool(done) and error is None

    def _start_async(self, manager: Manager) -> None:
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            self._own_loop = threading.Thread(target=self.loop.run_forever, name="dibs-lifespan", daemon=True)
            self._own_loop.start()
        asyncio.run_coroutine_threadsafe(self._run_async(manager), self.loop)

    def _run(self, manager: Any) -> None:
        try:
            with manager as resources:
                self._started.set_result(resources)
                self._ending.wait()
        except BaseException as error:  # SystemExit as well: the thread that waits must learn of it
            self._failed(error)
        else:
            self._ended.set_result(None)

    async def _run_async(self, manager: Any) -> None:
        self._ending_async = asyncio.Event()
        try:
            async with manager as resources:
                self._started.set_result(resources)
                if not self._ending.is_set():
                    await self._ending_async.wait()
        except BaseException as error:
            self._failed(error)
        else:
            self._ended.set_result(None)

    def _failed(self, error: BaseException) -> None:
        failed = self._ended if self._started.done() else self._started
        failed.set_exception(error)

    def _signal_end(self) -> None:
        self._ending.set()
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._signal_end_async)

    def _signal_end_async(self) -> None:
        if self._ending_async is not None:
            self._ending_async.set()

    def _close_own_loop(self) -> None:
        if self._own_loop is None or self.loop is None:
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._own_loop.join(timeout=1)
        if not self._own_loop.is_alive():
            self.loop.close()


def _failed(name: str, error: BaseException) -> LifespanFailed:
    logger.error(
        "the lifespan %s failed to start: %s: %s",
        *(name, type(error).__name__, error),
        exc_info=error,
        extra={"event": "lifespan.failed", "lifespan": name},
    )
    return LifespanFailed(f"The lifespan {name} failed to start: {type(error).__name__}: {error}.")
