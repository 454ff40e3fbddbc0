"""Handlers that kill their process: each such task reaches the dead letter after its attempts, the others complete.

Promises 3, 7 and 12. Some kill the whole worker, with all its claimed tasks; some kill only their child process.
"""

from __future__ import annotations

from collections.abc import Iterator

import dibs
from dibs import State, Task
from tests.helpers.waiting import until
from tests.stress.checking import stored
from tests.stress.handlers import nap, poison, poison_apart
from tests.stress.process_group import ProcessGroup
from tests.stress.scenario import Scenario, Stage, main

ATTEMPTS = 3
LETHAL = (poison.name, poison_apart.name)


def play(stage: Stage) -> None:
    app, folder = stage.open(), str(stage.folder)
    workers = stage.start_processes(2, kind="worker", lease=1.0, upkeep_every=0.2, children=1)
    size = 60 if stage.short else 500
    for number in stage.rounds():
        lethal = (poison, poison_apart)[number % 2].new(folder=folder)
        tasks = [nap.new(folder=folder) for _ in range(size)]
        tasks.insert(stage.chance.randrange(size), lethal)
        left = {task.id for task in app.enqueue_many(tasks)}
        until(lambda left=left: restart(stage, workers) or are_final(app, left), 120)  # type: ignore[misc]
    stage.checks.append(who_died)


def restart(stage: Stage, workers: ProcessGroup) -> None:
    """What a service manager does."""
    stage.tally.injected += workers.restart_the_dead()


def are_final(app: dibs.Dibs, left: set[int]) -> bool:
    """True once all of them are."""
    for task_id in sorted(left)[:20]:
        task = app.get(task_id)
        if task is None or not task.finished:
            return False
        left.discard(task_id)
    return not left


def who_died(app: dibs.Dibs) -> Iterator[str]:
    """Lethal tasks that are not in the dead letter after exactly their attempts, and others that are."""
    for task in stored(app):
        if _ended(task) != ((State.FAILED, ATTEMPTS) if task.type in LETHAL else (State.COMPLETED, task.attempts)):
            yield f"task {task.id} ({task.type}) is {task.state} after {task.attempts} attempts"


def _ended(task: Task) -> tuple[State, int]:
    return task.state, task.attempts


SCENARIO = Scenario(
    name="poison_pill",
    fault="a task kills the process that runs it",
    promises=(3, 7, 12),
    engines=("sqlite", "postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
