"""Schedules: tasks that are enqueued at the ticks of a cron expression."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec

from dibs.codec import MAX_NAME, check_name
from dibs.errors import InvalidValue
from dibs.model.cron import check_cron, check_timezone
from dibs.model.retry import DEFAULT_BACKOFF, Backoff
from dibs.model.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, NewTask
from dibs.model.workflow import check_type

MAX_SCHEDULE_NAME = MAX_NAME - len("schedule::2000-01-01T00:00:00Z")

ScheduleSource = Literal["code", "command"]
"""Where a schedule was declared: in the code of a handler, or with a client or the command line."""


class CatchUp(StrEnum):
    """What to do with ticks that were missed because no worker or server was running."""

    ONE = "one"  # ticks missed for a minute or more become one task: that of the latest
    ALL = "all"  # each missed tick becomes a task; the newest 1000 at most
    NONE = "none"  # ticks that are more than a minute late are skipped


CATCH_UPS = frozenset(each.value for each in CatchUp)


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to store, checked on construction. `timeout`: seconds; `enabled`: None leaves it unchanged."""

    name: str
    cron: str
    type: str
    params: dict[str, Any] = {}
    timezone: str = "UTC"
    catch_up: str = CatchUp.ONE
    enabled: bool | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: float | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    tags: Sequence[str] = []

    def __post_init__(self) -> None:
        check_schedule_name(self.name)
        check_cron(self.cron)
        check_timezone(self.timezone)
        if self.catch_up not in CATCH_UPS:
            hint = f"Use one of: {', '.join(CatchUp)}."
            raise InvalidValue(f"{self.catch_up!r} is not a valid catch_up.", hint=hint)
        if self.enabled is not None and type(self.enabled) is not bool:
            raise InvalidValue(f"enabled must be True, False or None, not {self.enabled!r}.")
        check_type(task_of(self))  # the construction of the task checks the other options


class Schedule(msgspec.Struct, frozen=True):
    """A schedule as read from the store. A schedule that was set by hand stays as it is until its declaration in code
    changes. `declared`: the values that the code declares, if any; see `overridden`."""

    name: str
    cron: str
    timezone: str
    catch_up: CatchUp
    enabled: bool
    type: str
    params: dict[str, Any]
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    backoff: Backoff
    source: ScheduleSource
    next_at: datetime
    created_at: datetime
    updated_at: datetime
    last_at: datetime | None = None  # the last enqueued tick, and its task
    last_task_id: int | None = None
    last_error: str | None = None  # why the last tick was refused
    tags: list[str] = []
    declared: dict[str, Any] | None = None

    @property
    def overridden(self) -> bool:
        """True if the schedule is declared in code, and was set by hand since that declaration."""
        return self.declared is not None and self.source == "command"


def task_of(schedule: NewSchedule | Schedule, tick: datetime | None = None) -> NewTask:
    """The task to enqueue for a tick. Its idempotency key makes it unique, and its `run_at` is the tick."""
    return NewTask(
        schedule.type,
        schedule.params,
        queue=schedule.queue,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        timeout=schedule.timeout,
        backoff=schedule.backoff,
        tags=schedule.tags,
        run_at=tick,
        key=None if tick is None else tick_key(schedule.name, tick),
    )


def tick_key(name: str, tick: datetime) -> str:
    """The idempotency key of the task for this tick."""
    return f"schedule:{name}:{tick.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def check_schedule_name(name: Any) -> str:
    """Check a schedule's name, which must be short enough to be part of a key, and return it."""
    check_name(name, "The schedule's name")
    if len(name) > MAX_SCHEDULE_NAME:
        raise InvalidValue(f"The schedule's name has {len(name)} characters; the limit is {MAX_SCHEDULE_NAME}.")
    return str(name)


class DueSchedule(msgspec.Struct, frozen=True):
    """A schedule with a due tick, and the database's time of the read."""

    schedule: Schedule
    now: datetime
