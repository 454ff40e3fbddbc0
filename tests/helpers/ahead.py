"""Make a worker with one lane hold tasks that it claimed ahead, behind a task that does not end."""

from __future__ import annotations

import contextlib
from pathlib import Path

import dibs
from dibs import State, Task
from tests.helpers.handlers import mark, say
from tests.helpers.waiting import until

TRIES = 10


def hold(app: dibs.Dibs, folder: Path) -> tuple[Task, list[Task]]:
    """The task that holds (until `let_go`), and those behind it, all of them claimed.

    A worker claims ahead only what it knows to be very short. On a slow machine the last one before may have been slow
    by chance; then it is shown some more.
    """
    for number in range(TRIES):
        shown = app.enqueue_many([mark.new(folder=str(folder), name=f"shown-{number}-{n}") for n in range(20)])
        for task in shown:
            app.wait(task.id, 30)
        held = mark.enqueue(folder=str(folder), name=f"held-{number}", does="hold")
        behind = app.enqueue_many([mark.new(folder=str(folder), name=f"behind-{number}-{n}") for n in range(20)])
        with contextlib.suppress(AssertionError):
            until(lambda tasks=[held, *behind]: _all_claimed(app, tasks), 1.5)  # type: ignore[misc]
            return held, behind
        let_go(held, folder)
        for task in [held, *behind]:
            app.wait(task.id, 30)
    raise AssertionError(f"the worker did not claim ahead, in {TRIES} tries")


def let_go(held: Task, folder: Path) -> None:
    """Let the task that holds end."""
    say(folder, f"{held.params['name']}.go")


def begun(tasks: list[Task], folder: Path, token: int = 1) -> list[str]:
    """The names of those whose handler ran under that token."""
    names = [task.params["name"] for task in tasks]
    return [name for name in names if (folder / f"{name}.{token}.ran").exists()]


def _all_claimed(app: dibs.Dibs, tasks: list[Task]) -> bool:
    return all(found is not None and found.state is State.CLAIMED for found in (app.get(task.id) for task in tasks))
