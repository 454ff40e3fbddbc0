"""Schedules as JSON: store, read, list and tick schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import msgspec
from msgspec import Meta, field

from dibs.model import schedule as model_schedule
from dibs.model.schedule import CatchUp, DueSchedule, NewSchedule, ScheduleSource
from dibs.model.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE
from dibs.wire.fields import (
    JsonObject,
    MaxAttempts,
    Moment,
    Name,
    Params,
    Priority,
    RequestBody,
    ScheduleName,
    Tags,
    Timeout,
    Timestamp,
    to_datetime,
    to_datetime_or_none,
    to_text,
    to_text_or_none,
    utc,
)
from dibs.wire.tasks import Backoff, BackoffBody, backoff_of, checked_params

Cron = Annotated[Name, Meta(description="Five fields, six with seconds first, or a nickname.", examples=["0 3 * * *"])]
Zone = Annotated[Name, Meta(description="The name of a time zone.", examples=["Europe/Berlin"])]


class ScheduleBody(RequestBody, frozen=True):
    """A schedule to store. A schedule of the same name is changed."""

    name: ScheduleName
    cron: Cron
    type: Name = field(name="task_type")
    params: Params = field(default_factory=dict)
    timezone: Zone = "UTC"
    catch_up: Annotated[CatchUp, Meta(description="What to do about missed ticks.")] = CatchUp.ONE
    enabled: Annotated[bool, Meta(description="By default unchanged; a new schedule is enabled.")] | None = None
    queue: Name = DEFAULT_QUEUE
    priority: Priority = 0
    max_attempts: MaxAttempts = DEFAULT_MAX_ATTEMPTS
    timeout: Timeout | None = field(name="timeout_seconds", default=None)
    backoff: BackoffBody | None = None
    tags: Annotated[Tags, Meta(description="The tags of its tasks.")] = field(default_factory=list)
    source: Annotated[
        ScheduleSource, Meta(description="The origin of the schedule: a command, or the code of a program.")
    ] = "command"

    @classmethod
    def from_model(cls, new: NewSchedule, source: ScheduleSource) -> Self:
        """The schedule to send; params that dibs does not store are refused."""
        return cls(
            name=new.name,
            cron=new.cron,
            type=new.type,
            params=checked_params(new.params),
            timezone=new.timezone,
            catch_up=CatchUp(new.catch_up),
            enabled=new.enabled,
            queue=new.queue,
            priority=new.priority,
            max_attempts=new.max_attempts,
            timeout=new.timeout,
            backoff=BackoffBody.from_model(new.backoff),
            tags=list(new.tags),
            source=source,
        )

    def to_model(self) -> NewSchedule:
        """The schedule, checked."""
        return NewSchedule(
            name=self.name,
            cron=self.cron,
            type=self.type,
            params=self.params,
            timezone=self.timezone,
            catch_up=self.catch_up,
            enabled=self.enabled,
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            backoff=backoff_of(self.backoff),
            tags=self.tags,
        )


class Schedule(msgspec.Struct, frozen=True):
    """A schedule, its next tick, and the result of its last tick."""

    name: str
    cron: str
    timezone: str
    catch_up: CatchUp
    enabled: bool
    type: str = field(name="task_type")
    params: JsonObject
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None = field(name="timeout_seconds")
    backoff: Backoff
    tags: list[str]
    source: ScheduleSource
    next_at: Timestamp
    created_at: Timestamp
    updated_at: Timestamp
    last_at: Timestamp | None
    last_task_id: int | None
    last_error: str | None
    declared: Annotated[
        JsonObject | None, Meta(description="What the code of a program declares; null if no code declares it.")
    ] = None
    overridden: Annotated[bool, Meta(description="The schedule was set by hand since its declaration in code.")] = False

    @classmethod
    def from_model(cls, schedule: model_schedule.Schedule) -> Self:
        """The schedule as JSON."""
        return cls(
            name=schedule.name,
            cron=schedule.cron,
            timezone=schedule.timezone,
            catch_up=schedule.catch_up,
            enabled=schedule.enabled,
            type=schedule.type,
            params=schedule.params,
            queue=schedule.queue,
            priority=schedule.priority,
            max_attempts=schedule.max_attempts,
            timeout=schedule.timeout,
            backoff=Backoff.from_model(schedule.backoff),
            tags=schedule.tags,
            source=schedule.source,
            next_at=to_text(schedule.next_at),
            created_at=to_text(schedule.created_at),
            updated_at=to_text(schedule.updated_at),
            last_at=to_text_or_none(schedule.last_at),
            last_task_id=schedule.last_task_id,
            last_error=schedule.last_error,
            declared=schedule.declared,
            overridden=schedule.overridden,
        )

    def to_model(self) -> model_schedule.Schedule:
        """The schedule."""
        return model_schedule.Schedule(
            name=self.name,
            cron=self.cron,
            timezone=self.timezone,
            catch_up=self.catch_up,
            enabled=self.enabled,
            type=self.type,
            params=self.params,
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            backoff=self.backoff.to_model(),
            tags=self.tags,
            source=self.source,
            next_at=to_datetime(self.next_at),
            created_at=to_datetime(self.created_at),
            updated_at=to_datetime(self.updated_at),
            last_at=to_datetime_or_none(self.last_at),
            last_task_id=self.last_task_id,
            last_error=self.last_error,
            declared=self.declared,
        )


class Schedules(msgspec.Struct, frozen=True):
    """All schedules."""

    schedules: list[Schedule]

    @classmethod
    def from_model(cls, schedules: Sequence[model_schedule.Schedule]) -> Self:
        """The schedules as an answer."""
        return cls(schedules=[Schedule.from_model(schedule) for schedule in schedules])

    def to_model(self) -> list[model_schedule.Schedule]:
        """The schedules."""
        return [schedule.to_model() for schedule in self.schedules]


class OneSchedule(msgspec.Struct, frozen=True):
    """A schedule."""

    schedule: Schedule

    @classmethod
    def from_model(cls, schedule: model_schedule.Schedule) -> Self:
        """The schedule as an answer."""
        return cls(schedule=Schedule.from_model(schedule))

    def to_model(self) -> model_schedule.Schedule:
        """The schedule."""
        return self.schedule.to_model()


class ChangedSchedule(msgspec.Struct, frozen=True):
    """The schedule as it is now."""

    success: bool
    schedule: Schedule

    @classmethod
    def from_model(cls, schedule: model_schedule.Schedule) -> Self:
        """The schedule as an answer."""
        return cls(success=True, schedule=Schedule.from_model(schedule))

    def to_model(self) -> model_schedule.Schedule:
        """The schedule."""
        return self.schedule.to_model()


class Due(msgspec.Struct, frozen=True):
    """A due schedule, and the database's time when it was read."""

    schedule: Schedule
    now: Timestamp

    @classmethod
    def from_model(cls, due: DueSchedule) -> Self:
        """The due schedule as JSON."""
        return cls(schedule=Schedule.from_model(due.schedule), now=to_text(due.now))

    def to_model(self) -> DueSchedule:
        """The due schedule."""
        return DueSchedule(schedule=self.schedule.to_model(), now=to_datetime(self.now))


class DueSchedules(msgspec.Struct, frozen=True):
    """The due schedules."""

    due: list[Due]

    @classmethod
    def from_model(cls, due: Sequence[DueSchedule]) -> Self:
        """The due schedules as an answer."""
        return cls(due=[Due.from_model(each) for each in due])

    def to_model(self) -> list[DueSchedule]:
        """The due schedules."""
        return [each.to_model() for each in self.due]


class TickBody(RequestBody, frozen=True):
    """The due tick that was read with the schedule. If the schedule has changed since, nothing happens."""

    next_at: Moment
    now: Moment
    cron: Cron
    timezone: Zone

    @classmethod
    def from_model(cls, due: DueSchedule) -> Self:
        """The tick to send."""
        schedule = due.schedule
        return cls(next_at=utc(schedule.next_at), now=utc(due.now), cron=schedule.cron, timezone=schedule.timezone)
