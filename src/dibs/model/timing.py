"""When a schedule ticks: by a cron expression, at a fixed interval, or once; with a start, an end and jitter.

Every process computes the same ticks from the values of the schedule: an interval counts from the start of the
schedule, or from 1970, and the jitter of a tick is a hash of the schedule's name and the tick.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import islice, takewhile
from typing import Any

import msgspec

from dibs.errors import InvalidValue
from dibs.model.checks import EPOCH, check_moment, check_seconds, to_micros
from dibs.model.cron import (
    QUARTER_HOUR,
    check_cron,
    check_timezone,
    next_after,
    ticks_between,
    ticks_per_quarter_hour,
    zone_of,
)

MICROSECOND = timedelta(microseconds=1)

LEAST_INTERVAL = 1.0
"""Seconds. Workers read the due schedules once a second."""

MAX_JITTER = 3600.0
"""Seconds. Bounds the ticks of a second-by-second expression that wait for their jitter."""

UNITS = ((3600, "hour"), (60, "minute"), (1, "second"))


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks of the schedule `name`. One of `cron`, `every` (seconds) and `at` is set. `jitter`: the largest delay
    of a tick, in seconds. `start_at`, `end_at`: no tick is earlier, or later."""

    name: str
    cron: str | None = None
    timezone: str = "UTC"
    every: float | None = None
    at: datetime | None = None
    jitter: float = 0
    start_at: datetime | None = None
    end_at: datetime | None = None

    def check(self) -> None:
        """Raise InvalidValue unless the values fit together and the schedule ticks at least once."""
        _check_kind(self)
        _check_jitter(self)
        for value, what in ((self.start_at, "start_at"), (self.end_at, "end_at")):
            if value is not None:
                check_moment(value, what)
        if self.end_at is not None and self.next_after(max(self.start_at or EPOCH, EPOCH) - MICROSECOND) is None:
            hint = "end_at must be later than the first tick after start_at."
            raise InvalidValue(f"The schedule {self.name!r} ends before its first tick.", hint=hint)

    def next_after(self, moment: datetime) -> datetime | None:
        """The first tick that is later than `moment`, in UTC; None if there is none."""
        if self.start_at is not None and self.start_at > moment:
            moment = self.start_at - MICROSECOND
        tick = self._next_after(moment)
        return None if tick is None or (self.end_at is not None and tick > self.end_at) else tick

    def first_after(self, now: datetime) -> datetime | None:
        """The first tick of a schedule that is stored now: a single time may have passed."""
        return self.next_after(now) if self.at is None else self.at.astimezone(UTC)

    def due_at(self, tick: datetime) -> datetime:
        """When the task of this tick is enqueued: up to `jitter` seconds after it."""
        if not self.jitter:
            return tick
        digest = blake2b(f"{self.name}\n{to_micros(tick)}".encode(), digest_size=8).digest()
        return tick + timedelta(seconds=self.jitter) * (int.from_bytes(digest, "big") / 2**64)

    def due_ticks(self, first: datetime, now: datetime, limit: int) -> list[datetime]:
        """The ticks from `first` on whose tasks are to be enqueued by now, in order: the newest `limit` of them. A tick
        waits for the jitter of the ticks before it."""
        certain = now - timedelta(seconds=self.jitter)  # the jitter of these ticks has passed
        newer = takewhile(lambda tick: self.due_at(tick) <= now, self._ticks(max(first, certain + MICROSECOND), now))
        return [*self._newest(first, certain, limit), *(newer if self.jitter else ())][-limit:]

    def next_runs(self, tick: datetime | None, count: int) -> list[datetime]:
        """When the tasks of `count` ticks are enqueued, from this tick on."""
        return [self.due_at(each) for each in islice(self._following(tick), count)]

    def ticks_per_quarter_hour(self, start: datetime, quarters: int) -> list[int]:
        """The number of ticks in each of `quarters` quarter hours from `start`, without their jitter."""
        starts = [start + number * QUARTER_HOUR for number in range(quarters)]
        if self.cron is None:
            return [self._count(each, each + QUARTER_HOUR - MICROSECOND) for each in starts]
        first, last = self.start_at or start, self.end_at or starts[-1]
        counts = ticks_per_quarter_hour(self.cron, self.timezone, start, quarters)
        return [
            count if each + QUARTER_HOUR > first and each <= last else 0
            for each, count in zip(starts, counts, strict=True)
        ]

    @property
    def words(self) -> str:
        """The timing in words: "at 03:30 on weekdays, Europe/Berlin"."""
        return ", ".join(_words(self))

    def _next_after(self, moment: datetime) -> datetime | None:
        if self.at is not None:
            return self.at.astimezone(UTC) if self.at > moment else None
        if self.cron is not None:
            return next_after(self.cron, self.timezone, moment)
        try:
            return self._at_interval((moment - self._anchor) // self._interval + 1)
        except OverflowError:  # after the year 9999
            return None

    def _newest(self, first: datetime, last: datetime, limit: int) -> list[datetime]:
        """The newest `limit` ticks from `first` to `last`, in order."""
        first = first if self.start_at is None else max(first, self.start_at)
        last = last if self.end_at is None else min(last, self.end_at)
        if self.at is not None:
            return [self.at.astimezone(UTC)] if first <= self.at <= last else []
        if self.cron is not None:
            return ticks_between(self.cron, self.timezone, first, last, limit=limit)
        oldest, newest = self._numbers(first, last)
        return [self._at_interval(number) for number in range(max(oldest, newest - limit + 1), newest + 1)]

    def _count(self, first: datetime, last: datetime) -> int:
        """The number of ticks from `first` to `last` of a schedule without a cron expression."""
        if self.at is not None:
            return int(first <= self.at <= last)
        oldest, newest = self._numbers(max(first, self.start_at or first), min(last, self.end_at or last))
        return max(newest - oldest + 1, 0)

    def _numbers(self, first: datetime, last: datetime) -> tuple[int, int]:
        """The numbers of the first and the last tick of an interval in this time."""
        return -((self._anchor - first) // self._interval), (last - self._anchor) // self._interval

    def _ticks(self, first: datetime, last: datetime) -> Iterator[datetime]:
        return takewhile(lambda tick: tick <= last, self._following(self.next_after(first - MICROSECOND)))

    def _following(self, tick: datetime | None) -> Iterator[datetime]:
        while tick is not None:
            yield tick
            tick = self.next_after(tick)

    def _at_interval(self, number: int) -> datetime:
        return self._anchor + number * self._interval

    @property
    def _anchor(self) -> datetime:
        return EPOCH if self.start_at is None else self.start_at.astimezone(UTC)

    @property
    def _interval(self) -> timedelta:
        return timedelta(seconds=self.every or 0)


def _check_kind(timing: Timing) -> None:
    given = [name for name in ("cron", "every", "at") if getattr(timing, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        hint = "Give one of cron (an expression), every (seconds) and at (a time)."
        raise InvalidValue(f"A schedule needs one of cron, every and at; {timing.name!r} has {found}.", hint=hint)
    if timing.cron is not None:
        check_cron(timing.cron)
    if timing.cron is None and timing.timezone != "UTC":
        raise InvalidValue("A time zone belongs to a cron expression.", hint="every and at do not depend on it.")
    check_timezone(timing.timezone)
    if timing.every is not None:
        check_seconds(timing.every, "every", least=LEAST_INTERVAL)
    if timing.at is not None:
        _check_single_time(timing)


def _check_single_time(timing: Timing) -> None:
    check_moment(timing.at, "at")
    if timing.jitter or timing.start_at is not None or timing.end_at is not None:
        raise InvalidValue("A schedule with a single time (at) has no jitter, start or end.", hint="Choose the time.")


def _check_jitter(timing: Timing) -> None:
    check_seconds(timing.jitter, "jitter")
    if timing.jitter > MAX_JITTER:
        raise InvalidValue(f"jitter is {timing.jitter:g} seconds; the limit is {MAX_JITTER:g}.")
    if timing.every is not None and timing.jitter >= timing.every:
        hint = "Otherwise a tick could come after the next one."
        raise InvalidValue(f"jitter must be shorter than every, which is {timing.every:g} seconds.", hint=hint)


def _words(timing: Timing) -> Iterator[str]:
    from dibs.model.cron_words import cron_in_words, has_time_of_day

    if timing.at is not None:
        yield f"once, at {_moment(timing.at)}"
    elif timing.cron is not None:
        yield cron_in_words(timing.cron)
        if has_time_of_day(timing.cron):
            yield timing.timezone
    elif timing.every is not None:
        yield f"every {_duration(timing.every)}"
    if timing.jitter:
        yield f"each up to {_duration(timing.jitter, one='1 ')} later"
    if timing.start_at is not None:
        yield f"from {_moment(timing.start_at)}"
    if timing.end_at is not None:
        yield f"until {_moment(timing.end_at)}"


def _duration(seconds: float, one: str = "") -> str:
    """A duration in its largest whole unit: "90 seconds", or for one unit "minute"."""
    for size, name in UNITS:
        if seconds % size == 0:
            number = round(seconds) // size
            return f"{one}{name}" if number == 1 else f"{number} {name}s"
    return f"{seconds:g} seconds"


def _moment(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def local(value: datetime, timezone: str) -> datetime:
    """The time in this time zone, or in UTC if this machine does not know it."""
    try:
        return value.astimezone(zone_of(timezone))
    except InvalidValue:
        return value.astimezone(UTC)


def timing_of(schedule: Any) -> Timing:
    """The timing of a stored schedule, or of one to store."""
    return Timing(**{name: getattr(schedule, name) for name in Timing.__struct_fields__})
