"""After the death of a process in a transaction, the row of the user and its task are both there, or neither is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers.connections import KINDS
from tests.helpers.databases import run_sql
from tests.matrix import is_stress

ROOT = Path(__file__).parents[2]

COUNTS = """
SELECT (SELECT count(*) FROM orders WHERE CAST(id AS text) NOT IN (SELECT key FROM dibs_tasks)),
       (SELECT count(*) FROM dibs_tasks WHERE key NOT IN (SELECT CAST(id AS text) FROM orders)),
       (SELECT count(*) FROM orders)"""
"""Rows without a task, tasks without a row, and rows, in one snapshot: the last commit may still be under way."""


def test_rows_and_tasks_of_killed_processes_are_both_there_or_neither(
    app: Any, url: str, engine: str, mode: str
) -> None:
    rounds = 15 if is_stress() else 3
    app.queues()
    run_sql(url, "CREATE TABLE orders (id integer PRIMARY KEY)")
    command = [sys.executable, "-m", "tests.connections.killed", url, mode, str(rounds)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=100)
    [(without_task, without_row, rows)] = run_sql(url, COUNTS)
    run_sql(url, "DROP TABLE orders")
    assert (without_task, without_row) == (0, 0)
    assert rows >= rounds * len(KINDS[engine, mode])
