"""When a schedule fires: cron expressions in a time zone, as pure functions of a moment.

Every moment that goes in or comes out is aware, what comes out is UTC, and a tick is always strictly later than the
moment that was asked about. Around daylight saving a five-field expression behaves as Debian's cron does: a job at a
fixed hour that the change skips runs once, right after it; in an hour that comes twice it runs the first time only;
a job whose minute or hour begins with `*` simply follows the clock on the wall. Expressions with six fields (seconds
first) are beyond Debian's cron and always follow the clock on the wall.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from typing import Any

from dibs.codec import check_name
from dibs.errors import InvalidValue

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
SOME_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
QUARTER = timedelta(minutes=15)


def next_after(expression: str, timezone: str, moment: datetime) -> datetime:
    """The first tick after the moment."""
    for tick in _ticks_after(expression, timezone, moment):
        return tick
    raise InvalidValue(f"The schedule {expression!r} never fires again.", hint="No date of the next 50 years fits it.")


def ticks_between(
    expression: str, timezone: str, first: datetime, last: datetime, *, limit: int | None = None
) -> list[datetime]:
    """The ticks from `first` to `last`, both included, in order; with a limit, the newest of them."""
    after = first - SECOND if limit is None else _shortly_before(expression, timezone, first, last, limit)
    ticks = takewhile(lambda tick: tick <= last, _ticks_after(expression, timezone, after))
    return list(deque((tick for tick in ticks if tick >= first), limit))


def busy(expression: str, timezone: str, start: datetime, quarters: int) -> list[int]:
    """How many ticks there are in each of so many quarters of an hour, read off the expression: to walk through a day
    at one tick a second would take seconds. Where the clocks change it is only about so many."""
    from cronsim import CronSim

    zone, moments = _zone(timezone), (start + number * QUARTER for number in range(quarters))
    sim = CronSim(NICKNAMES.get(expression.lower(), expression), start)
    counts = [len(sim.seconds) * sum(each // 15 == quarter for each in sim.minutes) for quarter in range(4)]
    days: dict[date, bool] = {}
    found = []
    for moment in moments:
        local = moment.astimezone(zone)
        if (day := local.date()) not in days:
            days[day] = day.month in sim.months and sim.match_day(day)
        found.append(counts[local.minute // 15] if days[day] and local.hour in sim.hours else 0)
    return found


def check_cron(expression: Any) -> str:
    """A cron expression that is well-formed and fires at least once in 50 years."""
    check_name(expression, "The cron expression")
    next_after(expression, "UTC", SOME_MOMENT)
    return str(expression)


def check_timezone(name: Any) -> str:
    """The name of a time zone that this machine knows."""
    check_name(name, "The time zone")
    _zone(name)
    return str(name)


def _ticks_after(expression: str, timezone: str, moment: datetime) -> Iterator[datetime]:
    ticks = _simulate(expression, moment.astimezone(_zone(timezone)))
    # In an hour that comes twice, the same time on the wall is also one that is over: never go back to it.
    return (tick for tick in (each.astimezone(UTC) for each in ticks) if tick > moment)


def _simulate(expression: str, moment: datetime) -> Iterator[datetime]:
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(NICKNAMES.get(expression.lower(), expression), moment)
    except CronSimError as error:
        if str(error) == "Bad day-of-month" and _is_fine_in_other_months(expression, moment):
            message = f"The schedule {expression!r} never fires: none of its months has such a day."
            raise InvalidValue(message, hint="Choose another day or month; the last day of a month is L.") from None
        raise InvalidValue(f"{expression!r} is not a cron expression: {error}.", hint=EXAMPLE) from None


def _is_fine_in_other_months(expression: str, moment: datetime) -> bool:
    fields = expression.split()
    if fields[-2] == "*":
        return False
    with suppress(InvalidValue):
        _simulate(" ".join([*fields[:-2], "*", fields[-1]]), moment)
        return True
    return False


def _shortly_before(expression: str, timezone: str, first: datetime, last: datetime, limit: int) -> datetime:
    """A moment with `limit` ticks (if there are so many) between it and `last`: after a year of downtime it would take
    minutes to walk through every second since `first`."""
    window = timedelta(minutes=1)
    while (start := last - window) >= first:
        if _reaches(expression, timezone, start, last, limit):
            return start
        window *= 2
    return first - SECOND


def _reaches(expression: str, timezone: str, start: datetime, last: datetime, limit: int) -> bool:
    ticks = takewhile(lambda tick: tick <= last, _ticks_after(expression, timezone, start))
    return next(islice(ticks, limit - 1, None), None) is not None


def _zone(name: str) -> tzinfo:
    if name == "UTC":  # known without a database of time zones
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # unknown, not a relative path, a folder of zones
        raise InvalidValue(f"The time zone {name!r} is not known here.", hint=_hint(name)) from None


def _hint(name: str) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    known = available_timezones()
    if len(known) <= 1:
        return "This machine has no database of time zones: pip install tzdata"
    close = get_close_matches(name, known, 1)
    return f"Did you mean {close[0]!r}?" if close else 'Use a name such as "Europe/Berlin" or "UTC".'
