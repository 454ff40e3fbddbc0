"""PostgreSQL dies every few seconds (kill -9 of the postmaster or a backend, a power cut, a restart) and starts again.

Promises 1 to 4, 6 and 9. Acknowledged writes were on the disk. The outcome of a request at that time is unknown; its
repetition gets the same task, claim and outcome. Workers continue without help.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.helpers.databases import run_sql
from tests.helpers.postgres import Cluster, new_data_folder
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 2.0, 0.3


def play(stage: Stage) -> None:
    cluster = stage.enter(Cluster(Path(new_data_folder())))
    stage.database = cluster.url
    if stage.engine == "postgres":
        stage.url = cluster.url
    naps = stage.senders(1, naps=0.001, batch=5, backlog=200)
    workers = stage.start_processes(1, kind="worker", lease=LEASE, upkeep_every=UPKEEP)
    plain_workers = stage.start_processes(2, lease=LEASE, upkeep_every=UPKEEP, queues=["queue-0", "queue-1"])
    for number in stage.rounds():
        plain_workers.wait_for(5 if stage.short else stage.chance.randint(20, 200))
        die(cluster, "postmaster" if number == 0 else stage.chance.choice(DEATHS))
        stage.tally.injected += 1
        for group in (plain_workers, workers, naps):
            for member in group.members:
                member.wait_for(2)
        if stage.short:
            return


DEATHS = ("postmaster", "backend", "immediate", "fast")


def die(cluster: Cluster, how: str) -> None:
    """In this way; the server answers again when this returns."""
    if how == "backend":
        kill_a_backend(cluster.url)  # the postmaster then ends all the others, and recovers
    elif how == "postmaster":
        cluster.kill()
    else:
        cluster.stop(how)
    cluster.start()


def kill_a_backend(database: str) -> None:
    """Of any client."""
    others = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    for (process,) in run_sql(database, f"{others} ORDER BY random() LIMIT 1"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


SCENARIO = Scenario(
    name="postmaster_killed",
    fault="PostgreSQL dies every few seconds: its postmaster, a backend, all of it, or in good order",
    promises=(1, 2, 3, 4, 6, 9),
    engines=("postgres", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
