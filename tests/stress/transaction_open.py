"""A transaction stays open for minutes: vacuum can remove nothing, and claims pass over dead index entries.

Promises 2 and 3, and the cost of a claim before, during and after, in the notes. PostgreSQL keeps the index entries of
finished tasks while that transaction could still see them, so that claims slow down with every completed task. After
its end and a vacuum, claims must be as fast as before.
"""

from __future__ import annotations

import statistics
import time

import psycopg

import dibs
from tests.helpers.databases import run_sql
from tests.stress.scenario import Scenario, Stage, main

LOOKS = 30
BUSY = "queue-0"
"""Where the plain workers work, and so where the dead rows are."""

AFTERWARDS_AT_MOST = 5.0
"""Times the cost of a claim before (or a few milliseconds, of a machine that is busy with other things)."""


def play(stage: Stage) -> None:
    app = stage.open()
    stage.tally.notes["claim_ms_before"] = cost_of_a_claim(app)
    with psycopg.connect(stage.database) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT count(*), txid_current() FROM dibs_tasks")  # a snapshot, and a transaction number
        stage.tally.injected += 1
        plain_workers = stage.start_processes(3, lease=2.0)
        for _ in stage.rounds():
            plain_workers.wait_for(100)
        plain_workers.stop()
        run_sql(stage.database, "VACUUM dibs_tasks")
        stage.tally.notes["dead_rows"] = dead_rows(stage.database)
        stage.tally.notes["claim_ms_during"] = cost_of_a_claim(app)
    run_sql(stage.database, "VACUUM dibs_tasks")
    stage.tally.notes["dead_rows_after"] = dead_rows(stage.database)
    stage.tally.notes["claim_ms_after"] = cost_of_a_claim(app)
    judge(stage)


def cost_of_a_claim(app: dibs.Dibs) -> float:
    """Milliseconds, the median of some."""
    spent = []
    for _ in range(LOOKS):
        app.enqueue("t", queue=BUSY)
        began = time.perf_counter()
        claim = app.claim("looker", queues=[BUSY])
        spent.append(time.perf_counter() - began)
        assert claim is not None
        app.complete(claim, {"token": claim.token})
    return round(statistics.median(spent) * 1000, 2)


def dead_rows(database: str) -> int:
    """Of the tasks, as the statistics see them."""
    [(count,)] = run_sql(database, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'dibs_tasks'")
    return int(count)


def judge(stage: Stage) -> None:
    notes = stage.tally.notes
    if notes["claim_ms_after"] > max(AFTERWARDS_AT_MOST * notes["claim_ms_before"], 20.0):
        stage.tally.problems.append(f"claims did not recover from an open transaction: {notes}")


SCENARIO = Scenario(
    name="transaction_open",
    fault="a transaction is held open while tasks come and go, so that vacuum cleans up nothing",
    promises=(2, 3),
    engines=("postgres", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
