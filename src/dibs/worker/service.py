"""Service threads: the threads of a worker that run one step after the other and survive every error."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from dibs.errors import StoreError
from dibs.model.retry import reconnect_delay

logger = logging.getLogger("dibs.worker")

MIN_RETRY_DELAY, MAX_RETRY_DELAY = 0.1, 5.0
"""Seconds to wait after a failed step. The delay doubles with each failure, so that workers do not overload a store
that is failing."""


class ServiceThread(ABC):
    """A thread that calls `step` until `end`. A step does a bounded piece of work, or waits for a bounded time."""

    name = "service"

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"dibs-{self.name}", daemon=True)

    @abstractmethod
    def step(self) -> None:
        """Do the next piece of work, or wait for it."""

    @property
    def alive(self) -> bool:
        """False once the thread has ended; only `end` should cause that."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self, timeout: float | None = None) -> bool:
        """Ask the thread to end after its current step and wait for its end. False if it has not ended in time."""
        self._ending.set()
        self.wake()
        # A thread that is being started is not alive yet and cannot be joined; it ends by itself before its first step.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @abstractmethod
    def wake(self) -> None:
        """Make a step that waits return at once."""

    def _run(self) -> None:
        failures = 0
        while not self._ending.is_set():
            try:
                self.step()
                failures = 0
            except Exception as error:
                failures += 1
                self._log(error)
                self._ending.wait(retry_delay(failures))

    def _log(self, error: Exception) -> None:
        if not isinstance(error, StoreError):  # StoreAccess logs those, once for all service threads
            about = {"event": "service.failed", "service": self.name}
            logger.error("%s failed and will try again", self.name, exc_info=error, extra=about)


def retry_delay(failures: int) -> float:
    """Seconds to wait after the n-th failure in a row: exponential, with jitter."""
    return reconnect_delay(failures, MIN_RETRY_DELAY, MAX_RETRY_DELAY)


class Signals:
    """Counts the signals SIGTERM and SIGINT (Ctrl-C).

    The signal handler only counts. It interrupts the main thread, which may hold the lock that setting an event or
    writing a log entry would wait for.
    """

    def __init__(self) -> None:
        self.count = 0
        self.interrupted = False
        """True if the last signal was SIGINT: a person at a terminal pressed Ctrl-C."""

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Count signals inside the block. Only the main thread can handle signals; in other threads this does
        nothing."""
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
        self.interrupted = number == signal.SIGINT
