"""The timetable of schedules: the next ticks, a chart of a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs.model.cron import ticks_between, ticks_per_quarter_hour
from dibs.model.retry import Backoff
from dibs.model.schedule import CatchUp, Schedule
from dibs.server.dashboard.timetable import QUARTERS, next_ticks, quarter, ticks_per_quarter

NOW = datetime(2026, 11, 15, 21, 20, 30, tzinfo=UTC)
START = datetime(2026, 11, 15, 21, 15, tzinfo=UTC)


def schedule(cron: str, timezone: str = "UTC", **about: Any) -> Schedule:
    told: dict[str, Any] = {
        "name": "one",
        "cron": cron,
        "timezone": timezone,
        "catch_up": CatchUp.ONE,
        "enabled": True,
        "type": "report",
        "params": {},
        "queue": "default",
        "priority": 0,
        "max_attempts": 3,
        "timeout": None,
        "backoff": Backoff(),
        "source": "command",
        "next_at": START + timedelta(hours=1),
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Schedule(**told | about)


@pytest.mark.parametrize(
    ("cron", "timezone"),
    [
        ("* * * * *", "UTC"),
        ("*/7 * * * *", "Asia/Kathmandu"),
        ("0,10,50 */2 * * *", "Europe/Berlin"),
        ("30 9 * * 1-5", "America/New_York"),
        ("0 0 1 * *", "UTC"),
        ("15 3 16 11 *", "Australia/Adelaide"),
        ("*/20 5 22 * * *", "UTC"),
        ("@daily", "Pacific/Auckland"),
    ],
)
def test_the_chart_of_a_day_counts_the_ticks_of_each_quarter_of_an_hour(cron: str, timezone: str) -> None:
    ticks = ticks_between(cron, timezone, START, START + timedelta(days=1) - timedelta(seconds=1))
    walked = [0] * QUARTERS
    for tick in ticks:
        walked[(tick - START) // timedelta(minutes=15)] += 1
    assert ticks_per_quarter_hour(cron, timezone, START, QUARTERS) == walked


def test_the_chart_of_several_schedules_is_the_sum_of_the_enabled_ones() -> None:
    plans = [schedule("*/5 * * * *"), schedule("0 * * * *"), schedule("* * * * * *", enabled=False)]
    found = ticks_per_quarter(plans, NOW)
    assert (sum(found), found[:4]) == (12 * 24 + 24, [3, 3, 3, 4])
    assert quarter(NOW, 3) == "22:00"


def test_a_schedule_with_an_unknown_time_zone_does_not_fail_the_chart() -> None:
    odd = schedule("0 3 * * *", "Mars/Olympus")
    assert sum(ticks_per_quarter([odd], NOW)) == 0
    assert next_ticks(odd) == [odd.next_at]


def test_the_next_ticks_are_shown_in_the_time_zone_of_the_schedule() -> None:
    plan = schedule("0 3 * * *", "Europe/Berlin", next_at=datetime(2026, 11, 16, 2, tzinfo=UTC))
    assert [f"{tick:%d %H:%M}" for tick in next_ticks(plan)] == [
        "16 03:00",
        "17 03:00",
        "18 03:00",
        "19 03:00",
        "20 03:00",
    ]
    assert next_ticks(schedule("0 3 * * *", enabled=False)) == []
