"""Cron expressions in a time zone: the ticks at which a schedule fires, as pure functions.

All times are aware datetimes; returned times are in UTC. The library cronsim parses the expressions and computes the
ticks in local time. This module adds the conversion to UTC, the limits on the work, and error messages with hints.

At a change of daylight saving time, an expression with five fields behaves as in Debian's cron (tests/unit/test_cron.py
has a test for each rule). If the change skips the fixed hour of an expression, the schedule fires once, right after the
change. If the fixed hour occurs twice, the schedule fires in the first of the two hours only. An expression whose
minute or hour starts with `*` follows local time. An expression with six fields (seconds first), which Debian's cron
does not have, always follows local time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from dibs.errors import InvalidValue
from dibs.json_values import check_name

if TYPE_CHECKING:
    from cronsim import CronSim

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

EXAMPLE = (
    'Use five fields (minute, hour, day, month, weekday), for example "*/5 * * * *", six with seconds first, or one of '
    + ", ".join(NICKNAMES)
    + "."
)
REFERENCE_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""The time from which `check_cron` computes a tick. The time is fixed, so that a check does not depend on the clock."""

SECOND = timedelta(seconds=1)
QUARTER_HOUR = timedelta(minutes=15)


def next_after(expression: str, timezone: str, moment: datetime) -> datetime:
    """The first tick that is strictly later than `moment`."""
    for tick in _ticks_after(expression, timezone, moment):
        return tick
    raise InvalidValue(f"The schedule {expression!r} never fires again.", hint="No date of the next 50 years fits it.")


def ticks_between(
    expression: str, timezone: str, first: datetime, last: datetime, *, limit: int | None = None
) -> list[datetime]:
    """The ticks from `first` to `last`, both included, in order. With a limit: only the newest `limit` ticks."""
    after = first - SECOND if limit is None else _before_newest(expression, timezone, first, last, limit)
    ticks = takewhile(lambda tick: tick <= last, _ticks_after(expression, timezone, after))
    return list(deque((tick for tick in ticks if tick >= first), limit))


def ticks_per_quarter_hour(expression: str, timezone: str, start: datetime, quarters: int) -> list[int]:
    """Count the ticks in each of `quarters` quarter hours from `start`.

    The counts are computed from the fields of the expression, because stepping through a day with one tick a second
    takes seconds. At a change of daylight saving time the counts are approximate."""
    zone, starts = zone_of(timezone), (start + number * QUARTER_HOUR for number in range(quarters))
    fields = _simulate(expression, start)
    per_quarter = [len(fields.seconds) * sum(minute // 15 == each for minute in fields.minutes) for each in range(4)]
    day_matches: dict[date, bool] = {}
    counts = []
    for quarter_start in starts:
        local = quarter_start.astimezone(zone)
        if (day := local.date()) not in day_matches:
            day_matches[day] = day.month in fields.months and fields.match_day(day)
        counts.append(per_quarter[local.minute // 15] if day_matches[day] and local.hour in fields.hours else 0)
    return counts


def check_cron(expression: Any) -> str:
    """Check that a cron expression is well-formed and fires at least once in 50 years, and return it."""
    check_name(expression, "The cron expression")
    next_after(expression, "UTC", REFERENCE_TIME)
    return str(expression)


def parse_cron(expression: str) -> CronSim:
    """The fields of the expression: its seconds, minutes, hours, days, months and weekdays as sets of values."""
    return _simulate(expression, REFERENCE_TIME)


def check_timezone(name: Any) -> str:
    """Check that this machine knows the time zone, and return its name."""
    check_name(name, "The time zone")
    zone_of(name)
    return str(name)


def zone_of(name: str) -> tzinfo:
    """The time zone of this name. InvalidValue if this machine does not know it."""
    if name == "UTC":  # known without a time zone database
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # an unknown name, an absolute path, a directory of time zones
        raise InvalidValue(f"This machine does not know the time zone {name!r}.", hint=_timezone_hint(name)) from None


def _ticks_after(expression: str, timezone: str, moment: datetime) -> Iterator[datetime]:
    ticks = _simulate(expression, moment.astimezone(zone_of(timezone)))
    # In an hour that occurs twice, two ticks have the same local time, and one of the two may be before `moment`.
    return (tick for tick in (each.astimezone(UTC) for each in ticks) if tick > moment)


def _simulate(expression: str, moment: datetime) -> CronSim:
    """The ticks after `moment`, in the time zone of `moment`. InvalidValue if the expression is not valid."""
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(NICKNAMES.get(expression.lower(), expression), moment)
    except CronSimError as error:
        if str(error) == "Bad day-of-month" and _is_valid_in_other_months(expression, moment):
            message = f"The schedule {expression!r} never fires: none of its months has such a day."
            raise InvalidValue(message, hint="Choose another day or month; the last day of a month is L.") from None
        raise InvalidValue(f"{expression!r} is not a cron expression: {error}.", hint=EXAMPLE) from None


def _is_valid_in_other_months(expression: str, moment: datetime) -> bool:
    """True if the expression is valid with `*` as its month: then its months lack its days, as in "0 0 30 2 *"."""
    fields = expression.split()
    if fields[-2] == "*":
        return False
    with suppress(InvalidValue):
        _simulate(" ".join([*fields[:-2], "*", fields[-1]]), moment)
        return True
    return False


def _before_newest(expression: str, timezone: str, first: datetime, last: datetime, limit: int) -> datetime:
    """A time after which at least `limit` ticks follow up to `last`, if the search finds one; else just before `first`.

    The search doubles a window that ends at `last`. Stepping through every tick since `first` would take minutes after
    a year of downtime."""
    window = timedelta(minutes=1)
    while (start := last - window) >= first:
        if _has_at_least(expression, timezone, start, last, limit):
            return start
        window *= 2
    return first - SECOND


def _has_at_least(expression: str, timezone: str, start: datetime, last: datetime, limit: int) -> bool:
    ticks = takewhile(lambda tick: tick <= last, _ticks_after(expression, timezone, start))
    return next(islice(ticks, limit - 1, None), None) is not None


def _timezone_hint(name: str) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    known = available_timezones()
    if len(known) <= 1:
        return "This machine has no time zone database. Install one: pip install tzdata"
    close = get_close_matches(name, known, 1)
    return f"Did you mean {close[0]!r}?" if close else 'Use a name such as "Europe/Berlin" or "UTC".'
