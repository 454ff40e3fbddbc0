"""Schedules as JSON: store, read, list and tick schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Self

import msgspec
from msgspec import Meta, field

from dibs.model import schedule as model_schedule
from dibs.model.checks import MAX_SECONDS
from dibs.model.schedule import CatchUp, DueSchedule, NewSchedule, Overlap, ScheduleSource
from dibs.model.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, NO_LIMITS
from dibs.model.timing import LEAST_INTERVAL, MAX_JITTER
from dibs.wire.fields import (
    ExpiresIn,
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
    utc_or_none,
)
from dibs.wire.limits import LimitNames
from dibs.wire.tasks import Backoff, BackoffBody, backoff_of, checked_params

Cron = Annotated[Name, Meta(description="Five fields, six with seconds first, or a nickname.", examples=["0 3 * * *"])]
Interval = Annotated[
    float,
    Meta(
        ge=LEAST_INTERVAL, le=MAX_SECONDS, description="Seconds between two ticks, counted from start_at or from 1970."
    ),
]
Jitter = Annotated[float, Meta(ge=0, le=MAX_JITTER, description="The largest delay of a tick, in seconds.")]
Zone = Annotated[Name, Meta(description="The name of a time zone.", examples=["Europe/Berlin"])]


class ScheduleBody(RequestBody, frozen=True):
    """A schedule to store. A schedule of the same name is changed."""

    name: ScheduleName
    type: Name = field(name="task_type")
    cron: Annotated[Cron, Meta(description="Needed, unless every_seconds or at is given.")] | None = None
    params: Params = field(default_factory=dict)
    timezone: Zone = "UTC"
    every: Interval | None = field(name="every_seconds", default=None)
    at: Annotated[Moment, Meta(description="The time of the only tick.")] | None = None
    jitter: Jitter = field(name="jitter_seconds", default=0)
    start_at: Annotated[Moment, Meta(description="No tick is earlier.")] | None = None
    end_at: Annotated[Moment, Meta(description="No tick is later.")] | None = None
    overlap: Annotated[Overlap, Meta(description="What a tick does while a task of the schedule has not ended.")] = (
        Overlap.ALLOW
    )
    catch_up: Annotated[CatchUp, Meta(description="What to do about missed ticks.")] = CatchUp.ONE
    enabled: Annotated[bool, Meta(description="By default unchanged; a new schedule is enabled.")] | None = None
    queue: Name = DEFAULT_QUEUE
    priority: Priority = 0
    max_attempts: MaxAttempts = DEFAULT_MAX_ATTEMPTS
    timeout: Timeout | None = field(name="timeout_seconds", default=None)
    backoff: BackoffBody | None = None
    tags: Annotated[Tags, Meta(description="The tags of its tasks.")] = field(default_factory=list)
    expires_in: ExpiresIn | None = field(name="expires_in_seconds", default=None)
    limits: Annotated[LimitNames, Meta(description="Limits of its tasks.")] = field(default_factory=list)
    group: Annotated[Name, Meta(description="The group of its tasks.")] | None = None
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
            every=new.every,
            at=utc_or_none(new.at),
            jitter=new.jitter,
            start_at=utc_or_none(new.start_at),
            end_at=utc_or_none(new.end_at),
            overlap=Overlap(new.overlap),
            catch_up=CatchUp(new.catch_up),
            enabled=new.enabled,
            queue=new.queue,
            priority=new.priority,
            max_attempts=new.max_attempts,
            timeout=new.timeout,
            backoff=BackoffBody.from_model(new.backoff),
            tags=list(new.tags),
            expires_in=new.expires_in,
            limits=list(new.limits),
            group=new.group,
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
            every=self.every,
            at=self.at,
            jitter=self.jitter,
            start_at=self.start_at,
            end_at=self.end_at,
            overlap=self.overlap,
            catch_up=self.catch_up,
            enabled=self.enabled,
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            backoff=backoff_of(self.backoff),
            tags=self.tags,
            expires_in=self.expires_in,
            limits=self.limits or NO_LIMITS,
            group=self.group,
        )


class Schedule(msgspec.Struct, frozen=True):
    """A schedule, its next tick, and the result of its last tick."""

    name: str
    cron: str | None
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
    next_at: Annotated[Timestamp | None, Meta(description="The next tick; null if the schedule has ended.")]
    created_at: Timestamp
    updated_at: Timestamp
    last_at: Timestamp | None
    last_task_id: int | None
    last_error: str | None
    declared: Annotated[
        JsonObject | None, Meta(description="What the code of a program declares; null if no code declares it.")
    ] = None
    overridden: Annotated[bool, Meta(description="The schedule was set by hand since its declaration in code.")] = False
    expires_in: Annotated[
        float | None,
        Meta(description="Seconds from the enqueue after which a task is cancelled if it was not started."),
    ] = field(name="expires_in_seconds", default=None)
    limits: Annotated[list[str], Meta(description="Limits of its tasks, beside those of their queue and type.")] = []
    group: Annotated[str | None, Meta(description="The group of its tasks.")] = None
    every: Annotated[float | None, Meta(description="Seconds between two ticks.")] = field(
        name="every_seconds", default=None
    )
    at: Annotated[Timestamp | None, Meta(description="The time of the only tick.")] = None
    jitter: Annotated[float, Meta(description="The largest delay of a tick.")] = field(name="jitter_seconds", default=0)
    start_at: Timestamp | None = None
    end_at: Timestamp | None = None
    overlap: Annotated[Overlap, Meta(description="What a tick does while a task of the schedule has not ended.")] = (
        Overlap.ALLOW
    )
    due_at: Annotated[
        Timestamp | None, Meta(description="When the task of the next tick is enqueued, with the jitter of the tick.")
    ] = None
    skipped: Annotated[int, Meta(description="The number of skipped ticks.")] = 0
    last_skipped_at: Timestamp | None = None
    unfinished_task_id: Annotated[
        int | None, Meta(description="A task of the schedule that has not ended; null if its tasks may overlap.")
    ] = None
    description: Annotated[str, Meta(description="When the schedule ticks, in words.")] = ""

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
            next_at=to_text_or_none(schedule.next_at),
            created_at=to_text(schedule.created_at),
            updated_at=to_text(schedule.updated_at),
            last_at=to_text_or_none(schedule.last_at),
            last_task_id=schedule.last_task_id,
            last_error=schedule.last_error,
            declared=schedule.declared,
            overridden=schedule.overridden,
            expires_in=schedule.expires_in,
            limits=schedule.limits,
            group=schedule.group,
            every=schedule.every,
            at=to_text_or_none(schedule.at),
            jitter=schedule.jitter,
            start_at=to_text_or_none(schedule.start_at),
            end_at=to_text_or_none(schedule.end_at),
            overlap=schedule.overlap,
            due_at=to_text_or_none(schedule.due_at),
            skipped=schedule.skipped,
            last_skipped_at=to_text_or_none(schedule.last_skipped_at),
            unfinished_task_id=schedule.unfinished_task_id,
            description=schedule.words,
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
            next_at=to_datetime_or_none(self.next_at),
            created_at=to_datetime(self.created_at),
            updated_at=to_datetime(self.updated_at),
            last_at=to_datetime_or_none(self.last_at),
            last_task_id=self.last_task_id,
            last_error=self.last_error,
            declared=self.declared,
            expires_in=self.expires_in,
            limits=self.limits,
            group=self.group,
            every=self.every,
            at=to_datetime_or_none(self.at),
            jitter=self.jitter,
            start_at=to_datetime_or_none(self.start_at),
            end_at=to_datetime_or_none(self.end_at),
            overlap=self.overlap,
            due_at=to_datetime_or_none(self.due_at),
            skipped=self.skipped,
            last_skipped_at=to_datetime_or_none(self.last_skipped_at),
            unfinished_task_id=self.unfinished_task_id,
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
    """A schedule and its next runs."""

    schedule: Schedule
    next_runs: Annotated[
        list[Timestamp], Meta(description="When its next tasks are enqueued; fewer if it ends, none if it is disabled.")
    ] = []

    @classmethod
    def from_model(cls, schedule: model_schedule.Schedule, runs: Sequence[datetime] = ()) -> Self:
        """The schedule as an answer."""
        return cls(schedule=Schedule.from_model(schedule), next_runs=[to_text(run) for run in runs])

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
    free_at: Annotated[
        Timestamp | None, Meta(description="When the last task of a schedule with the overlap `queue` ended.")
    ] = None

    @classmethod
    def from_model(cls, due: DueSchedule) -> Self:
        """The due schedule as JSON."""
        free_at = to_text_or_none(due.free_at)
        return cls(schedule=Schedule.from_model(due.schedule), now=to_text(due.now), free_at=free_at)

    def to_model(self) -> DueSchedule:
        """The due schedule."""
        free_at = to_datetime_or_none(self.free_at)
        return DueSchedule(schedule=self.schedule.to_model(), now=to_datetime(self.now), free_at=free_at)


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
    cron: Cron | None = None
    timezone: Zone = "UTC"
    every: Interval | None = field(name="every_seconds", default=None)

    @classmethod
    def from_model(cls, due: DueSchedule) -> Self:
        """The tick to send."""
        schedule = due.schedule
        return cls(
            next_at=utc(schedule.next_at or due.now),
            now=utc(due.now),
            cron=schedule.cron,
            timezone=schedule.timezone,
            every=schedule.every,
        )
