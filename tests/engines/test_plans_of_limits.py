"""Reads about limits stay bounded beside 100,000 waiting tasks in 10,000 groups, and as many tasks that have ended.

A figure reads each waiting task once, in one index, and one row of each group; a task that does not wait is not read.
A peek reads as few backlogs as a claim.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs import NewTask
from dibs.model.claim import ClaimRequest, Filters
from dibs.store.open import open_store
from dibs.store.operation import Operation
from dibs.store.sqlite.connection import connect
from tests.helpers.databases import run_sql, sqlite_path
from tests.helpers.limiting import claim, put, put_queue
from tests.helpers.plans import Work, explain_postgres, explain_sqlite

GROUPS = 10_000
EACH = 10

OPERATIONS: dict[str, Callable[[Any, int], Operation[Any]]] = {
    "list_limits": lambda store, task_id: store.limits.list_limits(),
    "limit_groups": lambda store, task_id: store.limits.limit_groups("tenant", 100, "g5"),
    "groups": lambda store, task_id: store.limits.groups("fair", 100, "g5"),
    "explain": lambda store, task_id: store.tasks.explain(task_id),
}


@pytest.fixture
def last_id(url: str) -> int:
    """A store with that many tasks; the id of the last one."""
    app = dibs.Dibs(url)
    put(app, "tenant", max=1, per="group")
    put_queue(app, "fair", fair=True, limits=["tenant"])
    for first in range(0, GROUPS, 1000):
        app.enqueue_many([NewTask("charge", queue="fair", group=f"g{first + n}") for n in range(1000)])
    columns = [row[0] for row in run_sql(url, COLUMNS[url.partition(":")[0]]) if row[0] not in ("id", "attempts_left")]
    names = ", ".join(columns)
    numbers = f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {EACH - 1})"
    ended = [{"state": "'completed'", "backlog": "NULL", "parked": "false"}.get(column, column) for column in columns]
    run_sql(
        url,
        f"{numbers} INSERT INTO dibs_tasks ({names}) SELECT {names} FROM dibs_tasks, numbers ORDER BY n, id",
        f"INSERT INTO dibs_tasks ({names}) SELECT {', '.join(ended)} FROM dibs_tasks",
        "ANALYZE",
    )
    [(task_id,)] = run_sql(url, "SELECT max(id) FROM dibs_tasks WHERE state = 'pending'")
    return int(task_id)


COLUMNS = {
    "sqlite": "SELECT name FROM pragma_table_info('dibs_tasks')",
    "postgresql": "SELECT column_name FROM information_schema.columns WHERE table_name = 'dibs_tasks'",
}


def test_figures_read_each_waiting_task_once(url: str, last_id: int) -> None:
    store = open_store(url)
    for when in ("before the first claim", "after a claim"):
        for name, make in OPERATIONS.items():
            works = explained(url, make(store, last_id))
            for work in works:
                print(when, name, work.name, f"{work.rows:.0f} rows")
            assert_reads_once(url, works)
        claim(dibs.Dibs(url), 100)


def assert_reads_once(url: str, works: list[Work]) -> None:
    """PostgreSQL may read all tasks at once instead of one of each group, as long as that is cheaper."""
    for work in works:
        if url.startswith("sqlite"):
            assert work.rows <= 60 * GROUPS * EACH, work
            assert not [step for step in work.plan if step.startswith("SCAN dibs_tasks") and "INDEX" not in step], work
        else:
            assert work.rows <= 8 * GROUPS * EACH, work
            assert work.plan["Total Cost"] <= 8 * GROUPS, work


def explained(url: str, operation: Operation[Any]) -> list[Work]:
    if url.startswith("sqlite"):
        with contextlib.closing(connect(Path(sqlite_path(url)))) as connection:
            return explain_sqlite(connection, operation, time.time_ns() // 1000)
    with psycopg.connect(url, autocommit=True) as connection:
        return explain_postgres(connection, operation)


def test_a_peek_reads_as_few_rows_as_a_claim(url: str, last_id: int) -> None:
    store = open_store(url)
    for _ in range(3):  # register all signals, and fill the counters
        claim(dibs.Dibs(url), 1000)
    peek, claimed = (
        sum(work.rows for work in explained(url, operation))
        for operation in (store.queue.peek(Filters(count=10)), store.queue.claim(ClaimRequest(worker_id="w", count=10)))
    )
    assert peek <= 1.5 * claimed + 500
