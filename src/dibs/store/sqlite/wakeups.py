"""Wake-ups on SQLite: `PRAGMA data_version` changes when another connection has committed."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

from dibs.errors import StoreError
from dibs.store.sqlite.connection import connect
from dibs.store.wakeups import Wakeups

LOOK_EVERY = 0.004
"""Seconds between two looks at the data version while somebody waits; a look costs a few microseconds."""

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
                self._look(connection)
        except (StoreError, sqlite3.Error):
            time.sleep(TRY_AGAIN_AFTER)  # waiters poll anyway; the next look may succeed

    def _look(self, connection: sqlite3.Connection) -> None:
        seen = None
        while self.wanted:
            now = connection.execute("PRAGMA data_version").fetchone()
            if now != seen:  # the first look wakes as well: something may have been written before it
                seen = now
                self.wake()
            time.sleep(LOOK_EVERY)
