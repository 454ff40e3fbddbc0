"""Cancel, retry, redrive, pause: what people do to tasks and queues, as opposed to workers."""

from __future__ import annotations

from typing import Any

import msgspec

from dibs.codec import check_name
from dibs.errors import TaskNotFound, WrongState
from dibs.store.operation import Operation, Statement, Steps, conditions, limited
from dibs.store.operations.rows import read_task
from dibs.task import FINAL, State, Task, check_integer

REDRIVE_BATCH = 500


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks of the dead letter: by queue, type, and text in the error's type and message."""

    queue: str | None = None
    type: str | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        for value, what in ((self.queue, "The queue"), (self.type, "The task type"), (self.error, "The error text")):
            if value is not None:
                check_name(value, what)


class Managing:
    """Changing tasks from outside."""

    def cancel(self, task_id: int) -> Operation[Task]:
        """Cancel a waiting task at once; ask the worker of a running one to stop."""
        return Operation("cancel", lambda: self._cancel(task_id), wakes=True, atomic=True)

    def _cancel(self, task_id: int) -> Steps[Task]:
        while True:
            task = yield from _get(task_id)
            if task.state is State.CANCELLED or (task.state is State.CLAIMED and task.cancel_requested):
                return task
            if task.state in FINAL:
                message = f"Task {task_id} cannot be cancelled: it is {task.state}."
                raise WrongState(message, task_id=task_id, state=task.state, hint="Finished tasks stay as they are.")
            name = "request_cancel" if task.state is State.CLAIMED else "cancel"
            if (yield Statement(name, {"id": task_id, "from_state": task.state.value}, change=True)):
                return (yield from _get(task_id))
            # It moved between the look and the write: look again.

    def retry(self, task_id: int) -> Operation[Task]:
        """Send a failed, cancelled or scheduled task back to be claimed now, with all its attempts."""
        return Operation("retry", lambda: self._retry(task_id), wakes=True, atomic=True)

    def _retry(self, task_id: int) -> Steps[Task]:
        while True:
            task = yield from _get(task_id)
            if task.state not in (State.FAILED, State.CANCELLED, State.SCHEDULED):
                message = f"Task {task_id} cannot be retried: it is {task.state}."
                hint = "Only failed, cancelled and scheduled tasks can be retried; enqueue completed work anew."
                raise WrongState(message, task_id=task_id, state=task.state, hint=hint)
            if (yield Statement("retry", {"id": task_id, "from_state": task.state.value}, change=True)):
                return (yield from _get(task_id))

    def redrive_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Retry up to `limit` tasks of the dead letter that match; the oldest failures first."""
        check_integer(limit, "limit", 1, REDRIVE_BATCH)
        given = msgspec.structs.asdict(which)
        words = (conditions(given, ("queue", "type", "error")), *limited(limit))
        statement = Statement("redrive", given, words=words, change=True)
        return Operation("redrive", lambda: _count(statement), wakes=True)

    def pause(self, queue: str) -> Operation[None]:
        """Let nobody claim from the queue until it is resumed; running tasks go on."""
        return _queue_operation("pause", queue)

    def resume(self, queue: str) -> Operation[None]:
        """Let the queue be claimed from again."""
        return _queue_operation("resume", queue)


def _queue_operation(name: str, queue: str) -> Operation[None]:
    check_name(queue, "The queue")

    def steps() -> Steps[None]:
        yield Statement(name, {"queue": queue})

    return Operation(name, steps, wakes=True)


def _get(task_id: int) -> Steps[Task]:
    rows = yield Statement("get", {"ids": [task_id]})
    if not rows:
        raise TaskNotFound(task_id)
    return read_task(rows[0])


def _count(statement: Statement) -> Steps[int]:
    rows: list[Any] = yield statement
    return len(rows)
