"""A connection of the user, of either engine and kind, used by plain calls."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg

from tests.helpers.clients import AsyncAsSync
from tests.helpers.databases import sqlite_path


class Borrowed:
    """What a test does with a connection that it hands to dibs: `connection` is the one to hand in."""

    def __init__(self, app: Any, url: str, options: dict[str, Any]) -> None:
        self._loop = app.loop if isinstance(app, AsyncAsSync) else None
        if url.startswith("sqlite"):
            # AsyncDibs uses it on the thread of its loop, the test on its own: one after the other.
            self._loop = None
            self.connection: Any = sqlite3.connect(sqlite_path(url), **{"check_same_thread": False, **options})
        elif self._loop is None:
            self.connection = psycopg.connect(url, **options)
        else:
            self.connection = self._loop.run(psycopg.AsyncConnection.connect(url, **options))

    def execute(self, sql: str) -> Any:
        """Run a statement of the user's own."""
        return self._done(self.connection.execute(sql))

    def value(self, sql: str) -> Any:
        """The first column of the first row."""
        row = self._done(self.execute(sql).fetchone())
        return next(iter(row.values())) if isinstance(row, dict) else row[0]

    def commit(self) -> None:
        """The user's commit."""
        self._done(self.connection.commit())

    def rollback(self) -> None:
        """The user's rollback."""
        self._done(self.connection.rollback())

    def close(self) -> None:
        """Let go."""
        self._done(self.connection.close())

    @property
    def in_transaction(self) -> bool:
        """Is there something to commit?"""
        if isinstance(self.connection, sqlite3.Connection):
            return self.connection.in_transaction
        return bool(self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE)

    def _done(self, answer: Any) -> Any:
        return self._loop.run(answer) if self._loop else answer
