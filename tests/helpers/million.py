"""Databases with as many pending and finished tasks as after a busy year, created in SQL within seconds.

The rows are computed from their number, the same on both engines: three queues, four types and one rare one,
priorities from -10 to 10, one attempt left and, rarely, three. Rare rows are in the middle, where no scan finds them
early, and are the same in a database of any size. Ended workflows, a quarter as many as tasks, are added; some have two
steps each, the last one a wide fan-out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

import dibs

START = 1_700_000_000_000_000
"""Microseconds since 1970 before which nothing happened: long enough ago to be past every retention."""

RARE_TYPE = 20
RARE_ATTEMPTS = 50
WAITING = 10_000
"""How many of the scheduled tasks are due and how many are not; the same for the claimed ones and their leases."""

WIDE = 500
"""Steps of the last workflow."""

FUTURE = START * 10
"""When workflows and their steps ended, so that they are past no retention."""

RECURSION = (
    "(WITH RECURSIVE number (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM number WHERE n < {last})"
    " SELECT n FROM number)"
)
SERIES = "generate_series({first}::bigint, {last}) AS number (n)"


RANDOM_ORDERS = (
    "INSERT INTO dibs_random_orders (kind, position, used_at) VALUES ('random', 0, 0), ('weighted', 0, 0)"
    " ON CONFLICT (kind) DO NOTHING"
)
"""Both random orders are in use, and all tasks have numbers. On SQLite they have begun before: see `fill_sqlite`."""

TABLES = (
    "dibs_tasks", "dibs_history", "dibs_workflows", "dibs_steps", "dibs_edges", "dibs_finalization_attempts"
)  # fmt: skip
"""Those with many rows."""


class Shape:
    """Where the rows of each kind are in a database with so many pending and as many finished tasks."""

    def __init__(self, rows: int) -> None:
        self.pending = range(1, rows + 1)
        self.finished = range(rows + 1, 2 * rows + 1)
        self.due = range(2 * rows + 1, 2 * rows + WAITING + 1)
        self.scheduled = range(self.due.stop, self.due.stop + WAITING)
        self.expired = range(self.scheduled.stop, self.scheduled.stop + WAITING)
        self.claimed = range(self.expired.stop, self.expired.stop + WAITING)
        self.late = range(self.claimed.stop, self.claimed.stop + WAITING)
        self.flows = range(1, rows // 4 + 1)
        self.steps = range(self.late.stop, self.late.stop + rows // 50 + WIDE)
        self.wide = self.steps[-WIDE:]

    def inserts(self, source: str) -> list[str]:
        """The statements that fill the tables; `source` makes the numbers n from {first} to {last}."""
        final = "CASE n % 10 WHEN 0 THEN 'failed' WHEN 1 THEN 'cancelled' ELSE 'completed' END"
        kinds = [
            (
                self.pending,
                "'pending'",
                {
                    "key": "CASE WHEN n % 10 = 0 THEN 'key-' || n END",
                    "expires_at": f"CASE WHEN n % 10 = 3 THEN {FUTURE} + n END",
                },
            ),
            (self.finished, final, {"finished_at": f"{START} + n", "key": "'key-' || n", "token": "1"}),
            (self.due, "'scheduled'", {}),
            (self.scheduled, "'scheduled'", {"run_at": f"{FUTURE} + n"}),
            (self.expired, "'claimed'", {"lease_until": f"{START} + n", "token": "1", "worker_id": "'worker-1'"}),
            (self.claimed, "'claimed'", {"lease_until": f"{FUTURE} + n", "token": "1", "worker_id": "'worker-1'"}),
            (self.late, "'pending'", {"expires_at": f"{START} + n", "parked": "true"}),
            (self.steps, "'completed'", {"finished_at": f"{FUTURE} + n", "workflow_id": self._flow_of_step()}),
        ]
        middle = len(self.pending) // 2
        history = (
            "INSERT INTO dibs_history (task_id, event, to_state, token, at)"
            f" SELECT n, 'enqueued', 'pending', 0, {START} + n"
            f" FROM {source.format(first=self.finished.start, last=self.late.stop - 1)}"
        )
        tasks = (_insert(source, numbers, {"state": state, **values}, middle) for numbers, state, values in kinds)
        return [*tasks, RANDOM_ORDERS, history, *self._workflows(source)]

    def _flow_of_step(self) -> str:
        last, pairs = self.flows[-1], len(self.steps) - WIDE
        return (
            f"CASE WHEN n >= {self.wide.start} THEN {last} ELSE {last - pairs // 2} + (n - {self.steps.start}) / 2 END"
        )

    def _workflows(self, source: str) -> Iterator[str]:
        ended = "CASE WHEN n <= 20 THEN 'cancelled' WHEN n % 20 = 0 THEN 'failed' ELSE 'completed' END"
        columns = {
            "id": "n", "name": "'flow-' || (n % 7)", "state": ended, "on_failure": "'fail'",
            "queues": """'["default"]'""", "steps": "2", "ended": "2", "created_at": f"{START} + n",
            "finished_at": f"{FUTURE} + n"
        }  # fmt: skip
        yield _into("dibs_workflows", columns, source, self.flows)
        columns = {
            "task_id": "n", "workflow_id": self._flow_of_step(), "name": "'step-' || n", "kind": "'task'",
            "on_failure": "'fail'", "waits": "0", "passed": "true"
        }  # fmt: skip
        yield _into("dibs_steps", columns, source, self.steps)
        parent = f"CASE WHEN n > {self.wide.start} THEN {self.wide.start} ELSE n - 1 END"
        second = f"n > {self.wide.start} OR (n < {self.wide.start} AND (n - {self.steps.start}) % 2 = 1)"
        yield _into("dibs_edges", {"parent_id": parent, "child_id": "n"}, source, self.steps, second)
        columns = {
            "workflow_id": f"n % {len(self.flows)} + 1", "processor": "'p'", "claimed": "true", "reason": "'claimed'",
            "state": "'running'", "message": "''", "at": f"{START} + n"
        }  # fmt: skip
        yield _into("dibs_finalization_attempts", columns, source, range(3 * len(self.flows)))


def _insert(source: str, numbers: range, values: dict[str, str], middle: int) -> str:
    place = f"(n + 10000000 - {middle})"  # the same for the row in the middle, however many there are
    priority = f"({place} * 7919 % 21 - 10)"
    columns = {
        "id": "n",
        "type": f"CASE WHEN {place} BETWEEN 10000101 AND {10000100 + RARE_TYPE} THEN 'rare' "
        f"ELSE 'type-' || ({place} * 7919 / 3 % 4) END",
        "queue": f"CASE {place} * 7919 / 5 % 10 WHEN 0 THEN 'mail' WHEN 1 THEN 'media' ELSE 'default' END",
        "priority": priority,
        "params": "'{}'",
        "max_attempts": f"CASE WHEN {place} BETWEEN 10000001 AND {10000000 + RARE_ATTEMPTS} THEN 3 ELSE 1 END",
        "backoff_base": "1000000",
        "backoff_cap": "300000000",
        "created_at": f"{START} + n",
        "run_at": f"{START} + n",
        "ready_at": f"{START} + n",
        "random_key": "n * 2654435761 % 4294967296 / 4294967296.0",
        "weighted_key": "n * 2246822519 % 4294967296 / 4294967296.0 "
        f"/ CASE WHEN {priority} > 0 THEN {priority} + 1 ELSE 1 END",
        **values,
    }
    return _into("dibs_tasks", columns, source, numbers)


def _into(table: str, columns: dict[str, str], source: str, numbers: range, which: str = "true") -> str:
    selected = source.format(first=numbers.start, last=numbers.stop - 1)
    names, values = ", ".join(columns), ", ".join(columns.values())
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {selected} WHERE {which}"


def fill_sqlite(path: Path, rows: int) -> None:
    """A migrated file with that many pending and as many finished tasks."""
    with dibs.Dibs(f"sqlite:///{path}") as app:
        for order in ("random", "weighted"):  # a claim that begins a random order creates the indexes of the order
            app.claim("worker-1", order=order)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -262144", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {setting}")
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchall()
        statements = [
            *(f"DROP INDEX {name}" for name, _ in indexes),
            *Shape(rows).inserts(RECURSION),
            *(definition for _, definition in indexes),
        ]
        connection.execute("BEGIN")
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")


def fill_postgres(url: str, rows: int) -> None:
    """The same in a migrated database. The tables become unlogged, which no plan depends on, to save half the time."""
    settings = "-c synchronous_commit=off -c maintenance_work_mem=256MB"
    with psycopg.connect(url, autocommit=True, options=settings) as connection:
        indexes = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes"
            " WHERE tablename IN ('dibs_tasks', 'dibs_history') AND indexname NOT LIKE '%_pkey'"
        ).fetchall()
        with connection.transaction():
            for statement in (
                "ALTER TABLE dibs_tasks SET UNLOGGED",
                "ALTER TABLE dibs_history SET UNLOGGED",
                *(f"DROP INDEX {name}" for name, _ in indexes),
                *Shape(rows).inserts(SERIES),
                *(definition for _, definition in indexes),
                "SELECT setval('dibs_tasks_id_seq', (SELECT max(id) FROM dibs_tasks))",
            ):
                connection.execute(statement.encode())
        connection.execute(f"VACUUM (ANALYZE) {', '.join(TABLES)}".encode())


@contextmanager
def shared(folder: Path, name: str, make: Callable[[], None], remove: Callable[[], None]) -> Iterator[None]:
    """What `make` makes, made by the first process of a test run that wants it, removed by the last to leave it."""
    with closing(sqlite3.connect(folder / f"{name}-users.db", timeout=600, isolation_level=None)) as users:
        users.execute("CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY)")
        with _alone(users) as others:
            if others == 0:
                make()
            me = users.execute("INSERT INTO users DEFAULT VALUES").lastrowid
        yield
        with _alone(users) as others:
            users.execute("DELETE FROM users WHERE id = ?", [me])
            if others == 1:
                remove()


@contextmanager
def _alone(users: sqlite3.Connection) -> Iterator[int]:
    users.execute("BEGIN EXCLUSIVE")  # the others wait here while the first one makes it
    try:
        yield users.execute("SELECT count(*) FROM users").fetchone()[0]
        users.execute("COMMIT")
    finally:
        if users.in_transaction:
            users.execute("ROLLBACK")
