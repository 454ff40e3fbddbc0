"""Schedules: tasks that are enqueued at the ticks of a cron expression, at an interval, or once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from secrets import token_hex
from typing import Any, Literal

import msgspec

from dibs.errors import InvalidValue
from dibs.json_values import MAX_NAME, check_name
from dibs.model.checks import check_integer
from dibs.model.retry import DEFAULT_BACKOFF, Backoff
from dibs.model.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, NO_LIMITS, NewTask
from dibs.model.timing import Timing, timing_of
from dibs.model.workflow import check_type

TICK_LENGTH = len("2000-01-01T00:00:00Z")
"""The length of the last part of the keys of a schedule's tasks. It is the same in all of them, so that the keys of the
schedule `a` differ from those of a schedule `a:b` (see `unfinished_task` in the SQL)."""

MAX_SCHEDULE_NAME = MAX_NAME - len("schedule::") - TICK_LENGTH

MAX_NEXT_RUNS = 1000

CATCH_UP_LIMIT = 1000
"""The largest number of missed ticks that are caught up."""

ON_TIME = timedelta(seconds=60)
"""A tick that is later counts as missed."""

ScheduleSource = Literal["code", "command"]
"""Where a schedule was declared: in the code of a handler, or with a client or the command line."""


class CatchUp(StrEnum):
    """What to do with ticks that were missed because no worker or server was running."""

    ONE = "one"  # ticks missed for a minute or more become one task: that of the latest
    ALL = "all"  # each missed tick becomes a task; the newest 1000 at most
    NONE = "none"  # ticks that are more than a minute late are skipped


class Overlap(StrEnum):
    """What to do at a tick while a task of the schedule has not ended: it waits, runs, or is tried again later."""

    ALLOW = "allow"  # enqueue the task of the tick
    SKIP = "skip"  # enqueue nothing; the tick is counted as skipped
    QUEUE = "queue"  # the tick waits in the schedule until the task has ended


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to store, checked on construction. `cron` (with `timezone`), `every`, `at`, `jitter`, `start_at` and
    `end_at`: see Timing. `timeout`, `expires_in`: seconds. `enabled`: None leaves it unchanged. `expires_in` counts
    from the enqueue of a task, also where it is enqueued after its tick. `limits`, `group`: those of its tasks, which a
    tick obeys like any other enqueue."""

    name: str
    cron: str | None = None
    type: str
    params: dict[str, Any] = {}
    timezone: str = "UTC"
    every: float | None = None
    at: datetime | None = None
    jitter: float = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    overlap: str = Overlap.ALLOW
    catch_up: str = CatchUp.ONE
    enabled: bool | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: float | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    tags: Sequence[str] = []
    expires_in: float | None = None
    limits: Sequence[str] = NO_LIMITS
    group: str | None = None

    def __post_init__(self) -> None:
        check_schedule_name(self.name)
        self.timing.check()
        _check_word(self.catch_up, "catch_up", CatchUp)
        _check_word(self.overlap, "overlap", Overlap)
        if self.enabled is not None and type(self.enabled) is not bool:
            raise InvalidValue(f"enabled must be True, False or None, not {self.enabled!r}.")
        check_type(task_of(self))  # the construction of the task checks the other options

    @property
    def timing(self) -> Timing:
        """When the schedule ticks."""
        return timing_of(self)


class Schedule(msgspec.Struct, frozen=True):
    """A schedule as read from the store. A schedule that was set by hand stays as it is until its declaration in code
    changes. `declared`: the values that the code declares, if any; see `overridden`. `next_at`: the next tick, None if
    the schedule has ended; `due_at`: when its task is enqueued, which is later by the jitter of the tick.

    With another `overlap` than "allow", `unfinished_task_id` is a task of the schedule that has not ended. `skipped`:
    how many ticks were skipped for such a task; `last_skipped_at`: the last of them."""

    name: str
    cron: str | None
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
    next_at: datetime | None
    created_at: datetime
    updated_at: datetime
    last_at: datetime | None = None  # the last enqueued tick, and its task
    last_task_id: int | None = None
    last_error: str | None = None  # why the last tick was refused
    tags: list[str] = []
    declared: dict[str, Any] | None = None
    expires_in: float | None = None
    limits: list[str] = []
    group: str | None = None
    every: float | None = None
    at: datetime | None = None
    jitter: float = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    overlap: Overlap = Overlap.ALLOW
    due_at: datetime | None = None
    skipped: int = 0
    last_skipped_at: datetime | None = None
    unfinished_task_id: int | None = None

    @property
    def overridden(self) -> bool:
        """True if the schedule is declared in code, and was set by hand since that declaration."""
        return self.declared is not None and self.source == "command"

    @property
    def ended(self) -> bool:
        """True if no tick will come any more."""
        return self.next_at is None

    @property
    def state(self) -> str:
        """ "enabled", "disabled" or "ended"."""
        return "ended" if self.ended else "enabled" if self.enabled else "disabled"

    @property
    def timing(self) -> Timing:
        """When the schedule ticks."""
        return timing_of(self)

    @property
    def words(self) -> str:
        """When the schedule ticks, in words: "at 03:30 on weekdays, Europe/Berlin"."""
        return self.timing.words

    def next_runs(self, count: int = 5, *, now: datetime | None = None) -> list[datetime]:
        """When its next tasks are enqueued, with their jitter, in UTC; fewer if the schedule ends, none if it is
        disabled. A run may come later: if no worker runs, or if its tick waits for a task (`overlap="queue"`).

        Times in the past are missed ticks that will still be enqueued, by `catch_up`. `now`: by default, the time on
        this machine."""
        check_integer(count, "count", 0, MAX_NEXT_RUNS)
        if not self.enabled or self.next_at is None:
            return []
        now, timing = now or datetime.now(UTC), self.timing
        waits = self.overlap is Overlap.QUEUE and self.unfinished_task_id is not None
        late, last = due_ticks(self, now, free_at=now if waits else None)
        if last is None:
            return timing.next_runs(self.next_at, count)
        runs = [timing.due_at(tick) for tick in late[:count]]
        return runs + timing.next_runs(timing.next_after(last), count - len(runs))


def due_ticks(
    schedule: Schedule, now: datetime, free_at: datetime | None = None
) -> tuple[list[datetime], datetime | None]:
    """The ticks whose tasks are enqueued now, by `catch_up`, in order, and the last tick that is over; None if no tick
    is due. `free_at`: no tick is late before this time, because it waited for a task."""
    timing, first = schedule.timing, schedule.next_at or now

    def late(tick: datetime) -> timedelta:
        return now - max(timing.due_at(tick), free_at or first)

    only_latest = schedule.catch_up is CatchUp.ONE and late(first) >= ON_TIME
    ticks = timing.due_ticks(first, now, 1 if only_latest else CATCH_UP_LIMIT)
    last = ticks[-1] if ticks else None
    if schedule.catch_up is CatchUp.NONE:
        ticks = [tick for tick in ticks if late(tick) <= ON_TIME]
    return ticks, last


def next_runs(schedule: Schedule) -> list[datetime]:
    """The next five runs of the schedule; none if this machine does not know its time zone."""
    try:
        return schedule.next_runs()
    except InvalidValue:
        return []


def task_of(schedule: NewSchedule | Schedule, tick: datetime | None = None, *, key: str | None = None) -> NewTask:
    """The task to enqueue for a tick. Its idempotency key makes it unique, and its `run_at` is the tick. `key`: of a
    task beside the ticks."""
    return NewTask(
        schedule.type,
        schedule.params,
        queue=schedule.queue,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        timeout=schedule.timeout,
        backoff=schedule.backoff,
        tags=schedule.tags,
        expires_in=schedule.expires_in,
        limits=schedule.limits or NO_LIMITS,
        group=schedule.group,
        run_at=tick,
        key=key if tick is None else tick_key(schedule.name, tick),
    )


def tick_key(name: str, tick: datetime) -> str:
    """The idempotency key of the task for this tick. Ticks are at least a second apart, so milliseconds distinguish
    them."""
    form = "%Y-%m-%dT%H:%M:%SZ" if not tick.microsecond else f"%Y%m%dT%H%M%S.{tick.microsecond // 1000:03}Z"
    return f"schedule:{name}:{tick.astimezone(UTC):{form}}"


def run_key(name: str) -> str:
    """A new key for a task of the schedule that is enqueued by hand, beside the ticks."""
    return f"schedule:{name}:run-{token_hex(TICK_LENGTH // 2 - 2)}"


def check_schedule_name(name: Any) -> str:
    """Check a schedule's name, which must be short enough to be part of a key, and return it."""
    check_name(name, "The schedule's name")
    if len(name) > MAX_SCHEDULE_NAME:
        raise InvalidValue(f"The schedule's name has {len(name)} characters; the limit is {MAX_SCHEDULE_NAME}.")
    return str(name)


def _check_word(value: str, what: str, words: type[StrEnum]) -> None:
    if value not in [each.value for each in words]:
        raise InvalidValue(f"{value!r} is not a valid {what}.", hint=f"Use one of: {', '.join(words)}.")


class DueSchedule(msgspec.Struct, frozen=True):
    """A schedule with a due tick, and the database's time of the read. `free_at`: when the last task of a schedule with
    the overlap "queue" ended; None if it has had none, or if that is not recorded any more."""

    schedule: Schedule
    now: datetime
    free_at: datetime | None = None
