"""Tasks in every state that a user can bring them into."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dibs import NewTask, Task
from dibs.model.checks import from_micros
from dibs.model.claim import MAX_BATCH
from tests.helpers.clients import Clock

STATES = ("scheduled", "pending", "claimed", "completed", "failed", "cancelled")
HOUR = 3600.0


def task_in(app: Any, state: str, type: str = "resize", worker_id: str = "worker-1", **options: Any) -> Task:
    """A new task, brought into the state by the verbs that lead there."""
    delay = {"delay": HOUR} if state == "scheduled" else {}
    task = app.enqueue(type, **delay, **options)
    if state in ("claimed", "completed", "failed"):
        claim = app.claim_by_id(task.id, worker_id)
        if state == "completed":
            app.complete(claim)
        elif state == "failed":
            app.fail(claim, "broken", permanent=True)
    elif state == "cancelled":
        app.cancel(task.id)
    found: Task = app.get(task.id)
    assert found.state == state
    return found


def dead(app: Any, count: int = 1, error: str = "broken", **options: Any) -> list[int]:
    """The ids of new tasks in the dead letter."""
    from dibs import Failed, Failure

    ids = [task.id for task in enqueue_all(app, [NewTask(**{"type": "resize", **options}) for _ in range(count)])]
    claims: list[Any] = []
    while len(claims) < count:
        claims += app.claim_many("worker-1", min(1000, count - len(claims)))
    assert sorted(claim.task_id for claim in claims) == sorted(ids)
    app.finish([(claim, Failed(Failure("Error", error), permanent=True)) for claim in claims])
    return ids


def enqueue_all(app: Any, tasks: Sequence[NewTask]) -> list[Task]:
    """Any number of tasks, in batches that every engine takes."""
    return [task for at in range(0, len(tasks), MAX_BATCH) for task in app.enqueue_many(tasks[at : at + MAX_BATCH])]


def moment(clock: Clock) -> datetime:
    """What the hand-turned clock shows."""
    return from_micros(clock.now)


def events(app: Any, task_id: int) -> list[str]:
    """What happened to the task, in order."""
    return [entry.event.value for entry in app.history(task_id)]
