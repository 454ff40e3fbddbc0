"""Workers get SIGTERM, with a long and a short grace period: unfinished tasks are released at once and not charged.

Promises 2 to 4: no lease runs out, no attempt is spent, and the exit code of the worker is 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import dibs
from dibs import Event, Task
from tests.helpers.waiting import until
from tests.stress.checking import pages, stored
from tests.stress.handlers import doze, nap
from tests.stress.scenario import Scenario, Stage, main

ENOUGH, NOT_ENOUGH = 20.0, 0.05
LENGTHS = (0.0, 0.0, 0.0, 0.01, 0.1, 0.3)


def play(stage: Stage) -> None:
    app = stage.open()
    workers = stage.start_processes(2, kind="worker", lease=20.0, grace=ENOUGH)
    for number in stage.rounds():
        if app.stats().depth.get("pending", 0) < 500:
            send(app, stage)
        member = workers.members[0]
        goal = member.reply_count() + stage.chance.randint(1, 40)
        until(lambda member=member: is_registered(app, member.name), 60)  # type: ignore[misc]  # so it hears signals
        until(lambda member=member, goal=goal: member.reply_count() >= goal or is_idle(app), 60)  # type: ignore[misc]
        member.terminate()
        if (code := member.exit_code()) != 0:
            stage.tally.problems.append(f"{member.name} ended with {code}: {member.log}")
        stage.tally.injected += 1
        workers.members.remove(member)
        workers.start(1, grace=(NOT_ENOUGH, ENOUGH)[number % 2])
    workers.stop()
    stage.checks += [recoveries, attempts]


def send(app: dibs.Dibs, stage: Stage) -> list[Task]:
    """Some that are over at once, and some that take longer than too short a grace."""
    kinds = [stage.chance.choice([nap, doze]) for _ in range(150 if stage.short else 1000)]
    return app.enqueue_many(
        [kind.new(folder=str(stage.folder), seconds=stage.chance.choice(LENGTHS)) for kind in kinds]
    )


def is_registered(app: dibs.Dibs, name: str) -> bool:
    """True once the store knows the worker."""
    return any(worker.id == name for worker in app.workers())


def is_idle(app: dibs.Dibs) -> bool:
    """True if the other worker has taken everything that was left."""
    return not app.list_tasks(state="pending", limit=1)


def recoveries(app: dibs.Dibs) -> Iterator[str]:
    """Claims that were not given back."""
    for page in pages(app):
        yield from (f"task {entry.task_id}: was not given back" for entry in page if entry.event is Event.RECOVERED)


def attempts(app: dibs.Dibs) -> Iterator[str]:
    """Attempts that were charged for being given back."""
    yield from (f"task {task.id}: {task.attempts} attempts" for task in stored(app) if task.attempts != 1)


SCENARIO = Scenario(
    name="sigterm",
    fault="SIGTERM, with and without enough grace",
    promises=(2, 3, 4),
    engines=("sqlite", "postgres", "http"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
