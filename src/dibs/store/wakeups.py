"""Wake-ups: a hint that something changed, for those who wait; polling stays the truth.

Waiters in this process are woken by its own writes at once. For writes of other processes a watcher thread asks the
engine, and runs only while somebody waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod

LINGER = 5.0
"""Seconds for which the watcher goes on after the last waiter left: most come back at once."""


class Wakeups(ABC):
    """Wait for a change, in a thread or in an event loop."""

    def __init__(self) -> None:
        self._guard = threading.RLock()  # no Condition, of which Ctrl-C can keep the lock (decision 39)
        self._generation = 0
        self._waiting: set[threading.Lock] = set()  # each let go when something changes
        self._left_at = 0.0
        self._futures: set[asyncio.Future[None]] = set()
        self._watcher: threading.Thread | None = None
        self._closed = False
        self._ended = threading.Lock()  # let go when it is closed
        self._ended.acquire()

    @abstractmethod
    def watch(self) -> None:
        """Look for changes by others until nobody waits any more; call `wake` for each. Runs in its own thread."""

    @property
    def generation(self) -> int:
        """How many changes have been noticed; taken before looking, handed to `wait` after."""
        return self._generation

    @property
    def wanted(self) -> bool:
        """True while somebody waits, or did a moment ago."""
        waiting = bool(self._waiting or self._futures)
        return not self._closed and (waiting or time.monotonic() - self._left_at < LINGER)

    def wake(self) -> None:
        """Something changed: everybody look again."""
        with self._guard:
            self._generation += 1
            self._let_go()
            if not self._futures:
                return
            futures, self._futures = self._futures, set()
        for future in futures:
            with contextlib.suppress(RuntimeError):  # its event loop is gone, and its waiter with it
                future.get_loop().call_soon_threadsafe(_resolve, future)

    def wait(self, seen: int, timeout: float) -> None:
        """Return when something changed since generation `seen`, or after `timeout` seconds."""
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
        """Do nothing for so long, or until it is closed."""
        if self._ended.acquire(timeout=seconds):
            self._ended.release()

    def close(self) -> None:
        """Let everybody go and stop watching."""
        self._closed = True
        with contextlib.suppress(RuntimeError):  # closed already
            self._ended.release()
        self.wake()  # it takes the guard, under which a watcher is started: from here on none is just being started
        watcher = self._watcher
        if watcher is not None and watcher.is_alive() and watcher is not threading.current_thread():
            watcher.join(timeout=5)

    def _let_go(self) -> None:
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
            with self._guard:  # nobody may begin to wait between the last look and the thread's end
                if not self.wanted:
                    self._watcher = None
                    return


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class LocalWakeups(Wakeups):
    """For a store that no other process can see: only writes of this process wake."""

    def watch(self) -> None:
        """See Wakeups. Nobody else writes."""
        self.pause(1.0)
