"""Rate limits: never more requests in a window than the limit, counted in the database, also for concurrent servers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from dibs import InvalidValue, RateLimit
from dibs.model.key import RateLimitGrant
from tests.helpers.clients import Clock, run
from tests.helpers.processes import ask_all, processes

pytestmark = pytest.mark.database("only a server asks for permits, and it has a database")

TEN = RateLimit(10, 60)


def take(app: Any, wanted: int, key_id: str = "key-1", limit: RateLimit = TEN) -> RateLimitGrant:
    return run(app, app._store.keys.take_permits(key_id, limit, wanted))


def test_a_window_grants_requests_until_the_limit_is_used_up(app: Any) -> None:
    assert [take(app, wanted).granted for wanted in (1, 4, 3, 5, 1, 7)] == [1, 4, 3, 2, 0, 0]


def test_more_than_the_limit_is_never_granted_at_once(app: Any) -> None:
    assert take(app, 1000).granted == 10
    assert take(app, 1).granted == 0


def test_a_window_begins_with_its_first_request_and_returns_its_end(app: Any, clock: Clock) -> None:
    assert take(app, 10).retry_in == 60
    clock.advance(59.5)
    assert take(app, 1) == RateLimitGrant(0, 0.5)
    clock.advance(0.5)
    assert take(app, 3) == RateLimitGrant(3, 60)


def test_the_next_window_begins_with_the_first_request_after_the_last_one_ended(app: Any, clock: Clock) -> None:
    take(app, 10)
    clock.advance(100)
    assert take(app, 10) == RateLimitGrant(10, 60)
    clock.advance(59)
    assert take(app, 1) == RateLimitGrant(0, 1)


def test_unused_requests_are_not_carried_into_the_next_window(app: Any, clock: Clock) -> None:
    take(app, 1)
    clock.advance(60)
    assert take(app, 100).granted == 10


def test_each_key_has_its_own_window(app: Any) -> None:
    take(app, 10)
    assert take(app, 10, "key-2").granted == 10


@pytest.mark.parametrize(("unit", "seconds"), [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86400)])
def test_a_window_is_as_long_as_the_limit_says(app: Any, clock: Clock, unit: str, seconds: int) -> None:
    limit = RateLimit(1, seconds)
    assert str(limit) == f"1/{unit}"
    assert take(app, 1, limit=limit) == RateLimitGrant(1, seconds)
    clock.advance(seconds - 0.000001)
    assert take(app, 1, limit=limit).granted == 0
    clock.advance(0.000001)
    assert take(app, 1, limit=limit).granted == 1


def test_a_clock_that_is_corrected_begins_no_new_window(app: Any, clock: Clock) -> None:
    take(app, 10)
    clock.advance(-30)
    assert take(app, 1) == RateLimitGrant(0, 90)


def test_a_clock_that_is_set_back_by_an_hour_does_not_lock_the_key_out_for_an_hour(app: Any, clock: Clock) -> None:
    take(app, 10)
    clock.advance(-3600)
    assert take(app, 10) == RateLimitGrant(10, 60)
    assert take(app, 1).granted == 0


def test_a_lowered_limit_applies_at_once(app: Any) -> None:
    take(app, 8)
    assert take(app, 5, limit=RateLimit(5, 60)).granted == 0
    assert take(app, 5, limit=RateLimit(9, 60)).granted == 1


@pytest.mark.parametrize("wanted", [0, -1, 1.5, None, 2**31])
def test_an_invalid_number_of_requests_is_refused(app: Any, wanted: Any) -> None:
    with pytest.raises(InvalidValue):
        take(app, wanted)


# At once


@pytest.mark.parametrize("limit", [1, 50, 399])
def test_eight_threads_are_granted_exactly_the_limit(
    url: str, clock: Clock, open_app: Callable[..., Any], limit: int
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(2)]
    start = Barrier(8)

    def ask(number: int) -> int:
        start.wait()
        return sum(take(apps[number % 2], 1 + n % 3, limit=RateLimit(limit, 60)).granted for n in range(25))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == min(limit, 8 * (9 + 16 + 24))


def test_five_processes_are_granted_exactly_the_limit_in_every_window(url: str) -> None:
    with processes(url, 5) as members:
        for number, limit in enumerate((1, 37, 100)):
            command = {"do": "take_permits", "key_id": f"key-{number}", "requests": limit, "times": 30}
            assert sum(ask_all(members, [command] * 5)) == limit
