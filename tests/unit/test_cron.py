"""Cron: the next tick, also around daylight saving, on leap days and with an unknown time zone."""

from __future__ import annotations

import time
import zoneinfo
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dibs import InvalidValue
from dibs.model.cron import NICKNAMES, check_cron, check_timezone, next_after, ticks_between

BERLIN = "Europe/Berlin"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def berlin(tick: datetime) -> str:
    """What the clock on a wall in Berlin shows."""
    return f"{tick.astimezone(ZoneInfo(BERLIN)):%m-%d %H:%M %Z}"


def in_berlin(expression: str, first: str, last: str) -> list[str]:
    """The ticks between two moments in UTC, as Berlin sees them."""
    return [berlin(tick) for tick in ticks_between(expression, BERLIN, utc(first), utc(last))]


# The next tick


@pytest.mark.parametrize(
    ("expression", "after", "tick"),
    [
        ("*/5 * * * *", "2025-06-15 12:00:00", "2025-06-15 12:05:00"),
        ("*/5 * * * *", "2025-06-15 12:04:59.999999", "2025-06-15 12:05:00"),
        ("*/5 * * * *", "2025-06-15 12:05:00.000001", "2025-06-15 12:10:00"),
        ("0 0 1 1 *", "2025-06-15", "2026-01-01"),
        ("0 9 * * mon-fri", "2025-06-13 09:00", "2025-06-16 09:00"),
        ("0 0 L * *", "2025-02-01", "2025-02-28"),
        ("0 0 * * 1#2", "2025-06-01", "2025-06-09"),
        ("0 0 13 * 5", "2025-06-01", "2025-06-06"),  # the 13th, and every Friday
        ("0 0 29 2 *", "2024-02-29", "2028-02-29"),
        ("0 0 29 2 *", "2096-02-29", "2104-02-29"),  # 2100 has no leap day
        ("30 * * * * *", "2025-06-15 12:00:00", "2025-06-15 12:00:30"),
        ("*/10 * * * * *", "2025-06-15 12:00:55", "2025-06-15 12:01:00"),
        ("@hourly", "2025-06-15 12:00:00", "2025-06-15 13:00:00"),
        ("@daily", "2025-06-15 12:00:00", "2025-06-16 00:00:00"),
        ("@Midnight", "2025-06-15 12:00:00", "2025-06-16 00:00:00"),
        ("@weekly", "2025-06-15 12:00:00", "2025-06-22 00:00:00"),
        ("@monthly", "2025-06-15 12:00:00", "2025-07-01 00:00:00"),
        ("@yearly", "2025-06-15 12:00:00", "2026-01-01 00:00:00"),
        ("@annually", "2025-06-15 12:00:00", "2026-01-01 00:00:00"),
    ],
)
def test_the_next_tick_in_utc_is_computed(expression: str, after: str, tick: str) -> None:
    assert next_after(expression, "UTC", utc(after)) == utc(tick)


def test_a_tick_is_in_utc_for_a_start_in_any_time_zone() -> None:
    asked = datetime(2025, 6, 15, 8, 0, tzinfo=ZoneInfo("America/New_York"))
    tick = next_after("0 18 * * *", BERLIN, asked)
    assert (tick, tick.tzinfo) == (utc("2025-06-15 16:00"), UTC)


# Daylight saving in Berlin: 2025-03-30 01:00 UTC, 02:00 -> 03:00; 2025-10-26 01:00 UTC, 03:00 -> 02:00

SPRING = "2025-03-29 12:00", "2025-03-31 12:00"
AUTUMN = "2025-10-25 12:00", "2025-10-27 12:00"


def test_a_tick_in_a_skipped_hour_comes_once_right_after_it() -> None:
    assert in_berlin("30 2 * * *", *SPRING) == ["03-30 03:00 CEST", "03-31 02:30 CEST"]


def test_several_ticks_in_a_skipped_hour_become_one() -> None:
    assert in_berlin("0,20,40 2 30 3 *", *SPRING) == ["03-30 03:00 CEST"]


def test_a_tick_in_a_repeated_hour_comes_the_first_time_only() -> None:
    assert in_berlin("30 2 * * *", *AUTUMN) == ["10-26 02:30 CEST", "10-27 02:30 CET"]


@pytest.mark.parametrize("asked", ["00:30", "00:45", "01:00", "01:10", "01:30", "01:45"])
def test_a_tick_at_a_fixed_hour_is_not_repeated_for_a_start_in_the_repeated_hour(asked: str) -> None:
    assert berlin(next_after("30 2 * * *", BERLIN, utc(f"2025-10-26 {asked}"))) == "10-27 02:30 CET"


def test_ticks_of_every_quarter_of_an_hour_continue_across_a_skipped_hour() -> None:
    assert in_berlin("*/15 * * * *", "2025-03-30 00:30", "2025-03-30 01:30") == [
        "03-30 01:30 CET",
        "03-30 01:45 CET",
        "03-30 03:00 CEST",
        "03-30 03:15 CEST",
        "03-30 03:30 CEST",
    ]


def test_ticks_of_every_quarter_of_an_hour_come_in_both_repeated_hours() -> None:
    ticks = in_berlin("*/15 * * * *", "2025-10-26 00:00", "2025-10-26 02:00")
    quarters = ["00", "15", "30", "45"]
    assert ticks == [
        *(f"10-26 02:{quarter} CEST" for quarter in quarters),
        *(f"10-26 02:{quarter} CET" for quarter in quarters),
        "10-26 03:00 CET",
    ]


def test_expressions_with_seconds_follow_the_local_time_only() -> None:
    assert in_berlin("0 30 2 * * *", *SPRING) == ["03-31 02:30 CEST"]
    assert in_berlin("0 30 2 * * *", *AUTUMN) == ["10-26 02:30 CEST", "10-26 02:30 CET", "10-27 02:30 CET"]


def test_a_daily_expression_has_one_tick_on_each_day_of_the_year() -> None:
    ticks = in_berlin("30 2 * * *", "2025-01-01 00:00", "2025-12-31 12:00")
    assert len({tick[:5] for tick in ticks}) == len(ticks) == 365


# Many ticks


def test_ticks_between_two_times_include_both_ends() -> None:
    first, last = utc("2025-06-15 12:00"), utc("2025-06-15 12:10")
    assert ticks_between("*/5 * * * *", "UTC", first, last) == [first, utc("2025-06-15 12:05"), last]
    assert ticks_between("*/5 * * * *", "UTC", first + timedelta(seconds=1), last - timedelta(seconds=1)) == [
        utc("2025-06-15 12:05")
    ]


def test_there_is_no_tick_between_two_successive_ticks() -> None:
    assert ticks_between("@hourly", "UTC", utc("2025-06-15 12:01"), utc("2025-06-15 12:59"), limit=5) == []


def test_a_limit_keeps_the_newest_ticks() -> None:
    ticks = ticks_between("@hourly", "UTC", utc("2025-06-15 00:00"), utc("2025-06-15 12:30"), limit=2)
    assert ticks == [utc("2025-06-15 11:00"), utc("2025-06-15 12:00")]


def test_the_newest_ticks_of_many_years_are_found_without_computing_all() -> None:
    started = time.thread_time()
    ticks = ticks_between("* * * * * *", BERLIN, utc("2005-06-15 00:00"), utc("2025-06-15 00:00"), limit=1000)
    assert time.thread_time() - started < 10  # one by one they would take hours
    assert ticks == [utc("2025-06-15 00:00") - timedelta(seconds=n) for n in reversed(range(1000))]


# What is refused


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30-31 2 *", "0 0 0 30 2 *"])
def test_a_cron_expression_that_never_fires_is_refused(expression: str) -> None:
    with pytest.raises(InvalidValue, match="never fires"):
        check_cron(expression)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("* * * *", "number of fields"),
        ("* * * * * * *", "number of fields"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("0 0 32 * *", "day-of-month"),
        ("0 0 32 2 *", "day-of-month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day-of-week"),
        ("*/0 * * * *", "minute"),
        ("a b c d e", "minute"),
        ("@reboot", "number of fields"),
    ],
)
def test_an_invalid_cron_expression_is_refused_with_an_example(expression: str, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=f"not a cron expression: .*{complaint}") as refused:
        check_cron(expression)
    assert "*/5 * * * *" in refused.value.hint


@pytest.mark.parametrize("expression", ["", None, 5, "* * * * *\n", "0 " * 200])
def test_a_cron_expression_is_a_short_single_line(expression: object) -> None:
    with pytest.raises(InvalidValue, match="cron expression"):
        check_cron(expression)


@pytest.mark.parametrize("expression", [*NICKNAMES, "*/5 * * * *", "0 0 29 2 *", "*/10 * * * * *", "0 0 30 2 MON"])
def test_a_valid_cron_expression_is_returned_unchanged(expression: str) -> None:
    assert check_cron(expression) == expression


@pytest.mark.parametrize("name", ["Berlin", "Europe", "/etc/localtime", "../UTC", "Mars/Olympus"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="time zone") as refused:
        check_timezone(name)
    assert refused.value.hint


def test_a_misspelt_time_zone_gets_the_right_one_as_a_hint() -> None:
    with pytest.raises(InvalidValue) as refused:
        check_timezone("Europe/Berlim")
    assert "'Europe/Berlin'" in refused.value.hint


def test_without_a_database_of_time_zones_the_hint_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    with pytest.raises(InvalidValue) as refused:
        check_timezone("Not/There")
    assert "pip install tzdata" in refused.value.hint


def test_utc_needs_no_database_of_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "ZoneInfo", None)
    assert check_timezone("UTC") == "UTC"


@pytest.mark.parametrize("name", ["", None, 1])
def test_a_time_zone_must_be_a_name(name: object) -> None:
    with pytest.raises(InvalidValue, match="time zone"):
        check_timezone(name)


# Properties of every expression

ZONES = ["UTC", BERLIN, "America/New_York", "Asia/Kathmandu"]
ODD_ZONES = ["Australia/Lord_Howe", "America/Santiago", "America/Havana"]  # half an hour, midnight
MOMENTS = st.integers(0, 70 * 365 * 24 * 3600 * 1000).map(lambda n: utc("1990-01-01") + timedelta(milliseconds=n))


def field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    step = st.integers(1, most).map(lambda each: f"*/{each}")
    one = st.one_of(number.map(str), span)
    return st.one_of(st.just("*"), step, st.lists(one, min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7)).map(" ".join)


def matching(text: str, least: int, most: int) -> set[int]:
    """The numbers that a field of such an expression contains."""
    if text.startswith("*"):
        return set(range(least, most + 1, int(text.partition("/")[2] or 1)))
    spans = [part.split("-") for part in text.split(",")]
    return {number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)}


@settings(deadline=None)
@given(EXPRESSIONS, MOMENTS)
def test_the_next_tick_is_later_and_on_the_fields_of_the_expression(expression: str, moment: datetime) -> None:
    tick = next_after(expression, "UTC", moment)
    minute, hour, day, month, weekday = expression.split()
    assert tick > moment
    assert (tick.second, tick.microsecond) == (0, 0)
    assert tick.minute in matching(minute, 0, 59)
    assert tick.hour in matching(hour, 0, 23)
    assert tick.month in matching(month, 1, 12)
    on_day = tick.day in matching(day, 1, 31)
    on_weekday = tick.isoweekday() % 7 in {number % 7 for number in matching(weekday, 0, 7)}
    either = not day.startswith("*") and not weekday.startswith("*")
    assert (on_day or on_weekday) if either else (on_day and on_weekday)


@settings(deadline=None)
@given(EXPRESSIONS, st.sampled_from(ZONES + ODD_ZONES), MOMENTS)
@example("30 2 * * *", BERLIN, datetime(2025, 10, 26, 1, 10, tzinfo=UTC))
def test_the_next_tick_is_later_in_every_time_zone(expression: str, zone: str, moment: datetime) -> None:
    assert next_after(expression, zone, moment) > moment


@settings(deadline=None)
@given(EXPRESSIONS, st.sampled_from(ZONES), MOMENTS, st.timedeltas(timedelta(0), timedelta(days=3)), st.integers(1, 9))
@example("30 2 * * *", BERLIN, datetime(2025, 10, 25, tzinfo=UTC), timedelta(days=1, hours=1, minutes=10), 1)
def test_the_newest_ticks_are_the_last_of_all_ticks(
    expression: str, zone: str, first: datetime, span: timedelta, limit: int
) -> None:
    walked = []
    tick = first - timedelta(seconds=1)
    while (tick := next_after(expression, zone, tick)) <= first + span:
        walked.append(tick)
        assume(len(walked) < 2000)
    walked = [tick for tick in walked if tick >= first]
    assert ticks_between(expression, zone, first, first + span) == walked
    assert ticks_between(expression, zone, first, first + span, limit=limit) == walked[-limit:]
