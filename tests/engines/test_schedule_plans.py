"""The search for an unfinished task of a schedule uses its own index, however many other tasks have keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg

import dibs
from dibs.store.sql import SqlFiles
from tests.helpers.databases import sqlite_path


def test_the_unfinished_task_of_a_schedule_is_found_by_the_index_of_ticks(
    url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(url)
    app.set_schedule("some", "@hourly", "report", overlap="queue")
    app.enqueue_many([dibs.NewTask("report", key=f"key-{number}") for number in range(2000)])
    app.enqueue_many([dibs.NewTask("report", key=f"schedule:other:{number}") for number in range(500)])
    assert "dibs_tasks_ticks" in (_postgres_plan(url) if url.startswith("postgresql") else _sqlite_plan(url))


def _postgres_plan(url: str) -> str:
    text = SqlFiles("dibs.store.postgres", "pyformat").text("due_schedules")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE dibs_tasks")
        return "\n".join(row[0] for row in connection.execute("EXPLAIN " + text, {"now": None}))  # type: ignore[arg-type]


def _sqlite_plan(url: str) -> str:
    text = SqlFiles("dibs.store.sqlite").text("due_schedules")
    with closing(sqlite3.connect(sqlite_path(url))) as connection:
        return "\n".join(row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, {"now": 1}))
