"""Workers are killed with kill -9 at random times: other workers take over, no task is lost, none is completed twice.

Promises 1 to 5. The workers also enqueue, so that each kill may hit an enqueue, a claim, a renewal or an outcome.
"""

from __future__ import annotations

from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 1.0, 0.3


def play(stage: Stage) -> None:
    stage.tally.promised = LEASE + UPKEEP
    plain_workers = stage.start_processes(3, lease=LEASE, upkeep_every=UPKEEP)
    for _ in stage.rounds():
        plain_workers.wait_for(stage.chance.randint(5, 25 if stage.short else 150))
        plain_workers.replace(plain_workers.kill())
        stage.tally.injected += 1
    plain_workers.wait_for(10)


SCENARIO = Scenario(
    name="worker_killed",
    fault="a worker is killed with kill -9 at random moments",
    promises=(1, 2, 3, 4, 5),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
