"""Cron expressions and timings in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs.errors import InvalidValue
from dibs.model.cron_words import cron_in_words
from dibs.model.schedule import NewSchedule
from tests.helpers.each import for_each

START = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)

WORDS = [
    ("* * * * *", "every minute"),
    ("*/5 * * * *", "every 5 minutes"),
    ("0-59/5 * * * *", "every 5 minutes"),
    ("*/1 * * * *", "every minute"),
    ("*/7 * * * *", "every 7 minutes from minute 0 to 56 of every hour"),
    ("20-59/10 * * * *", "every 10 minutes from minute 20 to 50 of every hour"),
    ("20/20 * * * *", "at minutes 20 and 40 of every hour"),
    ("10-20 * * * *", "every minute from minute 10 to 20 of every hour"),
    ("1,2,3,30 * * * *", "at minutes 1 to 3 and 30 of every hour"),
    ("0 * * * *", "every hour"),
    ("@hourly", "every hour"),
    ("5 * * * *", "every hour at minute 5"),
    ("0 */2 * * *", "every 2 hours"),
    ("30 */2 * * *", "every 2 hours at minute 30"),
    ("0 */6 * * *", "at 00:00, 06:00, 12:00 and 18:00 every day"),
    ("0 */5 * * *", "at 00:00, 05:00, 10:00, 15:00 and 20:00 every day"),
    ("0 9-17 * * 1-5", "every hour from 09:00 to 17:00 on weekdays"),
    ("5 9-17 * * *", "every hour from 09:05 to 17:05"),
    ("0,30 9-17 * * 1-5", "every 30 minutes from 09:00 to 17:59 on weekdays"),
    ("* 3 * * *", "every minute from 03:00 to 03:59"),
    ("7 1-5,8,10,12 * * *", "every hour at minute 7 in hours 1 to 5, 8, 10 and 12"),
    ("*/10 */2 * * *", "every 10 minutes in every 2nd hour from 00:00"),
    ("0 3 * * *", "at 03:00 every day"),
    ("@daily", "at 00:00 every day"),
    ("@midnight", "at 00:00 every day"),
    ("30 3 * * 1-5", "at 03:30 on weekdays"),
    ("30 3 * * MON-FRI", "at 03:30 on weekdays"),
    ("30 9,17 * * *", "at 09:30 and 17:30 every day"),
    ("0 8 * * 6,0", "at 08:00 on weekends"),
    ("0 8 * * 6-7", "at 08:00 on weekends"),
    ("0 8 * * 7", "at 08:00 on Sundays"),
    ("@weekly", "at 00:00 on Sundays"),
    ("0 9 * * mon-thu", "at 09:00 on Mondays to Thursdays"),
    ("*/10 * * * 1,3,5", "every 10 minutes on Mondays, Wednesdays and Fridays"),
    ("0 0 * * 0-6", "at 00:00 every day"),
    ("0 9 * * MON#1", "at 09:00 on the first Monday of the month"),
    ("0 0 * * 5L", "at 00:00 on the last Friday of the month"),
    ("0 12 * * 1-5,SAT#2", "at 12:00 on weekdays and the second Saturday of the month"),
    ("@monthly", "at 00:00 on the 1st of the month"),
    ("0 0 22 * *", "at 00:00 on the 22nd of the month"),
    ("0 0 1-7 * *", "at 00:00 on the 1st to the 7th of the month"),
    ("0 0 */10 * *", "at 00:00 on the 1st, the 11th, the 21st and the 31st of the month"),
    ("0 6 L * *", "at 06:00 on the last day of the month"),
    ("0 6 1,LW * *", "at 06:00 on the 1st and the last working day of the month"),
    ("@yearly", "at 00:00 on the 1st of January"),
    ("@annually", "at 00:00 on the 1st of January"),
    ("0 0 1 */3 *", "at 00:00 on the 1st of January, April, July and October"),
    ("0 0 * 6-8 *", "at 00:00 every day in June to August"),
    ("0 0 * JAN 1", "at 00:00 on Mondays in January"),
    # a day of the month and a day of the week: either of them, unless one begins with an asterisk
    ("0 0 13 * FRI", "at 00:00 on the 13th of the month and on Fridays"),
    ("0 0 29 2 MON", "at 00:00 on the 29th of February and on Mondays in February"),
    ("0 0 1-31 * MON", "at 00:00 every day"),
    ("0 0 */15 * MON", "at 00:00 on Mondays, but only on the 1st, the 16th and the 31st of the month"),
    # six fields
    ("* * * * * *", "every second"),
    ("*/10 * * * * *", "every 10 seconds"),
    ("1,2 * * * * *", "at seconds 1 and 2 of every minute"),
    ("5 0 * * * *", "at second 5 in minute 0 of every hour"),
    ("*/10 0,30 8-12 * * *", "every 10 seconds in minutes 0 and 30 of every hour from 08:00 to 12:59"),
    ("30 5 9 * * *", "at 09:05:30 every day"),
    ("0 5 9 * * *", "at 09:05 every day"),
    ("* * 3 * * *", "every second from 03:00 to 03:59"),
]


@for_each("cron, words", WORDS)
def test_a_cron_expression_is_described_in_words(cron: str, words: str) -> None:
    assert cron_in_words(cron) == words


def test_a_wrong_expression_has_no_words() -> None:
    with pytest.raises(InvalidValue):
        cron_in_words("every day")


TIMINGS: list[tuple[dict[str, Any], str]] = [
    ({"cron": "30 3 * * 1-5", "timezone": "Europe/Berlin"}, "at 03:30 on weekdays, Europe/Berlin"),
    ({"cron": "0 3 * * *"}, "at 03:00 every day, UTC"),
    ({"cron": "*/5 * * * *", "timezone": "Europe/Berlin"}, "every 5 minutes"),
    ({"cron": "*/5 * * * *", "jitter": 60}, "every 5 minutes, each up to 1 minute later"),
    ({"every": 30}, "every 30 seconds"),
    ({"every": 1.5, "jitter": 0.5}, "every 1.5 seconds, each up to 0.5 seconds later"),
    ({"every": 90}, "every 90 seconds"),
    ({"every": 3600}, "every hour"),
    ({"every": 86400, "start_at": START}, "every 24 hours, from 2026-01-31 08:00:00 UTC"),
    ({"every": 60, "end_at": START}, "every minute, until 2026-01-31 08:00:00 UTC"),
    ({"at": START + timedelta(seconds=1)}, "once, at 2026-01-31 08:00:01 UTC"),
]


@for_each("given, words", TIMINGS)
def test_the_words_of_a_timing_name_its_zone_jitter_start_and_end(given: dict[str, Any], words: str) -> None:
    assert NewSchedule(name="some", type="report", **given).timing.words == words
