"""The primary freezes (SIGSTOP), its synchronous standby is promoted, and clients that name both continue with that.

Promises 1 to 4, 6 and 9. A frozen server still acknowledges packets, so that only a bound on replies detects it.
Acknowledged writes had reached the standby; the outcome of running requests is unknown, and a repetition finds it.
"""

from __future__ import annotations

from tests.helpers.standby import Pair
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 2.0, 0.3

IMPATIENT = "&reply_timeout=2&connect_timeout=2"
"""The bounds of clients. The defaults are 30 and 10 seconds: with them a round would take most of a minute."""


def play(stage: Stage) -> None:
    pair = stage.enter(Pair())
    stage.database = f"{pair.url}{IMPATIENT}"
    if stage.engine == "postgres":
        stage.url = stage.database
    naps = stage.senders(1, naps=0.001, batch=5, backlog=200)
    workers = stage.start_processes(1, kind="worker", lease=LEASE, upkeep_every=UPKEEP)
    plain_workers = stage.start_processes(2, lease=LEASE, upkeep_every=UPKEEP, queues=["queue-0", "queue-1"])
    for _ in stage.rounds():
        plain_workers.wait_for(5 if stage.short else stage.chance.randint(20, 200))
        workers.wait_for(2)
        pair.fail_over()
        stage.tally.injected += 1
        for group in (plain_workers, workers, naps):
            for member in group.members:
                member.wait_for(2)
        if stage.short:
            return
        pair.repair()


SCENARIO = Scenario(
    name="server_frozen",
    fault="the PostgreSQL primary freezes, and its synchronous standby is promoted",
    promises=(1, 2, 3, 4, 6, 9),
    engines=("postgres", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
