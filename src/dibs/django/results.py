"""A task of dibs as a TaskResult of Django's task framework."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django.utils.timezone import make_naive

from dibs.django.client import app
from dibs.django.discovery import discover
from dibs.django.framework import (
    DjangoTask,
    InvalidTask,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from dibs.model.history import HistoryEntry
from dibs.model.task import EXPIRED, LEASE_LOST, Event, Failure, State, Task

BACKEND = "backend"
"""The param with the alias of TASKS by which a task was enqueued. Other clients may leave it out, as `args` and
`kwargs`."""

RUN_AFTER = "run_after"
"""The param with the time before which the task must not run, as it was given."""

STATUSES = {
    State.SCHEDULED: TaskResultStatus.READY,
    State.BLOCKED: TaskResultStatus.READY,
    State.PENDING: TaskResultStatus.READY,
    State.CLAIMED: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}

FAILURES = frozenset({Event.FAILED, Event.RECOVERED, Event.EXPIRED})
"""The events of which the detail is an error."""

OWN_ERRORS = {LEASE_LOST: "dibs.ClaimLost", EXPIRED: "dibs.TaskExpired", "Cancel": "dibs.Cancel"}
"""The exceptions for errors that dibs records itself, by their type."""


def new_result(task: Any, alias: str, args: Sequence[Any], kwargs: Mapping[str, Any], result_id: str) -> Any:
    """The result of a task that is being enqueued."""
    return TaskResult(
        task=task,
        id=result_id,
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def result_of(record: Task, history: Sequence[HistoryEntry], result_id: str) -> Any:
    """The result of a stored task. TaskResultDoesNotExist if the task is not one of Django's framework."""
    claims = [entry for entry in history if entry.event is Event.CLAIMED]
    task = task_of(record)
    result = TaskResult(
        task=task,
        id=result_id,
        status=STATUSES[record.state],
        enqueued_at=moment(record.created_at),
        started_at=moment(claims[0].at) if claims else None,
        finished_at=None if record.finished_at is None else moment(record.finished_at),
        last_attempted_at=moment(claims[-1].at) if claims else None,
        args=record.params.get("args", []),
        kwargs=record.params.get("kwargs", {}),
        backend=task.backend,
        errors=errors_of(record, history),
        worker_ids=[entry.worker_id or "" for entry in claims],
    )
    object.__setattr__(result, "_return_value", record.raw_result)
    return result


def task_of(record: Task) -> Any:
    """The Task of the framework with the options of this stored task; without them if they are not valid: another
    client may have written them, or changed the task to a queue or priority that the backend does not have."""
    task = resolve(record.type)
    run_after = record.params.get(RUN_AFTER)
    try:
        return task.using(
            priority=record.priority,
            queue_name=record.queue,
            backend=record.params.get(BACKEND),
            run_after=None if run_after is None else datetime.fromisoformat(run_after),
        )
    except (InvalidTask, ImproperlyConfigured, TypeError, ValueError):
        return task


def resolve(path: str) -> Any:
    """The Task that a module of the project declares under this path. TaskResultDoesNotExist for anything else.

    A name in the store never decides what is imported: a path is known if the project has imported its module."""
    if path not in app.handlers:
        discover()
    found = _imported(path) if path in app.handlers else None
    if not isinstance(found, DjangoTask):
        raise TaskResultDoesNotExist(f"{path} is not a task of this project.")
    return found


def _imported(path: str) -> Any:
    try:
        return import_string(path)
    except ImportError:  # the name of a handler of dibs
        return None


def errors_of(record: Task, history: Sequence[HistoryEntry]) -> list[Any]:
    """The error of each attempt that failed. Their history may be pruned: then that of the last one."""
    ended = [entry.detail for entry in history if entry.event in FAILURES and entry.detail is not None]
    failures = [Failure(each["type"], each["message"], each.get("traceback")) for each in ended if "message" in each]
    if not failures and record.error is not None:
        failures = [record.error]
    if record.state is State.CANCELLED and record.error is None:
        failures.append(Failure("Cancel", "The task was cancelled."))
    return [error_of(each) for each in failures]


def error_of(failure: Failure) -> Any:
    """The error as the framework has it. Its traceback names the module of the exception."""
    return TaskError(exception_class_path=_class_path(failure), traceback=failure.traceback or failure.message)


def _class_path(failure: Failure) -> str:
    if failure.type in OWN_ERRORS:
        return OWN_ERRORS[failure.type]
    named = re.findall(rf"^((?:\w+\.)*){re.escape(failure.type)}(?=:|$)", failure.traceback or "", re.MULTILINE)
    module = named[-1] if named else ""
    return f"{module or 'builtins.'}{failure.type}"


def moment(at: datetime) -> datetime:
    """The time as the project has it: aware with USE_TZ, else naive in its time zone."""
    return at.astimezone(UTC) if settings.USE_TZ else make_naive(at)
