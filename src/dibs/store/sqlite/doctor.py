"""The doctor's checks on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from dibs.model.upkeep import Check, Verdict
from dibs.store.doctor import judge, judge_limits, judge_schema
from dibs.store.sqlite.connection import SQL
from dibs.store.sqlite.maintenance import FIXED, has_wal_fix
from dibs.store.sqlite.migrations import KNOWN, applied

WAL_WARNING = 256 * 1024 * 1024
RESTORE = "Restore a backup, or save what can be read with `sqlite3 FILE .recover`."


def examine(connection: sqlite3.Connection, path: Path) -> list[Check]:
    """All checks, in the order a reader would ask."""
    return [*_file(connection, path), *_settings(connection), *_books(connection)]


def _file(connection: sqlite3.Connection, path: Path) -> Iterator[Check]:
    yield _unless_damaged("integrity", lambda: _integrity(connection))
    version = sqlite3.sqlite_version
    yield judge(
        "sqlite version",
        has_wal_fix(sqlite3.sqlite_version_info),
        f"SQLite {version}",
        f"It has the WAL-reset bug, which can corrupt a file that several processes write while checkpointing. {FIXED}",
        otherwise=Verdict.WARN,
    )
    wal = path.with_name(path.name + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    hint = "A long reader keeps it from shrinking; look for a program with an open read transaction."
    yield judge("wal size", size < WAL_WARNING, f"{size / 2**20:.1f} MiB", hint, otherwise=Verdict.WARN)


def _integrity(connection: sqlite3.Connection) -> Check:
    found = [row[0] for row in connection.execute("PRAGMA integrity_check(10)")]
    return judge("integrity", found == ["ok"], f"integrity_check says: {'; '.join(found)}", RESTORE)


def _unless_damaged(name: str, look: Callable[[], Check]) -> Check:
    """A check that comes across damage says so, and lets the others be made."""
    try:
        return look()
    except sqlite3.DatabaseError as error:
        if not error.sqlite_errorname.startswith("SQLITE_CORRUPT"):
            raise
        return judge(name, False, f"it cannot be read: {error}", RESTORE)


def _settings(connection: sqlite3.Connection) -> Iterator[Check]:
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    yield judge("journal mode", mode == "wal", f"journal_mode is {mode}", "dibs needs WAL; is it a network disk?")
    yield _unless_damaged("schema", lambda: _schema(connection))


def _schema(connection: sqlite3.Connection) -> Check:
    return judge_schema(KNOWN, applied(connection))


def _books(connection: sqlite3.Connection) -> Iterator[Check]:
    for statement, hint in (
        (
            "books_tokens",
            "A task's token differs from the last one its history issued: another program changed the tables.",
        ),
        ("books_states", "A task's state differs from where its history ends: another program changed the tables."),
    ):
        yield _unless_damaged(statement.replace("_", " "), partial(_book, connection, statement, hint))
    yield _unless_damaged("limits", partial(_limits, connection))


def _limits(connection: sqlite3.Connection) -> Check:
    return judge_limits(connection.execute(SQL.text("limits_disagreeing")).fetchone()[0])


def _book(connection: sqlite3.Connection, statement: str, hint: str) -> Check:
    count = connection.execute(SQL.text(statement)).fetchone()[0]
    return judge(statement.replace("_", " "), count == 0, f"{count} tasks disagree with their history", hint)
