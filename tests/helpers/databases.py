"""The database itself, past dibs: for tests that tamper with it, look behind the client, or bring their own tables."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import psycopg

Rows = list[tuple[Any, ...]]


def sqlite_path(url: str) -> str:
    """The file of a SQLite URL."""
    return url.removeprefix("sqlite:///")


def run_sql(url: str, *statements: str) -> Rows:
    """Run the statements, each committed; the rows of the last."""
    return _on_sqlite(sqlite_path(url), statements) if url.startswith("sqlite") else _on_postgres(url, statements)


def _on_sqlite(path: str, statements: tuple[str, ...]) -> Rows:
    rows: Rows = []
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
    return rows


def _on_postgres(url: str, statements: tuple[str, ...]) -> Rows:
    rows: Rows = []
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
    return rows
