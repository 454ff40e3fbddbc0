"""Read single key presses from a terminal, without waiting for Enter."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

WaitForKey = Callable[[float], str]
"""A function that waits up to the given seconds for a key, and returns it or an empty string."""


@contextlib.contextmanager
def keys() -> Iterator[WaitForKey]:
    """Yield a function that waits for keys. Without a keyboard the function only sleeps."""
    if not sys.stdin.isatty():
        yield _sleep
    elif sys.platform == "win32":
        yield _wait_on_windows
    else:
        with _unbuffered(sys.stdin.fileno()):
            yield _wait_on_posix


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""


if sys.platform == "win32":
    import msvcrt

    def _wait_on_windows(seconds: float) -> str:
        give_up_at = time.monotonic() + seconds
        while not msvcrt.kbhit():
            if time.monotonic() > give_up_at:
                return ""
            time.sleep(0.05)
        return msvcrt.getwch()

else:
    import select
    import termios
    import tty

    @contextlib.contextmanager
    def _unbuffered(terminal: int) -> Iterator[None]:
        """Read keys without line buffering, and restore the terminal afterwards. Ctrl-C still interrupts."""
        before = termios.tcgetattr(terminal)
        try:
            tty.setcbreak(terminal)
            yield
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    def _wait_on_posix(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""
