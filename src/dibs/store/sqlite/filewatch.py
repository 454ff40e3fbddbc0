"""Sleep until a file is written to, where the system can tell; otherwise just sleep."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sys
import time
from pathlib import Path
from typing import Protocol

IN_MODIFY = 0x2
IN_NONBLOCK = os.O_NONBLOCK if hasattr(os, "O_NONBLOCK") else 0
IN_CLOEXEC = os.O_CLOEXEC if hasattr(os, "O_CLOEXEC") else 0


class FileWatch(Protocol):
    """Tells of writes to one file."""

    telling: bool
    """False where the system cannot tell, and `wait` only sleeps."""

    def wait(self, timeout: float) -> bool:
        """Return when the file was written to, or after `timeout` seconds; whether it was."""

    def close(self) -> None:
        """Watch no more."""


def watch_file(path: Path) -> FileWatch:
    """The best watch that this system has."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # no inotify in this sandbox, or too many watches
            return _Inotify(path)
    return _Sleep()


class _Inotify:
    """Linux tells."""

    telling = True

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _checked(libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC))
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        try:
            _checked(libc.inotify_add_watch(self._fd, os.fsencode(path), IN_MODIFY))
        except OSError:
            self.close()
            raise

    def wait(self, timeout: float) -> bool:
        """See FileWatch."""
        if not self._poll.poll(timeout * 1000):
            return False
        os.read(self._fd, 65536)
        return True

    def close(self) -> None:
        """See FileWatch."""
        os.close(self._fd)


class _Sleep:
    """Nobody tells."""

    telling = False

    def wait(self, timeout: float) -> bool:
        """See FileWatch."""
        time.sleep(timeout)
        return False

    def close(self) -> None:
        """See FileWatch."""


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
