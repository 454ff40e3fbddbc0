"""Wait until a condition is true: bounded, and never longer than needed. One function waits for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], timeout: float = 30.0) -> T:
    """The first true answer; AssertionError if there is none within `timeout` seconds, even on a busy machine."""
    deadline = time.monotonic() + timeout
    while not (answer := look()):
        assert time.monotonic() < deadline, f"still {answer!r} after {timeout} seconds"
        time.sleep(0.01)
    return answer


def let_pass(seconds: float) -> None:
    """Let real time pass, to show that something does not happen in it. Never to wait for something that happens."""
    time.sleep(seconds)
