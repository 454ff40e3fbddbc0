"""PostgreSQL dies and starts again: after the crash the counters agree with the tasks.

Promise 11. The play is that of `postmaster_killed`, with limits that overlap, groups and a fair queue.
"""

from __future__ import annotations

from tests.stress import postmaster_killed
from tests.stress.limited import Limits
from tests.stress.scenario import Scenario, Stage, main


def play(stage: Stage) -> None:
    stage.limits = Limits()
    postmaster_killed.play(stage)


SCENARIO = Scenario(
    name="limits_postmaster_killed",
    fault="PostgreSQL dies every few seconds while tasks hold permits",
    promises=(11,),
    engines=("postgres", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
