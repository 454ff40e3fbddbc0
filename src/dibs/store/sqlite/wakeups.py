"""Wake-ups on SQLite: `PRAGMA data_version` changes when another connection has committed.

A look costs some 20 µs, so looking all the time would cost an idle process more than it may. Where the system tells
of writes to the WAL (Linux), the watcher sleeps until there was one. The commit becomes visible only a moment after
the write, when it is safe on disk, so it then looks again and again until it sees it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sqlite3
import sys
import time
from pathlib import Path
from typing import Protocol

from dibs.errors import StoreError
from dibs.store.sqlite.connection import connect
from dibs.store.wakeups import Wakeups

LOOK_EVERY = 0.001
"""Seconds between two looks after a write to the WAL."""

EXPECT_FOR = 0.03
"""Seconds for which a commit is expected after a write: a slow disk takes longer, and is then seen by NO_NEWS."""

NO_NEWS = 0.05
"""Seconds between two looks where no write is known of: a file system may not tell, or not in time."""

UNTOLD = 0.004
"""The same where the system cannot tell of writes at all."""

TRY_AGAIN_AFTER = 0.25


class SqliteWakeups(Wakeups):
    """Looks at the data version on a connection of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def watch(self) -> None:
        """See Wakeups."""
        try:
            with contextlib.closing(connect(self._path)) as connection:
                connection.execute("PRAGMA data_version").fetchone()  # opens the WAL, so that it can be watched
                with contextlib.closing(watch_file(Path(f"{self._path}-wal"))) as file:
                    self._look(connection, file)
        except (StoreError, sqlite3.Error):
            time.sleep(TRY_AGAIN_AFTER)  # waiters poll anyway; the next look may succeed

    def _look(self, connection: sqlite3.Connection, file: FileWatch) -> None:
        seen = None
        expected_until = 0.0
        quiet = NO_NEWS if file.telling else UNTOLD
        while self.wanted:
            now = connection.execute("PRAGMA data_version").fetchone()
            if now != seen:  # the first look wakes as well: something may have been written before it
                seen = now
                self.wake()
            expecting = time.monotonic() < expected_until
            if expecting:
                time.sleep(LOOK_EVERY)
            if file.wait(0 if expecting else quiet):
                expected_until = time.monotonic() + EXPECT_FOR


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
