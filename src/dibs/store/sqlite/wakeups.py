"""Wake-ups on SQLite: `PRAGMA data_version` changes when another connection has committed.

Reading it costs some 20 µs, too much for an idle process to do all the time. Where the system reports writes to the
WAL (Linux), the watcher sleeps until a write. A commit becomes visible only a moment after the write, when it is safe
on disk, so after a write the watcher reads the version repeatedly until it has changed.
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

READ_INTERVAL = 0.001
"""Seconds between two reads after a write to the WAL."""

EXPECT_COMMIT_FOR = 0.03
"""Seconds for which a commit is expected after a write. On a slow disk it takes longer, and QUIET_INTERVAL finds it."""

QUIET_INTERVAL = 0.05
"""Seconds between two reads without a reported write: a file system may not report writes, or report them late."""

UNREPORTED = 0.004
"""The same on a system that cannot report writes."""

RETRY_AFTER = 0.25


class SqliteWakeups(Wakeups):
    """Reads the data version on a connection of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def watch(self) -> None:
        """See Wakeups."""
        try:
            with contextlib.closing(connect(self._path)) as connection:
                connection.execute("PRAGMA data_version").fetchone()  # opens the WAL, so that it can be watched
                with contextlib.closing(watch_file(Path(f"{self._path}-wal"))) as file:
                    self._read_versions(connection, file)
        except (StoreError, sqlite3.Error):
            time.sleep(RETRY_AFTER)  # waiters also poll; the next attempt may succeed

    def _read_versions(self, connection: sqlite3.Connection, file: FileWatch) -> None:
        seen = None
        expected_until = 0.0
        quiet = QUIET_INTERVAL if file.reports else UNREPORTED
        while self.wanted:
            now = connection.execute("PRAGMA data_version").fetchone()
            if now != seen:  # also after the first read: a change may have come before it
                seen = now
                self.wake()
            expecting = time.monotonic() < expected_until
            if expecting:
                time.sleep(READ_INTERVAL)
            if file.wait(0 if expecting else quiet):
                expected_until = time.monotonic() + EXPECT_COMMIT_FOR


IN_MODIFY = 0x2
IN_NONBLOCK = os.O_NONBLOCK if hasattr(os, "O_NONBLOCK") else 0
IN_CLOEXEC = os.O_CLOEXEC if hasattr(os, "O_CLOEXEC") else 0


class FileWatch(Protocol):
    """Reports writes to one file."""

    reports: bool
    """False if the system cannot report writes, so that `wait` only sleeps."""

    def wait(self, timeout: float) -> bool:
        """Return when the file was written to, or after `timeout` seconds; whether it was."""

    def close(self) -> None:
        """Stop watching."""


def watch_file(path: Path) -> FileWatch:
    """The best watch that this system has."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # no inotify in this sandbox, or too many watches
            return _Inotify(path)
    return _Sleep()


class _Inotify:
    """A watch by inotify, on Linux."""

    reports = True

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
    """No watch: `wait` sleeps."""

    reports = False

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
