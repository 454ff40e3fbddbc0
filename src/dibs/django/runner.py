"""Runs the tasks of Django's task framework: each is a handler of `app` whose name is the path of its function.

A worker runs only tasks that a module of the project has declared: what the store names is never imported.
"""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async

from dibs.django.backend import plain
from dibs.django.client import app
from dibs.django.framework import TaskContext, TaskResultStatus, task_backends, task_finished, task_started
from dibs.django.results import error_of, moment, result_of, task_of
from dibs.handlers.context import Context
from dibs.handlers.endings import Permanent, describe, outcome_of
from dibs.model.claim import Cancelled, Failed
from dibs.model.history import HistoryEntry


def register(task: Any) -> None:
    """Make the task known to the workers of this process."""
    path = task.module_path
    if path not in app.handlers:
        function = run_async if inspect.iscoroutinefunction(task.func) else run
        app.task(name=path, codec=None, register_schema=False)(function)


def run(ctx: Context, **params: Any) -> Any:
    """Run a task in this thread. Receivers of `task_finished` that raise are logged by Django: the work is done."""
    attempt = DjangoAttempt(ctx, history_before(ctx))
    task_started.send(sender=attempt.sender, task_result=attempt.result)
    try:
        returned = attempt.returned(attempt.task.call(*attempt.arguments, **attempt.result.kwargs))
    except BaseException as error:
        if attempt.failed(error):
            task_finished.send_robust(sender=attempt.sender, task_result=attempt.result)
        raise
    task_finished.send_robust(sender=attempt.sender, task_result=attempt.result)
    return returned


async def run_async(ctx: Context, **params: Any) -> Any:
    """Run a coroutine function on the event loop."""
    attempt = DjangoAttempt(ctx, await sync_to_async(history_before)(ctx))
    await task_started.asend(sender=attempt.sender, task_result=attempt.result)
    try:
        returned = attempt.returned(await attempt.task.acall(*attempt.arguments, **attempt.result.kwargs))
    except BaseException as error:
        if attempt.failed(error):
            await task_finished.asend_robust(sender=attempt.sender, task_result=attempt.result)
        raise
    await task_finished.asend_robust(sender=attempt.sender, task_result=attempt.result)
    return returned


def history_before(ctx: Context) -> list[HistoryEntry]:
    """The history of the task; read only if there were claims before this one."""
    return [] if ctx.token == 1 else app.history(ctx.task.id)


class DjangoAttempt:
    """One attempt of a task, and its result as the task and the receivers of signals see it."""

    def __init__(self, ctx: Context, history: list[HistoryEntry]) -> None:
        self._ctx = ctx
        self.task = task_of(ctx.task)
        backend = task_backends[self.task.backend]
        self.sender = type(backend)
        self.result = result_of(ctx.task, history, backend.result_id(ctx.task))
        now = moment(datetime.now(UTC))
        if len(self.result.worker_ids) < ctx.token:  # else the history has this claim already
            self.result.worker_ids.append(ctx.claim.worker_id)
        self._set(
            status=TaskResultStatus.RUNNING,
            started_at=self.result.started_at or now,
            last_attempted_at=now,
        )

    @property
    def arguments(self) -> list[Any]:
        """The positional arguments of the call."""
        context = [TaskContext(task_result=self.result)] if self.task.takes_context else []
        return [*context, *self.result.args]

    def returned(self, value: Any) -> Any:
        """Record that the task returned this value. Returns the value as JSON."""
        try:
            normal = plain(value)
        except (TypeError, ValueError) as error:  # would fail in the same way again
            raise Permanent(f"The return value cannot be stored as JSON: {error}") from error
        self._set(status=TaskResultStatus.SUCCESSFUL, finished_at=moment(datetime.now(UTC)), _return_value=normal)
        return normal

    def failed(self, error: BaseException) -> bool:
        """Record that the task raised this error. False if the task is run again."""
        outcome = outcome_of(error)
        if not isinstance(outcome, (Failed, Cancelled)):
            return False
        self.result.errors.append(
            error_of(describe(error.__cause__ or error if isinstance(error, Permanent) else error))
        )
        if isinstance(outcome, Failed) and not outcome.permanent and self._ctx.attempt < self._ctx.task.max_attempts:
            self._set(status=TaskResultStatus.READY)
            return False
        self._set(status=TaskResultStatus.FAILED, finished_at=moment(datetime.now(UTC)))
        return True

    def _set(self, **changes: Any) -> None:
        for name, value in changes.items():
            object.__setattr__(self.result, name, value)
