"""Signals: the first asks the worker to stop and let its tasks end, the second to stop now."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


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
