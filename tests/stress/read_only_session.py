"""Every session ends, and new sessions are read-only, as on a demoted node; soon the server can be written again.

Promises 1 to 4, 6 and 9. A write that is refused as read-only changed nothing. Its session is closed, because it would
stay read-only, and the call is repeated on another session.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.conninfo import conninfo_to_dict

from tests.helpers.databases import run_sql
from tests.helpers.waiting import until
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 2.0, 0.3

LONGEST = 8.0
"""Seconds for which the database stays read-only, at most: less than a call's patience, and more than every lease."""

OTHERS = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"


def play(stage: Stage) -> None:
    naps = stage.senders(1, naps=0.001, batch=5, backlog=200)
    workers = stage.start_processes(1, kind="worker", lease=LEASE, upkeep_every=UPKEEP)
    plain_workers = stage.start_processes(2, lease=LEASE, upkeep_every=UPKEEP, queues=["queue-0", "queue-1"])
    for _ in stage.rounds():
        plain_workers.wait_for(5 if stage.short else stage.chance.randint(20, 200))
        workers.wait_for(2)
        with read_only(stage.database):
            end_sessions(stage.database)
            stage.tally.injected += 1
            began, seconds = time.monotonic(), 0.5 if stage.short else stage.chance.uniform(0.5, LONGEST)
            until(lambda: has_sessions(stage.database) and time.monotonic() - began > seconds, 60)  # noqa: B023
        for group in (plain_workers, workers, naps):
            for member in group.members:
                member.wait_for(2)


@contextmanager
def read_only(database: str) -> Iterator[None]:
    """What connects in here cannot write for as long as its session lives."""
    name = conninfo_to_dict(database)["dbname"]
    run_sql(database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        yield
    finally:
        run_sql(database, "SET default_transaction_read_only = off", f"ALTER DATABASE {name} RESET ALL")


def end_sessions(database: str) -> None:
    """All but the one that asks."""
    run_sql(database, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {OTHERS}")


def has_sessions(database: str) -> bool:
    """True once clients have connected again."""
    return run_sql(database, f"SELECT count(*) > 1 FROM pg_stat_activity WHERE {OTHERS}") == [(True,)]


SCENARIO = Scenario(
    name="read_only_session",
    fault="every session ends, and those that follow are read-only for up to 8 seconds",
    promises=(1, 2, 3, 4, 6, 9),
    engines=("postgres", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
