"""Signals: the first asks the worker to stop and let its tasks end, the second to stop now."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

logger = logging.getLogger("dibs.worker")


@contextlib.contextmanager
def handled(stop: Callable[[], None], stop_now: Callable[[], None]) -> Iterator[None]:
    """Handle SIGTERM and SIGINT (Ctrl-C) inside the block. Only the main thread can; elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def receive(number: int, frame: Any) -> None:
        nonlocal asked
        (stop_now if asked else stop)()
        asked = True

    before = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
