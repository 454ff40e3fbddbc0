"""A task in JSON, as whoever wants it done writes it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from dibs.body.fields import (
    BackoffBody,
    Body,
    Key,
    MaxAttempts,
    Moment,
    Name,
    Params,
    Priority,
    Seconds,
    TaskTypeName,
    Timeout,
    Traceparent,
    not_both,
)
from dibs.model.retry import Backoff
from dibs.model.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, NewTask


class TaskOptions(Body, frozen=True):
    """How a task is to run, whatever it is."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (not_both("delay_seconds", "run_at"),)

    params: Params = msgspec.field(default_factory=dict)
    queue: Annotated[Name, Meta(description="Where it waits.")] = DEFAULT_QUEUE
    priority: Priority = 0
    max_attempts: MaxAttempts = DEFAULT_MAX_ATTEMPTS
    delay_seconds: Annotated[Seconds, Meta(description="Seconds from now until it may be claimed.")] | None = None
    run_at: Annotated[Moment, Meta(description="When it may be claimed; instead of delay_seconds.")] | None = None
    timeout_seconds: Timeout | None = None
    backoff: Annotated[BackoffBody, Meta(description="How long it rests after a failure.")] | None = None
    traceparent: Traceparent | None = None

    def of_type(self, task_type: str, key: str | None = None) -> NewTask:
        """The task, checked."""
        rest = Backoff() if self.backoff is None else self.backoff.backoff()
        return NewTask(
            task_type, self.params, self.queue, self.priority, self.max_attempts, self.delay_seconds, self.run_at,
            self.timeout_seconds, key, rest, self.traceparent
        )  # fmt: skip


class NewTaskBody(TaskOptions, frozen=True, kw_only=True):
    """A task to enqueue."""

    task_type: TaskTypeName
    idempotency_key: Key | None = None

    def task(self) -> NewTask:
        """The task, checked."""
        return self.of_type(self.task_type, self.idempotency_key)
