"""The tasks are locked (LOCK TABLE on PostgreSQL, the write lock of a SQLite file) for half a minute and more.

Promises 1 to 5. All calls wait, some give up and are repeated, every lease runs out; then everything continues.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator

import psycopg

from dibs.store.sqlite.writer import BUSY_TIMEOUT
from tests.helpers.databases import sqlite_path
from tests.helpers.waiting import until
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 1.0, 0.3


def play(stage: Stage) -> None:
    naps = stage.senders(1, naps=0.01, batch=5, backlog=100)
    workers = stage.start_processes(2, kind="worker", lease=LEASE, upkeep_every=UPKEEP)
    plain_workers = stage.start_processes(1, lease=LEASE, upkeep_every=UPKEEP, queues=["queue-0", "queue-1"])
    for number in stage.rounds():
        workers.wait_for(5)
        with locked(stage.database):
            stage.tally.injected += 1
            began = time.monotonic()
            until(lambda: time.monotonic() - began > seconds(stage, number), 60)  # noqa: B023 (called at once)
        for group in (plain_workers, workers, naps):
            for member in group.members:
                member.wait_for(2)


def seconds(stage: Stage, number: int) -> float:
    """Longer than the leases; in a long run also longer than the time for which calls wait for the lock."""
    if stage.short:
        return LEASE + UPKEEP
    return (LEASE + UPKEEP, 5.0, BUSY_TIMEOUT + 2)[number % 3]


@contextlib.contextmanager
def locked(database: str) -> Iterator[None]:
    """No other connection can change a task; on PostgreSQL, none can read one."""
    if database.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(sqlite_path(database), isolation_level=None, timeout=30)) as somebody:
            somebody.execute("BEGIN IMMEDIATE")
            yield
            somebody.execute("ROLLBACK")
    else:
        with psycopg.connect(database) as other, other.transaction():
            other.execute("LOCK TABLE dibs_tasks IN ACCESS EXCLUSIVE MODE")
            yield


SCENARIO = Scenario(
    name="table_locked",
    fault="another program locks the tasks for up to 32 seconds",
    promises=(1, 2, 3, 4, 5),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
