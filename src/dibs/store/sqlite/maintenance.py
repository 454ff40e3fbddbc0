"""Maintenance of the SQLite file, and the known bug of some SQLite releases."""

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
        # Another process is writing: the free pages are returned in the next round.


FIXED = "Use 3.51.3, 3.50.7 or 3.44.6 and later."


def has_wal_fix(release: tuple[int, int, int]) -> bool:
    """False for a release with the WAL-reset bug, in which a checkpoint and a write of two connections at the same
    moment can corrupt the file."""
    if release[:2] == (3, 44):
        return release >= (3, 44, 6)
    if release[:2] == (3, 50):
        return release >= (3, 50, 7)
    return release >= (3, 51, 3)


def caution() -> str | None:
    """The warning for a worker or server that uses this SQLite release; None for a release without the bug."""
    if has_wal_fix(sqlite3.sqlite_version_info):
        return None
    return (
        f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug: in rare cases it corrupts a file that several "
        f"connections write to. {FIXED} The guide on deploying says how."
    )
