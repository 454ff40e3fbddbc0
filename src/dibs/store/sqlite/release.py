"""What is known of the SQLite release that Python was built with."""

from __future__ import annotations

import sqlite3

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
    """What to tell somebody who runs a worker or a server on this release; None where there is nothing."""
    if has_wal_fix(sqlite3.sqlite_version_info):
        return None
    return (
        f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug: in rare cases it corrupts a file that several "
        f"connections write to. {FIXED} The guide on deploying says how."
    )
