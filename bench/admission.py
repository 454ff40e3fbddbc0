"""Limits with plain SQL: a queue in which a task takes its permit before it can be claimed ("admission").

A task above its limit waits as `blocked`. Whatever completes tasks passes their permits on to the next blocked tasks of
the same limits, which become `ready`, or gives them back. A claim takes ready tasks and knows nothing of limits. That
is the fastest known way to keep a limit in SQL. It promises less than dibs: a task that waits has a permit already, so
a queue that is paused or has no worker takes permits from others; and a task has one limit.

As in dibs, a claim has a token and a lease, an outcome is fenced, and each transition has an entry in a history.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from bench.limit_shapes import FULL, LIMIT, Shape
from dibs.store.sqlite.connection import connect

BUSY_TIMEOUT = 60_000
LEASE = 60_000_000

SCHEMA = """
CREATE TABLE jobs (
    id {id}, type text NOT NULL, state text NOT NULL, priority integer NOT NULL, params text NOT NULL,
    attempts integer NOT NULL DEFAULT 0, token bigint NOT NULL DEFAULT 0, worker text, created_at bigint NOT NULL,
    claimed_at bigint, lease_until bigint, finished_at bigint, result text, counter text);
CREATE INDEX jobs_ready ON jobs (priority DESC, id) WHERE state = 'ready';
CREATE INDEX jobs_blocked ON jobs (counter, priority DESC, id) WHERE state = 'blocked';
CREATE INDEX jobs_leases ON jobs (lease_until) WHERE state = 'claimed';
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE state = 'completed';
CREATE TABLE counters (name text PRIMARY KEY, free integer NOT NULL);
CREATE TABLE history (
    id {id}, job bigint NOT NULL, event text NOT NULL, from_state text, to_state text NOT NULL, worker text,
    token bigint NOT NULL, at bigint NOT NULL);
CREATE INDEX history_job ON history (job);
"""

INSERT = "INSERT INTO jobs (type, state, priority, params, created_at, counter) VALUES ('bench', ?, ?, ?, 0, ?)"
ENQUEUED = "INSERT INTO history (job, event, to_state, token, at) SELECT id, 'enqueued', state, 0, 0 FROM jobs"
NOTE = "INSERT INTO history (job, event, from_state, to_state, worker, token, at) VALUES (?, ?, ?, ?, ?, ?, ?)"


def install(url: str, shape: Shape, tasks: int) -> None:
    """Create the tables, and tasks of this shape: as many as their limits allow are ready."""
    free = {shape.group(number) or LIMIT: shape.max for number in range(shape.groups)} if shape.max else {}
    rows = list(_rows(shape, tasks, free))
    counters = [*free.items(), *([(FULL, 0)] if shape.blocked else [])]
    with contextlib.closing(_open(url)) as connection:
        is_sqlite = isinstance(connection, sqlite3.Connection)
        key = "integer PRIMARY KEY" if is_sqlite else "bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY"
        cursor = connection.cursor()
        for statement in SCHEMA.format(id=key).split(";")[:-1]:
            cursor.execute(statement)
        cursor.execute("BEGIN")
        for sql, values in ((INSERT, rows), ("INSERT INTO counters VALUES (?, ?)", counters)):
            cursor.executemany(sql if is_sqlite else sql.replace("?", "%s"), values)
        cursor.execute(ENQUEUED)
        cursor.execute("COMMIT")


def _rows(shape: Shape, tasks: int, free: dict[str, int]) -> Iterator[tuple[Any, ...]]:
    """Jobs; what is left of the permits stays in `free`."""
    for _ in range(shape.blocked):
        yield "blocked", 5, "{}", FULL
    for number in range(tasks):
        counter = (shape.group(number) or LIMIT) if shape.max else None
        if counter is not None:
            free[counter] -= 1
        is_ready = counter is None or free[counter] >= 0
        yield "ready" if is_ready else "blocked", 0, f'{{"number":{number}}}', counter
    free.update({counter: max(left, 0) for counter, left in free.items()})


def check(url: str, shape: Shape, tasks: int) -> None:
    """Raise unless all tasks are completed and all permits have come back."""
    with contextlib.closing(_open(url)) as connection:
        [[done]] = connection.execute("SELECT count(*) FROM jobs WHERE state = 'completed'").fetchall()
        [[free]] = connection.execute("SELECT coalesce(sum(free), 0) FROM counters").fetchall()
    if (done, free) != (tasks, shape.max * shape.groups if shape.max else 0):
        raise RuntimeError(f"{done} of {tasks} tasks are completed, and {free} permits are free.")


def open_side(url: str, worker: str, batch: int) -> SqliteAdmission | PostgresAdmission:
    """A process's connection."""
    kind = SqliteAdmission if url.startswith("sqlite:") else PostgresAdmission
    return kind(url, worker, batch)


class PostgresAdmission:
    """psycopg on one connection. The counters are locked in the order of their names, before the next blocked tasks are
    read: of two processes that return permits of one limit, the second one sees which tasks the first one admitted."""

    CLAIM = """
    WITH first AS MATERIALIZED (
        SELECT id FROM jobs WHERE state = 'ready' ORDER BY priority DESC, id LIMIT %(count)s FOR UPDATE SKIP LOCKED),
    claimed AS (
        UPDATE jobs SET state = 'claimed', token = token + 1, worker = %(worker)s, claimed_at = %(now)s,
            lease_until = %(now)s + %(lease)s
        FROM first WHERE jobs.id = first.id
        RETURNING jobs.id, jobs.token, jobs.priority, jobs.type, jobs.params),
    noted AS (
        INSERT INTO history (job, event, from_state, to_state, worker, token, at)
        SELECT id, 'claimed', 'ready', 'claimed', %(worker)s, token, %(now)s FROM claimed)
    SELECT * FROM claimed ORDER BY priority DESC, id"""

    COMPLETE = """
    WITH ended AS (
        UPDATE jobs SET state = 'completed', attempts = attempts + 1, finished_at = %(now)s, worker = NULL,
            lease_until = NULL, result = NULL
        FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS item (id, token)
        WHERE jobs.id = item.id AND jobs.token = item.token AND worker = %(worker)s AND state = 'claimed'
        RETURNING jobs.id, jobs.token, jobs.counter),
    noted AS (
        INSERT INTO history (job, event, from_state, to_state, worker, token, at)
        SELECT id, 'completed', 'claimed', 'completed', %(worker)s, token, %(now)s FROM ended)
    SELECT counter, count(*) FROM ended GROUP BY counter"""

    LOCK = "SELECT FROM counters WHERE name = ANY (%(names)s) ORDER BY name FOR UPDATE"

    ADMIT = """
    WITH returned AS (SELECT * FROM unnest(%(names)s::text[], %(counts)s::int[]) AS item (name, permits)),
    next AS (
        SELECT job.id FROM returned CROSS JOIN LATERAL (
            SELECT id FROM jobs WHERE state = 'blocked' AND counter = returned.name
            ORDER BY priority DESC, id LIMIT returned.permits) AS job),
    admitted AS (UPDATE jobs SET state = 'ready' FROM next WHERE jobs.id = next.id RETURNING jobs.counter)
    UPDATE counters SET free = free + permits - (SELECT count(*) FROM admitted WHERE counter = returned.name)
    FROM returned WHERE counters.name = returned.name"""

    def __init__(self, url: str, worker: str, batch: int) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._worker, self._batch = worker, batch

    def claim(self) -> list[Any]:
        """The first ready tasks."""
        values = {"count": self._batch, "worker": self._worker, "now": _now(), "lease": LEASE}
        return self._connection.execute(self.CLAIM, values).fetchall()

    def finish(self, claims: list[Any]) -> None:
        """Complete the tasks, and pass their permits on."""
        values = {
            "ids": [claim[0] for claim in claims],
            "tokens": [claim[1] for claim in claims],
            "worker": self._worker,
            "now": _now(),
        }
        with self._connection.transaction():
            found = self._connection.execute(self.COMPLETE, values).fetchall()
            if sum(count for _, count in found) != len(claims):
                raise RuntimeError("A claim was lost.")
            if returned := {name: count for name, count in found if name is not None}:
                permits = {"names": list(returned), "counts": list(returned.values())}
                with self._connection.pipeline():
                    self._connection.execute(self.LOCK, permits)
                    self._connection.execute(self.ADMIT, permits)

    def run(self, statement: str) -> None:
        """Run a statement of the benchmark on the connection."""
        self._connection.execute(statement.encode())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class SqliteAdmission:
    """sqlite3 with the settings of dibs; each call is one BEGIN IMMEDIATE transaction."""

    def __init__(self, url: str, worker: str, batch: int) -> None:
        self._connection = connect(_path(url))
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT}")
        self._worker, self._batch = worker, batch

    def claim(self) -> list[Any]:
        """The first ready tasks."""
        execute, now = self._connection.execute, _now()
        execute("BEGIN IMMEDIATE")
        ids = execute(
            "SELECT id FROM jobs WHERE state = 'ready' ORDER BY priority DESC, id LIMIT ?", (self._batch,)
        ).fetchall()
        rows = [
            execute(
                "UPDATE jobs SET state = 'claimed', token = token + 1, worker = ?, claimed_at = ?, lease_until = ?"
                " WHERE id = ? RETURNING id, token, counter, type, params",
                (self._worker, now, now + LEASE, job),
            ).fetchall()[0]
            for (job,) in ids
        ]
        notes = [(row[0], "claimed", "ready", "claimed", self._worker, row[1], now) for row in rows]
        self._connection.executemany(NOTE, notes)
        execute("COMMIT")
        return rows

    def finish(self, claims: list[Any]) -> None:
        """Complete the tasks, and pass their permits on."""
        execute, now = self._connection.execute, _now()
        execute("BEGIN IMMEDIATE")
        for claim in claims:
            ended = execute(
                "UPDATE jobs SET state = 'completed', attempts = attempts + 1, finished_at = ?, worker = NULL,"
                " lease_until = NULL, result = NULL"
                " WHERE id = ? AND token = ? AND worker = ? AND state = 'claimed'",
                (now, claim[0], claim[1], self._worker),
            )
            if ended.rowcount != 1:
                raise RuntimeError("A claim was lost.")
        notes = [(claim[0], "completed", "claimed", "completed", self._worker, claim[1], now) for claim in claims]
        self._connection.executemany(NOTE, notes)
        for name, count in Counter(claim[2] for claim in claims if claim[2] is not None).items():
            admitted = execute(
                "UPDATE jobs SET state = 'ready' WHERE id IN (SELECT id FROM jobs WHERE state = 'blocked'"
                " AND counter = ? ORDER BY priority DESC, id LIMIT ?)",
                (name, count),
            ).rowcount
            if admitted < count:
                execute("UPDATE counters SET free = free + ? WHERE name = ?", (count - admitted, name))
        execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _open(url: str) -> Any:
    if not url.startswith("sqlite:"):
        return psycopg.connect(url, autocommit=True)
    path = _path(url)
    path.touch()
    connection = connect(path)
    connection.execute("PRAGMA journal_mode = wal")
    return connection


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def _now() -> int:
    return time.time_ns() // 1000
