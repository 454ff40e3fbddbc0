"""Everything restarts together: fifty workers on a hundred thousand tasks that became due during an outage.

Promises 2 to 5. Some of the tasks are still claimed by dead workers, and some were scheduled; during the rush all
workers are killed and started again.
"""

from __future__ import annotations

import dibs
from dibs import Event, NewTask
from dibs.observe.verify import Acknowledged
from tests.helpers.waiting import until
from tests.stress.handlers import nap
from tests.stress.process_group import ProcessGroup
from tests.stress.scenario import Scenario, Stage, main

SHORT, BRIEF, LONG = (4, 300), (50, 10_000), (50, 100_000)
"""Workers, tasks; brief where there is less time than ENOUGH seconds."""

ENOUGH = 20.0


def play(stage: Stage) -> None:
    app, (workers, tasks) = stage.open(), size(stage)
    lease, upkeep, poll = (1.0, 0.3, 0.1) if stage.short else (10.0, 2.0, 1.0)
    stage.tally.promised = lease + upkeep
    await_many(app, stage, tasks)
    group = stage.start_processes(0, kind="worker", lease=lease, upkeep_every=upkeep, poll=poll, concurrency=2)
    for _ in stage.rounds():
        goal = group.reply_count() + tasks // 10
        stage.tally.injected += rush(group, workers)
        until(lambda goal=goal: restarted(group).reply_count() >= goal or is_empty(app), 120)  # type: ignore[misc]
        if is_empty(app):
            await_many(app, stage, tasks)


def size(stage: Stage) -> tuple[int, int]:
    if stage.seconds is None:
        return SHORT
    return LONG if stage.seconds >= ENOUGH else BRIEF


def restarted(group: ProcessGroup) -> ProcessGroup:
    """With the dead at work again: a server that has no connection left for a worker turns it away."""
    group.restart_the_dead()
    return group


def rush(group: ProcessGroup, count: int) -> int:
    """All at once, after all were gone; how many."""
    while group.members:
        group.kill(group.members[-1])
    return len(group.start(count))


def await_many(app: dibs.Dibs, stage: Stage, count: int) -> None:
    """What has come together: tasks that wait, tasks that came due, and some in the plain workers of the dead."""
    for begin in range(0, count, 1000):
        new = [a_task(stage, number) for number in range(begin, min(begin + 1000, count))]
        stage.tally.acknowledge(*(Acknowledged(task.id, 0, Event.ENQUEUED) for task in app.enqueue_many(new)))
    claims = app.claim_many("dead", min(1000, count // 10), lease=0.05)
    stage.tally.acknowledge(*(Acknowledged(claim.task_id, claim.token, Event.CLAIMED, "dead") for claim in claims))


def a_task(stage: Stage, number: int) -> NewTask:
    return nap.options(delay=0.05 if number % 2 else 0).new(folder=str(stage.folder))


def is_empty(app: dibs.Dibs) -> bool:
    return app.stats().depth.keys() <= {"completed"}


SCENARIO = Scenario(
    name="restart_rush",
    fault="50 workers and 100,000 due tasks after a restart",
    promises=(2, 3, 4, 5),
    engines=("sqlite", "postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
