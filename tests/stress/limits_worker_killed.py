"""Workers are killed with kill -9: the permits of their tasks come back with the recovery, and no limit is exceeded.

Promise 11. The play is that of `worker_killed`, with limits that overlap, groups and a fair queue.
"""

from __future__ import annotations

from tests.stress import worker_killed
from tests.stress.limited import Limits
from tests.stress.scenario import Scenario, Stage, main


def play(stage: Stage) -> None:
    stage.limits = Limits()
    worker_killed.play(stage)


SCENARIO = Scenario(
    name="limits_worker_killed",
    fault="a worker is killed with kill -9 while its tasks hold permits of overlapping limits",
    promises=(11,),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
