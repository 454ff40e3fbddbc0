"""A part of the worker: a thread that takes step after step, and that no error ends."""

from __future__ import annotations

import contextlib
import logging
import random
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from dibs.errors import StoreError

logger = logging.getLogger("dibs.worker")

SHORTEST, LONGEST = 0.1, 5.0
"""Seconds to rest after a failed step: doubling, so that a broken store is not hammered by all who wait for it."""


class Part(ABC):
    """One thread. A step does a bounded piece of work, or waits for a bounded time."""

    name = "part"

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"dibs-{self.name}", daemon=True)

    @abstractmethod
    def step(self) -> None:
        """Do the next piece of work."""

    @property
    def alive(self) -> bool:
        """False once the thread has ended, which nothing but `end` should bring about."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self, timeout: float | None = None) -> bool:
        """Ask the thread to end after its step and wait for it; False if it did not in time."""
        self._ending.set()
        self.wake()
        # Not alive yet while it is just being started, and not to be joined then; it ends by itself at its first step.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @abstractmethod
    def wake(self) -> None:
        """Let a step that waits return early."""

    def _run(self) -> None:
        failures = 0
        while not self._ending.is_set():
            try:
                self.step()
                failures = 0
            except Exception as error:
                failures += 1
                self._tell(error)
                self._ending.wait(rest(failures))

    def _tell(self, error: Exception) -> None:
        if not isinstance(error, StoreError):  # of those the contact has told already, once for all parts
            about = {"event": "part.failed", "part": self.name}
            logger.error("%s failed and goes on", self.name, exc_info=error, extra=about)


def rest(failures: int) -> float:
    """Seconds to wait after the n-th failure in a row."""
    return min(LONGEST, SHORTEST * 2.0 ** min(failures - 1, 10)) * random.uniform(0.5, 1.0)


class Signals:
    """How often SIGTERM or SIGINT (Ctrl-C) came.

    The handler only counts. It runs in the middle of whatever the main thread was doing, which may hold the very lock
    that setting an event or writing a log line would wait for.
    """

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Count signals inside the block. Only the main thread can; elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: Any) -> None:
        self.count += 1
