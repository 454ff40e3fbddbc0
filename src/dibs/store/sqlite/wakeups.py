"""Wake-ups on SQLite: `PRAGMA data_version` changes when another connection has committed."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from dibs.errors import StoreError
from dibs.store.sqlite.connection import connect
from dibs.store.wakeups import Wakeups

LOOK_EVERY = 0.004
"""Seconds between two looks at the data version while somebody waits; a look costs a few microseconds."""


class SqliteWakeups(Wakeups):
    """Looks at the data version on a connection of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def watch(self) -> None:
        """See Wakeups."""
        try:
            connection = connect(self._path)
        except StoreError:
            time.sleep(LOOK_EVERY)  # waiters poll anyway; the next look may succeed
            return
        with contextlib.closing(connection):
            look = "PRAGMA data_version"
            seen = connection.execute(look).fetchone()
            while self.wanted:
                time.sleep(LOOK_EVERY)
                now = connection.execute(look).fetchone()
                if now != seen:
                    seen = now
                    self.wake()
