"""The rows as they lie in the database, for tests that say: nothing changed."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import psycopg

from tests.helpers.databases import Rows, sqlite_path

TABLES = (
    "dibs_tasks",
    "dibs_history",
    "dibs_queues",
    "dibs_races",
    "dibs_workers",
    "dibs_task_types",
    "dibs_schedules",
    "dibs_keys",
    "dibs_rates",
    "dibs_workflows",
    "dibs_steps",
    "dibs_edges",
    "dibs_finalization_attempts",
    "dibs_checkpoints",
    "dibs_sessions",
    "dibs_retention",
    "dibs_retention_changes",
)


def read(url: str) -> dict[str, Rows]:
    """Every row of every table of dibs, with all its columns, also those that no verb shows."""
    connection: Any = sqlite3.connect(sqlite_path(url)) if url.startswith("sqlite") else psycopg.connect(url)
    with contextlib.closing(connection):
        return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}
