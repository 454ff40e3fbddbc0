"""Upkeep of the SQLite file itself."""

from __future__ import annotations

import sqlite3

PAGES_A_ROUND = 1000


def tidy(connection: sqlite3.Connection) -> None:
    """Move the WAL into the file as far as readers allow, return some free pages, refresh statistics if needed.

    PASSIVE, because the stronger checkpoints wait for readers with the write lock held; a few pages a round, because
    each must be moved.
    """
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    try:
        connection.execute(f"PRAGMA incremental_vacuum({PAGES_A_ROUND})").fetchall()
        connection.execute("PRAGMA analysis_limit = 400")  # otherwise the next one may read whole indexes
        connection.execute("PRAGMA optimize").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        # Somebody else is writing: the free pages can wait for the next round.
