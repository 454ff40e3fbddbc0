"""Keys pressed in a terminal, one at a time, without waiting for the end of a line."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

Wait = Callable[[float], str]
"""Wait so many seconds for a key; an empty string if none came."""


@contextlib.contextmanager
def keys() -> Iterator[Wait]:
    """A way to wait for keys. Where there is no keyboard, only time passes."""
    if not sys.stdin.isatty():
        yield _only_wait
    elif sys.platform == "win32":
        yield _wait_on_windows
    else:
        with _one_by_one(sys.stdin.fileno()):
            yield _wait_on_posix


def _only_wait(seconds: float) -> str:
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
    def _one_by_one(terminal: int) -> Iterator[None]:
        """Ctrl-C still interrupts; everything is as before afterwards."""
        before = termios.tcgetattr(terminal)
        try:
            tty.setcbreak(terminal)
            yield
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    def _wait_on_posix(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""
