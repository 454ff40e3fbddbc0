"""A schedule: a task that is enqueued again and again, at the ticks of a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec

from dibs.codec import MAX_NAME, check_name
from dibs.errors import InvalidValue
from dibs.model.cron import check_cron, check_timezone
from dibs.model.retry import Backoff
from dibs.model.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, NewTask
from dibs.model.workflow import check_type

MAX_SCHEDULE_NAME = MAX_NAME - len("schedule::2000-01-01T00:00:00Z")

ScheduleSource = Literal["code", "command"]
"""Who said so: the program's own code when its worker started, or somebody by a verb or command."""


class CatchUp(StrEnum):
    """What becomes of ticks that came while nobody was there to enqueue them."""

    ONE = "one"  # after a minute or more without ticks, all that were missed become one task: that of the latest
    ALL = "all"  # each becomes a task; the newest 1000 at most
    NONE = "none"  # they are skipped, if they are more than a minute late


CATCH_UPS = frozenset(each.value for each in CatchUp)


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to store, checked when it is made. `timeout`: seconds; `enabled`: None leaves it as it is."""

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
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        check_schedule_name(self.name)
        check_cron(self.cron)
        check_timezone(self.timezone)
        if self.catch_up not in CATCH_UPS:
            hint = f"Use one of: {', '.join(CatchUp)}."
            raise InvalidValue(f"There is no way to catch up called {self.catch_up!r}.", hint=hint)
        if self.enabled is not None and type(self.enabled) is not bool:
            raise InvalidValue(f"enabled must be True, False or None, not {self.enabled!r}.")
        check_type(task_of(self))  # and its own options are checked as it is made


class Schedule(msgspec.Struct, frozen=True):
    """A schedule as it stood when it was read."""

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
    last_at: datetime | None = None  # the last tick that was enqueued, and its task
    last_task_id: int | None = None
    last_error: str | None = None  # why the last tick was refused


def task_of(schedule: NewSchedule | Schedule, tick: datetime | None = None) -> NewTask:
    """The task to enqueue for a tick, once: its key says so, and `run_at` tells its handler which tick it serves."""
    return NewTask(
        schedule.type,
        schedule.params,
        queue=schedule.queue,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        timeout=schedule.timeout,
        backoff=schedule.backoff,
        run_at=tick,
        key=None if tick is None else tick_key(schedule.name, tick),
    )


def tick_key(name: str, tick: datetime) -> str:
    """The idempotency key of the task that serves this tick."""
    return f"schedule:{name}:{tick.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def check_schedule_name(name: Any) -> str:
    """A schedule's name, short enough to be part of a key."""
    check_name(name, "The schedule's name")
    if len(name) > MAX_SCHEDULE_NAME:
        raise InvalidValue(f"The schedule's name has {len(name)} characters; the limit is {MAX_SCHEDULE_NAME}.")
    return str(name)


class DueSchedule(msgspec.Struct, frozen=True):
    """A schedule whose next tick has come, and the database's time when it was read."""

    schedule: Schedule
    now: datetime
