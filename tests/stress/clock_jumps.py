"""Clocks jump by an hour, forwards and backwards: the clocks of clients, of the server, and of the database machine.

Promise 10. The clock of a client must not matter. If the clock of the database jumps, leases end early or late and a
task may run again, but is never completed twice. On SQLite there is one clock for all: that of the machine.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import dibs
from tests.helpers.postgres import Cluster, new_data_folder
from tests.helpers.servers import ServerProcess, server_process
from tests.helpers.waiting import until
from tests.stress.clocks import HOUR, UNDER, Clock
from tests.stress.scenario import Scenario, Stage, is_settled, main

LEASE, UPKEEP = 1.0, 0.3
JUMPS = (HOUR, -HOUR, 0.0)


def play(stage: Stage) -> None:
    host = stage.enter(Clock())
    theirs = host if stage.engine == "sqlite" else stage.enter(Clock())
    set_up(stage, host, theirs)
    ours: dict[str, Any] = {"under": UNDER, "env": theirs.env}
    leased = {**ours, "lease": LEASE, "upkeep_every": UPKEEP}
    naps = stage.senders(1, naps=0.01, batch=5, backlog=100, **ours)
    workers = stage.start_processes(1, kind="worker", **leased)
    plain_workers = stage.start_processes(1 if stage.short else 2, queues=["queue-0", "queue-1"], **leased)
    for number in stage.rounds():
        clock = host if stage.engine == "sqlite" or number % 2 else theirs
        clock.turn(JUMPS[number % 3] if stage.short else stage.chance.choice(JUMPS))
        stage.tally.injected += 1
        for group in (plain_workers, workers):
            for member in group.members:
                member.wait_for(2 if stage.short else stage.chance.randint(2, 50))
    naps.stop()
    plain_workers.stop()
    workers.stop()
    end_everything(stage, host)


def set_up(stage: Stage, host: Clock, theirs: Clock) -> None:
    """Let the database live on a machine with that clock; of servers before PostgreSQL the clock is that of clients."""
    if stage.engine == "postgres":
        stage.database = stage.url = stage.enter(Cluster(Path(new_data_folder()), **host.env)).url
    elif stage.engine != "sqlite":
        clock = host if stage.engine == "http" else theirs
        stage.url = stage.enter(served(stage, clock)).url


def served(stage: Stage, clock: Clock) -> AbstractContextManager[ServerProcess]:
    return server_process(stage.database, stage.folder, "--no-keys", "--no-access-log", under=UNDER, **clock.env)


def end_everything(stage: Stage, host: Clock) -> None:
    """What was claimed or put off by a clock that was an hour ahead is due when that hour has come."""
    host.turn(2 * HOUR)
    healthy = stage.start_processes(1, sends=False, mixed=False, lease=LEASE, under=UNDER, env=host.env)
    with dibs.Dibs(stage.database) as app:
        until(lambda: is_settled(app), 60)
    healthy.stop()


SCENARIO = Scenario(
    name="clock_jumps",
    fault="clocks jump by an hour, forwards and backwards: of clients, and of the database's machine",
    promises=(2, 3, 4, 10),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
    needs=("faketime",),
)

if __name__ == "__main__":
    main(SCENARIO)
