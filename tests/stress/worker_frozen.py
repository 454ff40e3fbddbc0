"""Workers are frozen past the end of their leases: other workers have taken over, and late writes are refused.

Promises 2 to 5. A frozen worker holds its claims and does not notice the time that has passed.
"""

from __future__ import annotations

import dibs
from tests.helpers.waiting import until
from tests.stress.process_group import Member
from tests.stress.reply_log import REFUSED
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 0.5, 0.2
TRIES = 10
"""A worker that is frozen between two batches holds no claim, and has no stale outcome to send."""


def play(stage: Stage) -> None:
    stage.tally.promised, stage.tally.must_refuse = LEASE + UPKEEP, True
    plain_workers = stage.start_processes(3, lease=LEASE, upkeep_every=UPKEEP, linger=0.02)
    app = stage.open()
    for _ in stage.rounds():
        frozen = plain_workers.pick()
        refused = frozen.kinds().get(REFUSED, 0)
        for _ in range(TRIES):
            freeze(stage, app, frozen)
            if frozen.kinds().get(REFUSED, 0) > refused:
                break


def freeze(stage: Stage, app: dibs.Dibs, member: Member) -> None:
    """Until others have taken over what it held, and then until it has spoken again."""
    member.wait_for(stage.chance.randint(2, 10))
    member.freeze(stage.database)
    stage.tally.injected += 1
    until(lambda: holds_nothing(app, member.name), 60)
    member.thaw()
    member.wait_for(2)


def holds_nothing(app: dibs.Dibs, worker: str) -> bool:
    """True once all that it had has been taken back."""
    return not any(task.worker_id == worker for task in app.list_tasks(state="claimed", limit=1000))


SCENARIO = Scenario(
    name="worker_frozen",
    fault="a worker is frozen (SIGSTOP) past its lease, and thawed",
    promises=(2, 3, 4, 5),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
