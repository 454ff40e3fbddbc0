"""PgBouncer in transaction mode with two sessions for all clients; now and then it is killed and started again.

Promises 1 to 4, 6 and 9. Every transaction may run in another session: nothing may depend on the session.
"""

from __future__ import annotations

from tests.helpers.pooler import Pooler
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 1.5, 0.3


def play(stage: Stage) -> None:
    pooler = stage.enter(Pooler(stage.database))
    naps = stage.senders(1, url=pooler.url, naps=0.001, batch=5, backlog=200)
    workers = stage.start_processes(1, kind="worker", url=pooler.url, lease=LEASE, upkeep_every=UPKEEP)
    plain_workers = stage.start_processes(
        3, url=pooler.url, lease=LEASE, upkeep_every=UPKEEP, queues=["queue-0", "queue-1"]
    )
    for number in stage.rounds():
        plain_workers.wait_for(20 if stage.short else stage.chance.randint(50, 300))
        if number % 2:
            pooler.kill()
            pooler.start()
        stage.tally.injected += 1
        for group in (plain_workers, workers, naps):
            for member in group.members:
                member.wait_for(2)


SCENARIO = Scenario(
    name="pgbouncer",
    fault="all clients share two sessions behind PgBouncer in transaction mode, which is also killed",
    promises=(1, 2, 3, 4, 6, 9),
    engines=("postgres",),
    play=play,
    needs=("pgbouncer",),
)

if __name__ == "__main__":
    main(SCENARIO)
