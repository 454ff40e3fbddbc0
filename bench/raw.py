"""The raw driver doing the same SQL: dibs' own statements and parameters, with nothing around them.

The parameters are made by dibs' operations before the clock starts, the rows are fetched but not decoded, and there
are as many transactions as on the side of dibs. Ids and tokens for the next statements are taken from the rows.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from bench.sides import TYPE, params
from dibs import NewTask
from dibs.model.claim import ClaimRequest
from dibs.store.operation import WIDTH, Row, Rows, Statement, Statements
from dibs.store.operations.finish import PLAIN
from dibs.store.postgres.connection import SQL as POSTGRES
from dibs.store.postgres.connection import bind
from dibs.store.postgres.store import PostgresStore
from dibs.store.sqlite.connection import SQL as SQLITE
from dibs.store.sqlite.connection import SqliteExecutor, connect
from dibs.store.sqlite.store import SqliteStore

BUSY_TIMEOUT = 60_000
"""Milliseconds. A raw connection waits for locks as SQLite itself does."""

UNSIGNED = {"now": None, "by": None}


class RawSqlite:
    """sqlite3 with the settings of dibs."""

    def __init__(self, url: str, worker: str, batch: int) -> None:
        path = Path(url.removeprefix("sqlite:///"))
        self._store = SqliteStore(path)
        self._request = ClaimRequest(worker_id=worker, count=batch)
        self._connection = connect(path)
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT}")
        self._complete = SQLITE.text("complete", PLAIN)
        self._append_history = SQLITE.text("append_history")

    def prepare(self, numbers: Sequence[int]) -> list[Row]:
        """See Side. The ids are those of an empty database; `enqueue` counts on from the last one."""
        return list(_first("enqueue", self._store.queue.enqueue(_tasks(numbers)).begin()).values or ())

    def enqueue(self, call: list[Row]) -> None:
        """See Side."""
        execute, now = self._connection.execute, _now()
        insert = SqliteExecutor(self._connection, now, None)
        execute("BEGIN IMMEDIATE")
        [(_, last, _)] = execute(SQLITE.text("last_id"), {"now": now}).fetchall()
        insert(Statement("enqueue", values=[(last + row[0], *row[1:]) for row in call]))
        noted = {"first": last + 1, "last": last + len(call), "now": now, "by": None}
        written = execute(SQLITE.text("enqueue_history"), noted).rowcount
        execute("COMMIT")
        _must_be(len(call), written)

    def prepare_claims(self) -> None:
        """See Side. The statements that pick tasks are those that dibs runs on this database."""
        executor = SqliteExecutor(self._connection, _now(), None)
        steps = claim_statements(self._store, self._request)
        statement = next(steps)
        looks = []
        while not statement.change:
            looks.append((SQLITE.text(statement.name, statement.words), dict(statement.params)))
            statement = steps.send(executor(statement))
        self._looks = looks
        self._claim, self._claim_params = SQLITE.text(statement.name), dict(statement.params)

    def claim(self) -> list[Any]:
        """See Side."""
        execute, now = self._connection.execute, _now()
        execute("BEGIN IMMEDIATE")
        found: Rows = []
        for sql, values in self._looks:
            found = execute(sql, values).fetchall()
        rows: Rows = []
        if found:
            ids = msgspec.json.encode([row[0] for row in found]).decode()
            rows = execute(self._claim, {**self._claim_params, "ids": ids, "now": now}).fetchall()
            self._note(rows, now)
        execute("COMMIT")
        _must_be(len(found), rows)
        return rows

    def finish(self, claims: list[Any]) -> None:
        """See Side."""
        execute, now = self._connection.execute, _now()
        said = [{"id": claim[0], "token": claim[5], "worker_id": claim[4], "result": None} for claim in claims]
        execute("BEGIN IMMEDIATE")
        rows = execute(self._complete, {"items": msgspec.json.encode(said).decode(), "now": now}).fetchall()
        self._note(rows, now)
        execute("COMMIT")
        _must_be(len(claims), rows)

    def close(self) -> None:
        """See Side."""
        self._connection.close()

    def _note(self, rows: Rows, now: int) -> None:
        signed = (None, now)
        self._connection.executemany(self._append_history, [row[:WIDTH] + signed for row in rows])


class RawPostgres:
    """psycopg on one connection, every statement a transaction."""

    def __init__(self, url: str, worker: str, batch: int) -> None:
        self._store = PostgresStore(url)
        self._worker, self._batch = worker, batch
        self._connection = psycopg.connect(url, autocommit=True)
        self._complete = POSTGRES.text("complete", PLAIN)
        self._claims = functools.cache(self._claim_statements)

    def prepare(self, numbers: Sequence[int]) -> dict[str, Any]:
        """See Side."""
        statement = _first("enqueue_keyless", self._store.queue.enqueue(_tasks(numbers)).begin())
        return bind(statement, UNSIGNED)

    def enqueue(self, call: dict[str, Any]) -> None:
        """See Side."""
        rows = self._connection.execute(POSTGRES.text("enqueue_keyless").encode(), call).fetchall()
        _must_be(self._batch, rows)

    def prepare_claims(self) -> None:
        """See Side."""
        self._claims(self._batch)

    def claim(self) -> list[Any]:
        """See Side. As dibs does, it takes any other tasks where the best are being claimed at the same moment."""
        (sql, values), _ = self._claims(self._batch)
        rows = self._connection.execute(sql, values).fetchall()
        seen, claimed = rows[0][0], [row for row in rows if row[2] is not None]
        missing = self._batch - len(claimed)
        if missing and seen > len(claimed):
            _, (sql, values) = self._claims(missing)
            claimed += self._connection.execute(sql, values).fetchall()
        return claimed

    def finish(self, claims: list[Any]) -> None:
        """See Side."""
        said = [{"id": claim[3], "token": claim[8], "worker_id": self._worker, "result": None} for claim in claims]
        values = {"items": msgspec.json.encode(said).decode(), **UNSIGNED}
        rows = self._connection.execute(self._complete.encode(), values).fetchall()
        _must_be(len(claims), rows)

    def close(self) -> None:
        """See Side."""
        self._connection.close()

    def _claim_statements(self, count: int) -> tuple[Any, Any]:
        """The two statements of a claim of this many tasks: the best ones, and any."""
        steps = claim_statements(self._store, ClaimRequest(worker_id=self._worker, count=count))
        best = next(steps)
        any_other = steps.send([(count, False, None)])
        return _ready(best), _ready(any_other)


def claim_statements(store: SqliteStore | PostgresStore, request: ClaimRequest) -> Statements[Rows]:
    """The statements of a claim that does not sweep."""
    claims = store._operations.claims
    claims.sweeper.next_at = math.inf
    return claims.claim_rows(request)


def _ready(statement: Statement) -> tuple[bytes, dict[str, Any]]:
    return POSTGRES.text(statement.name, statement.words).encode(), bind(statement, UNSIGNED)


def _first(name: str, steps: Statements[Any]) -> Statement:
    """The statement of this name, with its parameters, as the operation would run it on an empty database."""
    statement = next(steps)
    while statement.name != name:
        statement = steps.send([(_now(), 0, False)] if statement.name == "last_id" else [])
    return statement


def _tasks(numbers: Sequence[int]) -> list[NewTask]:
    return [NewTask(TYPE, params(number)) for number in numbers]


def _now() -> int:
    return time.time_ns() // 1000


def _must_be(expected: int, rows: Rows | int) -> None:
    changed = rows if isinstance(rows, int) else len(rows)
    if changed != expected:
        raise RuntimeError(f"A raw statement changed {changed} rows instead of {expected}.")
