"""The ticks of schedules for the schedules page: a cron expression in words, its next ticks, and ticks per quarter of
an hour.

Only `model/cron.py` decides when a schedule ticks. Here an expression without simple words is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

from dibs.errors import InvalidValue
from dibs.model.cron import NICKNAMES, next_after, ticks_per_quarter_hour
from dibs.model.schedule import Schedule

QUARTERS = 96
"""Quarters of an hour in the chart: 24 hours."""

NEXT = 5
"""Ticks that are shown for each schedule."""

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_EVERY = re.compile(r"\*/([0-9]{1,2})")


def in_words(expression: str) -> str | None:
    """Describe a simple cron expression in words; None for a complex one."""
    fields = NICKNAMES.get(expression.lower(), expression).upper().split()
    if len(fields) == 6:
        return _every(fields[0], "second", 60) if set(fields[1:]) == {"*"} else None
    if len(fields) != 5:
        return None
    time, day = _time(fields[0], fields[1]), _day(*fields[2:])
    if time is None or day is None:
        return None
    if day == "":
        return time if time.startswith("every") else f"every day {time}"
    return f"{time}, {day}" if time.startswith("every") else f"{day} {time}"


def next_ticks(schedule: Schedule) -> list[datetime]:
    """Return the next ticks in the time zone of the schedule; none for a disabled schedule."""
    if not schedule.enabled:
        return []
    ticks = _next_ticks(schedule.cron, schedule.timezone, schedule.next_at)
    return [tick.astimezone(_zone(schedule.timezone)) for tick in ticks]


def ticks_per_quarter(schedules: Iterable[Schedule], now: datetime) -> list[int]:
    """Return the number of ticks of all schedules in each quarter of an hour of the next 24 hours."""
    start = now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0)
    sums = [0] * QUARTERS
    for each in schedules:
        if each.enabled:
            sums = [one + other for one, other in zip(sums, _busy(each.cron, each.timezone, start), strict=True)]
    return sums


def hours() -> list[str]:
    """Return the labels under a chart of the next 24 hours."""
    return ["now", *(f"in {hours} h" for hours in range(6, 25, 6))]


def quarter(now: datetime, number: int) -> str:
    """Return the start (UTC) of a quarter of an hour, as hour and minute."""
    start = now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0)
    return f"{start + number * timedelta(minutes=15):%H:%M}"


@lru_cache(4096)
def _next_ticks(cron: str, timezone: str, first: datetime) -> tuple[datetime, ...]:
    """Return the next ticks, cached: a date that occurs once in four years takes long to find."""
    return tuple(islice(_ticks(cron, timezone, first), NEXT))


def _ticks(cron: str, timezone: str, tick: datetime) -> Iterable[datetime]:
    try:
        while True:
            yield tick
            tick = next_after(cron, timezone, tick)
    except InvalidValue:  # the schedule never ticks again, or its time zone is unknown on this machine
        return


@lru_cache(1024)
def _zone(timezone: str) -> tzinfo:
    try:
        return UTC if timezone == "UTC" else ZoneInfo(timezone)
    except (LookupError, ValueError, OSError):
        return UTC


@lru_cache(4096)
def _busy(cron: str, timezone: str, start: datetime) -> tuple[int, ...]:
    try:
        return tuple(ticks_per_quarter_hour(cron, timezone, start, QUARTERS))
    except InvalidValue:
        return (0,) * QUARTERS


def _time(minute: str, hour: str) -> str | None:
    if hour == "*":
        if minute.isdigit():
            return "every hour, on the hour" if int(minute) == 0 else f"every hour at minute {int(minute)}"
        return _every(minute, "minute", 60)
    if not minute.isdigit():
        return None
    if hours := _every(hour, "hour", 24):
        return f"{hours} at minute {int(minute)}" if int(minute) else hours
    times = hour.split(",")
    if not all(each.isdigit() for each in times):
        return None
    return "at " + _list([f"{int(each):02}:{int(minute):02}" for each in times])


def _every(field: str, unit: str, whole: int) -> str | None:
    if field == "*":
        return f"every {unit}"
    found = _EVERY.fullmatch(field)
    if found is None or int(found[1]) == 0 or whole % int(found[1]):
        return None  # */7 restarts with each hour, so it is not every 7 minutes
    return f"every {unit}" if int(found[1]) == 1 else f"every {int(found[1])} {unit}s"


def _day(day: str, month: str, weekday: str) -> str | None:
    match (day, month, weekday):
        case ("*", "*", "*"):
            return ""
        case ("*", "*", _):
            return _weekdays(weekday)
        case ("L", "*", "*"):
            return "on the last day of every month"
        case (_, "*", "*") if day.isdigit():
            return f"on the {_ordinal(int(day))} of every month"
        case (_, _, "*") if day.isdigit() and month.isdigit():
            return f"every year on {int(day)} {MONTHS[int(month) - 1]}"
    return None


def _weekdays(field: str) -> str | None:
    first, _, last = field.partition("-")
    if last:
        names = (_weekday(first), _weekday(last))
        return None if None in names else f"{names[0]} to {names[1]}"
    found = [_weekday(each) for each in field.split(",")]
    return None if None in found else "on " + _list([f"{each}s" for each in found])


def _weekday(text: str) -> str | None:
    if text.isdigit():
        return DAYS[int(text) % 7]
    return next((name for name in DAYS if name[:3].upper() == text), None)


def _ordinal(number: int) -> str:
    ending = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
