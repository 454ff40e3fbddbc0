"""Replies are lost after COMMIT: a claim or an outcome that is repeated takes or returns its permits once.

Promise 11. The play is that of `reply_dropped`, with limits that overlap, groups and a fair queue.
"""

from __future__ import annotations

from tests.stress import reply_dropped
from tests.stress.limited import Limits
from tests.stress.scenario import Scenario, Stage, main


def play(stage: Stage) -> None:
    stage.limits = Limits()
    reply_dropped.play(stage)


SCENARIO = Scenario(
    name="limits_reply_dropped",
    fault="replies to claims and outcomes of limited tasks are lost after COMMIT",
    promises=(11,),
    engines=("postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
