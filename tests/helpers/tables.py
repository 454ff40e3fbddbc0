"""The rows as they lie in the database, for tests that say: nothing changed."""

from __future__ import annotations

from tests.helpers.databases import Rows, run_sql

TABLES = ("dibs_tasks", "dibs_history", "dibs_queues", "dibs_races", "dibs_workers", "dibs_task_types")


def read(url: str) -> dict[str, Rows]:
    """Every row of every table of dibs, with all its columns, also those that no verb shows."""
    return {table: sorted(run_sql(url, f"SELECT * FROM {table}"), key=repr) for table in TABLES}
