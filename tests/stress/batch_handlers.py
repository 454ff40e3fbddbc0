"""Workers with batch handlers are killed or frozen in the middle of a call: each task of the batch is tried again.

Promises 2 to 5. Child processes are also killed, at the timeout of their tasks. No task is lost, none is completed
twice, and the outcomes of a frozen worker are refused one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

import dibs
from dibs import Task
from tests.helpers.waiting import until
from tests.stress.checking import stored
from tests.stress.handlers import Nap, doze_together, nap_together, nap_together_apart
from tests.stress.process_group import Member, ProcessGroup
from tests.stress.scenario import Scenario, Stage, main
from tests.stress.worker_frozen import holds_nothing

LEASE, UPKEEP = 1.0, 0.2
HANDLERS = (nap_together, doze_together, nap_together_apart)
LENGTHS = (0.0, 0.05, 0.3)
FEW = 100
LATE = ("came too late", "the claim is lost")
"""What a worker logs about a task that another worker has taken over."""


def play(stage: Stage) -> None:
    stage.tally.promised = LEASE + UPKEEP
    app = stage.open()
    workers = stage.start_processes(2, kind="worker", lease=LEASE, upkeep_every=UPKEEP, concurrency=2, children=1)
    thawed: list[Member] = []
    for number in stage.rounds():
        if app.stats().depth.get("pending", 0) < FEW:
            send(app, stage)
        member = workers.members[number % 2]
        member.wait_for(stage.chance.randint(1, 3))  # calls that have begun
        stage.tally.injected += 1
        if number % 2:
            workers.replace(workers.kill(member))
        else:
            freeze(stage, app, member)
            thawed.append(member)
    until(lambda: any(late in member.log for member in thawed for late in LATE), 60)
    drain(stage, app, workers)
    stage.checks.append(charged_without_end)


def send(app: dibs.Dibs, stage: Stage) -> list[Task]:
    """Some batches for each lane."""
    kinds = [stage.chance.choice(HANDLERS) for _ in range(200 if stage.short else 1000)]
    return app.enqueue_many([kind.new(Nap(str(stage.folder), stage.chance.choice(LENGTHS))) for kind in kinds])


def freeze(stage: Stage, app: dibs.Dibs, member: Member) -> None:
    """Freeze the worker in the middle of a call, until other workers have taken its tasks over."""
    member.freeze(stage.database)
    until(lambda: holds_nothing(app, member.name), 60)
    member.thaw()


def drain(stage: Stage, app: dibs.Dibs, workers: ProcessGroup) -> None:
    """Let the workers end a part of the rest, so that tasks of killed calls are run again by batch handlers."""
    left = app.stats().depth.get("completed", 0) + FEW
    until(lambda: app.stats().depth.get("completed", 0) >= left or not app.list_tasks(state="pending", limit=1), 60)
    workers.stop()


def charged_without_end(app: dibs.Dibs) -> Iterator[str]:
    """Tasks that failed for good: nothing but the deaths of processes fails them here."""
    yield from (f"task {task.id} is {task.state}" for task in stored(app) if task.state == "failed")


SCENARIO = Scenario(
    name="batch_handlers",
    fault="a worker is killed or frozen in the middle of a call of a batch handler, and child processes at timeouts",
    promises=(2, 3, 4, 5),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
