"""Cron expressions in words: "at 03:30 on weekdays".

cronsim parses the expression into the sets of values on which it fires; the words are made from these sets, so that
expressions with the same meaning have the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from dibs.model.cron import parse_cron

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
LAST, LAST_WEEKDAY = -1000, -1001
MAX_TIMES = 6
"""The largest number of times of the day that are listed."""

WORKDAYS, WEEKEND = {1, 2, 3, 4, 5}, {0, 6}


@lru_cache(4096)
def cron_in_words(expression: str) -> str:
    """The expression in words. InvalidValue if the expression is not valid."""
    fields = parse_cron(expression)
    day = _day(fields)
    if times := _fixed_times(fields):
        return f"at {_and(times)} {day or 'every day'}"
    return f"{_interval(fields)} {day}".rstrip()


def has_time_of_day(expression: str) -> bool:
    """True if the expression names hours or days, so that its ticks depend on the time zone."""
    fields = parse_cron(expression)
    return bool(_day(fields)) or len(fields.hours) < 24


def _fixed_times(fields: Any) -> list[str]:
    """The times of the day; none if there are many."""
    if len(fields.seconds) * len(fields.minutes) * len(fields.hours) > MAX_TIMES:
        return []
    seconds = [f":{second:02}" for second in sorted(fields.seconds)] if fields.seconds != {0} else [""]
    return [
        f"{hour:02}:{minute:02}{second}"
        for hour in sorted(fields.hours)
        for minute in sorted(fields.minutes)
        for second in seconds
    ]


def _interval(fields: Any) -> str:
    """The times of the day of an expression with many of them."""
    hours = _hours(fields)
    if fields.seconds == {0}:
        return f"{_minutes(fields, hours)} {hours}".rstrip()
    if len(fields.minutes) == 60:
        return f"{_repeated(fields.seconds, 'second', 60, of=' of every minute')} {hours}".rstrip()
    minutes = f"in {_numbers(fields.minutes, 'minute')}"
    return f"{_repeated(fields.seconds, 'second', 60)} {minutes}{_of_every_hour(hours)} {hours}".rstrip()


def _minutes(fields: Any, hours: str) -> str:
    if len(fields.minutes) > 1:
        return _repeated(fields.minutes, "minute", 60, of=_of_every_hour(hours))
    [minute] = fields.minutes
    step = _step(fields.hours, 24)
    if step > 1:
        return f"every {step} hours" + (f" at minute {minute}" if minute else "")
    return "every hour" if minute == 0 or hours.startswith("from") else f"every hour at minute {minute}"


def _of_every_hour(hours: str) -> str:
    return "" if hours.startswith("in") else " of every hour"


def _hours(fields: Any) -> str:
    """The hours of the day; empty if the words for the minutes contain them."""
    one_minute = len(fields.minutes) == 1 and fields.seconds == {0}
    if len(fields.hours) == 24 or (one_minute and _step(fields.hours, 24)):
        return ""
    hours = sorted(fields.hours)
    if _distance(hours) == 1 or len(hours) == 1:
        first, last = (min(fields.minutes),) * 2 if one_minute else (0, 59)
        return f"from {hours[0]:02}:{first:02} to {hours[-1]:02}:{last:02}"
    if step := _step(fields.hours, 24):
        return f"in every {_ordinal(step)} hour from 00:00"
    return f"in {_numbers(fields.hours, 'hour')}"


def _repeated(values: set[int], unit: str, whole: int, *, of: str = "") -> str:
    """Several values of a field: "every 5 minutes". `of`: where the numbers of the values count from."""
    numbers = sorted(values)
    if len(numbers) == whole:
        return f"every {unit}"
    if step := _step(values, whole):
        return f"every {step} {unit}s"
    if len(numbers) > 3 and (step := _distance(numbers)):
        every = f"every {unit}" if step == 1 else f"every {step} {unit}s"
        return f"{every} from {unit} {numbers[0]} to {numbers[-1]}{of}"
    return f"at {_numbers(values, unit)}{of}"


def _step(values: set[int], whole: int) -> int:
    """The step of values that repeat evenly from 0 beyond the end of the field; 0 if they do not."""
    step = whole // len(values)
    return step if len(values) > 1 and values == set(range(0, whole, step)) and whole % step == 0 else 0


def _distance(numbers: Sequence[int]) -> int:
    """The distance of equidistant numbers; 0 for others."""
    steps = {later - earlier for earlier, later in pairwise(numbers)}
    return steps.pop() if len(steps) == 1 else 0


def _numbers(values: set[int], unit: str) -> str:
    """The values with their unit: "minutes 5 and 10 to 20"."""
    runs = _runs(sorted(values))
    return f"{unit}{'s' if len(values) > 1 else ''} {_and(_range(run, str) for run in runs)}"


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """The numbers in groups of consecutive ones."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [part for run in runs for part in ([run] if len(run) > 2 else [[each] for each in run])]


def _range(run: Sequence[int], name: Any) -> str:
    return str(name(run[0])) if len(run) == 1 else f"{name(run[0])} to {name(run[-1])}"


def _day(fields: Any) -> str:
    """The days; empty if there is one tick or more on every day."""
    months = "" if len(fields.months) == 12 else _and(_month_names(fields.months))
    every_date, every_weekday = _has_all_dates(fields), _has_all_weekdays(fields)
    if every_date or every_weekday:
        if not fields.day_and or (every_date and every_weekday):
            return f"every day in {months}" if months else ""
        return _with_months(_weekdays(fields), months) if every_date else _dates(fields, months)
    if fields.day_and:
        return f"{_with_months(_weekdays(fields), months)}, but only {_dates(fields, '')}"
    return f"{_dates(fields, months)} and {_with_months(_weekdays(fields), months)}"


def _with_months(text: str, months: str) -> str:
    return f"{text} in {months}" if months else text


def _dates(fields: Any, months: str) -> str:
    """The days of the month: "on the 1st and the last day of the month"."""
    dates = sorted(each for each in fields.days if each > 0)
    words = [_range(run, lambda day: f"the {_ordinal(day)}") for run in _runs(dates)]
    words += ["the last day"] * (LAST in fields.days)
    words += ["the last working day"] * (LAST_WEEKDAY in fields.days)
    return f"on {_and(words)} of {months or 'the month'}"


def _weekdays(fields: Any) -> str:
    """The days of the week: "on weekdays", "on the first Monday of the month"."""
    plain = {each % 7 for each in fields.weekdays if isinstance(each, int)}
    words = [] if not plain else [_plain_weekdays(plain)]
    numbered = sorted(((day % 7, nth) for day, nth in _tuples(fields.weekdays)), key=lambda each: (each[1] < 0, each))
    names = [f"the {NTH.get(nth, 'last')} {DAYS[day]}" for day, nth in dict.fromkeys(numbered)]
    return "on " + _and([*words, *([f"{_and(names)} of the month"] if names else [])])


def _plain_weekdays(days: set[int]) -> str:
    if days == WORKDAYS:
        return "weekdays"
    if days == WEEKEND:
        return "weekends"
    from_monday = sorted((day - 1) % 7 for day in days)
    return _and(_range(run, lambda day: f"{DAYS[(day + 1) % 7]}s") for run in _runs(from_monday))


def _tuples(items: Iterable[Any]) -> Iterable[tuple[int, int]]:
    return (each for each in items if isinstance(each, tuple))


def _month_names(months: set[int]) -> list[str]:
    return [_range(run, lambda month: MONTHS[month - 1]) for run in _runs(sorted(months))]


def _has_all_dates(fields: Any) -> bool:
    return set(fields.days) >= set(range(1, 32))


def _has_all_weekdays(fields: Any) -> bool:
    return {each % 7 for each in fields.weekdays if isinstance(each, int)} == set(range(7))


def _ordinal(number: int) -> str:
    ending = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _and(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
