"""The ticks of schedules for the schedules page: the next ones, and the number in each quarter of an hour.

Only `model/timing.py` decides when a schedule ticks.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from dibs.errors import InvalidValue
from dibs.model.schedule import Schedule, next_runs
from dibs.model.timing import Timing, local

QUARTERS = 96
"""Quarters of an hour in the chart: 24 hours."""

NEXT = 5
"""Ticks that are shown for each schedule."""


def next_ticks(schedule: Schedule) -> list[datetime]:
    """Return the next ticks in the time zone of the schedule; none for a disabled schedule."""
    if not schedule.enabled:
        return []
    if schedule.due_at is not None and schedule.due_at <= datetime.now(UTC):
        runs = next_runs(schedule)  # missed ticks, of which `catch_up` may leave some out
    else:
        runs = list(_next_runs(schedule.timing, schedule.next_at))
    return [local(run, schedule.timezone) for run in runs]


def ticks_per_quarter(schedules: Iterable[Schedule], now: datetime) -> list[int]:
    """Return the number of ticks of all schedules in each quarter of an hour of the next 24 hours."""
    start = now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0)
    sums = [0] * QUARTERS
    for each in schedules:
        if each.enabled:
            sums = [one + other for one, other in zip(sums, _busy(each.timing, start), strict=True)]
    return sums


def hours() -> list[str]:
    """Return the labels under a chart of the next 24 hours."""
    return ["now", *(f"in {hours} h" for hours in range(6, 25, 6))]


def quarter(now: datetime, number: int) -> str:
    """Return the start (UTC) of a quarter of an hour, as hour and minute."""
    start = now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0)
    return f"{start + number * timedelta(minutes=15):%H:%M}"


@lru_cache(4096)
def _next_runs(timing: Timing, tick: datetime | None) -> tuple[datetime, ...]:
    """Return the next runs, cached: a date that occurs once in four years takes long to find."""
    try:
        return tuple(timing.next_runs(tick, NEXT))
    except InvalidValue:  # the time zone is unknown on this machine, which is needed for the ticks after the next
        return tuple(timing.next_runs(tick, 1))


@lru_cache(4096)
def _busy(timing: Timing, start: datetime) -> tuple[int, ...]:
    try:
        return tuple(timing.ticks_per_quarter_hour(start, QUARTERS))
    except InvalidValue:
        return (0,) * QUARTERS
