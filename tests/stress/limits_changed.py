"""The maximum of a limit goes from 5 to 1 to 5 while tasks run; the limit is removed and set again; workers die.

Promise 11. No claim is above the maximum of its time; lowering stops nothing that runs; a limit that is set again
counts the tasks that began while it was removed.
"""

from __future__ import annotations

import msgspec

from tests.stress.limited import CARRIED, Limits
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 1.0, 0.3
ONE = msgspec.structs.replace(CARRIED, max=1)


def play(stage: Stage) -> None:
    stage.limits = limits = Limits()
    plain_workers = stage.start_processes(3, lease=LEASE, upkeep_every=UPKEEP, linger=0.02)
    for _ in stage.rounds():
        for change in (ONE, CARRIED, None, ONE, CARRIED):
            plain_workers.wait_for(5 if stage.short else stage.chance.randint(5, 60))
            if change is None:
                limits.remove(CARRIED.name)
            else:
                limits.set(change)
            stage.tally.injected += 1
        plain_workers.replace(plain_workers.kill())
    plain_workers.wait_for(10)


SCENARIO = Scenario(
    name="limits_changed",
    fault="the maximum of a limit changes from 5 to 1 to 5 while tasks run, and the limit is removed and set again",
    promises=(11,),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
