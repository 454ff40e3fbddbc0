"""The rows of all tables, for tests that assert that nothing changed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any

from tests.helpers import postgres
from tests.helpers.databases import Rows, sqlite_path

TABLES = (
    "dibs_tasks",
    "dibs_history",
    "dibs_history_pruned",
    "dibs_pauses",
    "dibs_random_orders",
    "dibs_workers",
    "dibs_task_types",
    "dibs_schedules",
    "dibs_keys",
    "dibs_rates",
    "dibs_kept_keys",
    "dibs_workflows",
    "dibs_steps",
    "dibs_edges",
    "dibs_finalization_attempts",
    "dibs_checkpoints",
    "dibs_log_lines",
    "dibs_sessions",
    "dibs_retention",
    "dibs_retention_changes",
    "dibs_limits",
    "dibs_flow_settings",
    "dibs_backlogs",
    "dibs_counters",
    "dibs_groups",
    "dibs_signals",
    "dibs_flow",
)


def read(url: str) -> dict[str, Rows]:
    """Every row of every table of dibs, with all its columns, also columns that no call returns."""
    if not url.startswith("sqlite"):
        with postgres.session(url) as session:
            return _read(lambda select: session.execute(select, prepare=False))  # a test may change the columns
    with contextlib.closing(sqlite3.connect(sqlite_path(url))) as connection:
        return _read(connection.execute)


def _read(execute: Callable[[str], Any]) -> dict[str, Rows]:
    return {table: sorted(execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}
