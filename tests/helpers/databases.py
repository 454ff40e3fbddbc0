"""Direct access to the database, for tests that change rows behind dibs, read them, or bring their own tables."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

from tests.helpers import postgres

Rows = list[tuple[Any, ...]]


def sqlite_path(url: str) -> str:
    """The file of a SQLite URL."""
    return url.removeprefix("sqlite:///")


def run_sql(url: str, *statements: str) -> Rows:
    """Run the statements, each committed; the rows of the last."""
    return _on_sqlite(sqlite_path(url), statements) if url.startswith("sqlite") else _on_postgres(url, statements)


def is_locked(url: str) -> bool:
    """True while a transaction that writes is open."""
    if not url.startswith("sqlite"):
        [(open_ones,)] = run_sql(url, _OPEN_TRANSACTIONS)
        return bool(open_ones)
    with contextlib.closing(sqlite3.connect(sqlite_path(url), isolation_level=None, timeout=0.5)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
        return False


_OPEN_TRANSACTIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"""


def _on_sqlite(path: str, statements: tuple[str, ...]) -> Rows:
    rows: Rows = []
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
    return rows


def _on_postgres(url: str, statements: tuple[str, ...]) -> Rows:
    rows: Rows = []
    with postgres.session(url) as connection:
        for statement in statements:
            # Never prepared: a statement of an earlier test may have other columns by now.
            cursor = connection.execute(statement.encode(), prepare=False)
            rows = cursor.fetchall() if cursor.description else []
    return rows
