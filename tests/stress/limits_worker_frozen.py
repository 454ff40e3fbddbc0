"""Workers are frozen past their leases: permits come back with the recovery, and not again with a late outcome.

Promise 11. The play is that of `worker_frozen`, with limits that overlap, groups and a fair queue.
"""

from __future__ import annotations

from tests.stress import worker_frozen
from tests.stress.limited import Limits
from tests.stress.scenario import Scenario, Stage, main


def play(stage: Stage) -> None:
    stage.limits = Limits()
    worker_frozen.play(stage)


SCENARIO = Scenario(
    name="limits_worker_frozen",
    fault="a worker is frozen past its lease with permits, and reports after its tasks were recovered",
    promises=(11,),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
