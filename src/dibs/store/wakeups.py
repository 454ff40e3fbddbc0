"""Wake-ups: hints that tasks may have become claimable. Polling finds what a lost wake-up missed.

Writes of this process wake its waiters at once. Writes of other processes are noticed by a watcher thread, which runs
only while there are waiters.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod

LINGER = 5.0
"""Seconds for which the watcher continues after the last waiter has left: most waiters return at once."""


class Wakeups(ABC):
    """Wait for a change, in a thread or in an event loop."""

    def __init__(self) -> None:
        self._guard = threading.RLock()  # not a Condition: Ctrl-C can leave its lock held (decision 39)
        self._generation = 0
        self._waiting: set[threading.Lock] = set()  # each is released after a change
        self._left_at = 0.0
        self._futures: set[asyncio.Future[None]] = set()
        self._watcher: threading.Thread | None = None
        self._closed = False
        self._ended = threading.Lock()  # released by close
        self._ended.acquire()

    @abstractmethod
    def watch(self) -> None:
        """Watch for changes by other processes while `wanted`, and call `wake` for each. Runs in its own thread."""

    @property
    def generation(self) -> int:
        """The number of noticed changes. Read it before reading the store, and pass it to `wait` afterwards."""
        return self._generation

    @property
    def closed(self) -> bool:
        """True after `close`: no change is noticed any more."""
        return self._closed

    @property
    def wanted(self) -> bool:
        """True while there are waiters, or were a moment ago."""
        waiting = bool(self._waiting or self._futures)
        return not self._closed and (waiting or time.monotonic() - self._left_at < LINGER)

    def wake(self) -> None:
        """Wake all waiters after a change."""
        with self._guard:
            self._generation += 1
            self._release_waiters()
            if not self._futures:
                return
            futures, self._futures = self._futures, set()
        for future in futures:
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                future.get_loop().call_soon_threadsafe(_resolve, future)

    def wait(self, seen: int, timeout: float) -> None:
        """Return after a change since generation `seen`, or after `timeout` seconds."""
        changed = threading.Lock()
        changed.acquire()
        try:
            with self._guard:
                if self._generation != seen or self._closed:
                    return
                self._waiting.add(changed)
                self._start_watcher()
            changed.acquire(timeout=min(max(timeout, 0.0), threading.TIMEOUT_MAX))
        finally:
            with self._guard:
                self._waiting.discard(changed)
                self._left_at = time.monotonic()

    async def wait_async(self, seen: int, timeout: float) -> None:
        """`wait`, without blocking the event loop."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._guard:
            if self._generation != seen or self._closed:
                return
            self._futures.add(future)
            self._start_watcher()
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            pass
        finally:
            with self._guard:
                self._futures.discard(future)
                self._left_at = time.monotonic()

    def pause(self, seconds: float) -> None:
        """Sleep for `seconds`, or until `close`."""
        if self._ended.acquire(timeout=seconds):
            self._ended.release()

    def close(self) -> None:
        """Wake all waiters and stop the watcher."""
        self._closed = True
        with contextlib.suppress(RuntimeError):  # closed already
            self._ended.release()
        self.wake()  # takes the guard, under which watchers are started: afterwards no watcher is being started
        watcher = self._watcher
        if watcher is not None and watcher.is_alive() and watcher is not threading.current_thread():
            watcher.join(timeout=5)

    def _release_waiters(self) -> None:
        while self._waiting:
            self._waiting.pop().release()

    def _start_watcher(self) -> None:
        if not self._closed and (self._watcher is None or not self._watcher.is_alive()):
            self._watcher = threading.Thread(target=self._run_watcher, name="dibs-wakeups", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter ends: waiters poll anyway
                self._watcher.start()

    def _run_watcher(self) -> None:
        while True:
            self.watch()
            with self._guard:  # no waiter may arrive between this check and the end of the thread
                if not self.wanted:
                    self._watcher = None
                    return


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class LocalWakeups(Wakeups):
    """Wake-ups of a store that only this process can see: only its own writes wake."""

    def watch(self) -> None:
        """See Wakeups. There are no other writers."""
        self.pause(1.0)
