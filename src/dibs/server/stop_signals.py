"""The signals that ask the program around a mounted server to stop.

uvicorn, also in Gunicorn, waits for open requests before it ends the lifespan of an application: a long poll would
keep it waiting for a minute, a stream for ever. No message of ASGI announces the wait. So the mounted server reads the
signal as well, and passes it on to the handler of the ASGI server. Hypercorn sends no signal to its processes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = ("SIGTERM", "SIGINT", "SIGBREAK")


@contextmanager
def on_stop_signal(react: Callable[[], object]) -> Iterator[None]:
    """Call `react` for each signal to stop, before the handler that was there. Only the main thread may handle signals:
    in another thread, and where the program has no handler, nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    changed = {number: _put_before(number, react) for number in numbers if callable(signal.getsignal(number))}
    try:
        yield
    finally:
        for number, (ours, before) in changed.items():
            if signal.getsignal(number) is ours:  # otherwise another handler came after this one, and may call it
                signal.signal(number, before)


def _put_before(number: int, react: Callable[[], object]) -> tuple[Any, Any]:
    before: Any = signal.getsignal(number)

    def handle(received: int, frame: FrameType | None) -> None:
        react()
        before(received, frame)

    signal.signal(number, handle)
    return handle, before
