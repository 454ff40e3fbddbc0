"""A network partition: others take over the permits of clients that are cut off; late outcomes return none twice.

Promise 11. The play is that of `partition`, with limits that overlap, groups and a fair queue.
"""

from __future__ import annotations

from tests.stress import partition
from tests.stress.limited import Limits
from tests.stress.scenario import Scenario, Stage, main


def play(stage: Stage) -> None:
    stage.limits = Limits()
    partition.play(stage)


SCENARIO = Scenario(
    name="limits_partition",
    fault="clients that hold permits are cut off until their leases have run out",
    promises=(11,),
    engines=("postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
