"""Schedules at an interval, once, between two times, with jitter: each tick is enqueued once, at its time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import dibs
from dibs import InvalidValue
from dibs.model.schedule import NewSchedule
from tests.contract.test_schedules import DAY, HOUR, MINUTE, NOON, at, ticks_of, turn_to
from tests.helpers.clients import Clock, run
from tests.helpers.each import for_each
from tests.helpers.tasks import moment


@pytest.fixture
def clock() -> Clock:
    """A clock that shows noon of a summer's day."""
    clock = Clock()
    turn_to(clock, NOON)
    return clock


def times(app: Any, type: str = "poll") -> list[str]:
    """The ticks of the tasks of a type, with seconds, oldest first."""
    tasks = reversed(app.list_tasks(type=type, limit=1000))
    return [f"{task.run_at:%H:%M:%S.%f}"[:12].removesuffix(".000") for task in tasks]


# An interval


def test_an_interval_counts_from_1970_so_that_every_process_computes_the_same_ticks(app: Any, clock: Clock) -> None:
    clock.advance(1)
    made = app.set_schedule("poll", every=7, type="poll")
    assert (made.cron, made.every, made.next_at) == (None, 7.0, made.due_at)
    assert made.next_at.timestamp() % 7 == 0
    assert timedelta(0) < made.next_at - moment(clock) <= timedelta(seconds=7)


def test_an_interval_counts_from_the_start_of_the_schedule(app: Any, clock: Clock) -> None:
    app.set_schedule("poll", every=40, type="poll", start_at=at("12:00:30"))
    clock.advance(29)
    assert app.tick() == 0
    clock.advance(1)
    assert app.tick() == 1
    clock.advance(85)
    assert app.tick() == 2
    assert times(app) == ["12:00:30", "12:01:10", "12:01:50"]


def test_an_interval_may_have_milliseconds(app: Any, clock: Clock) -> None:
    app.set_schedule("poll", every=1.25, type="poll", start_at=NOON)
    clock.advance(3)
    assert app.tick() == 2
    assert times(app) == ["12:00:01.250", "12:00:02.500"]
    assert {task.key[-1] for task in app.list_tasks()} == {"Z"}
    assert len({task.key for task in app.list_tasks()}) == 2


def test_an_interval_is_absolute_time_in_the_night_of_a_clock_change(app: Any, clock: Clock) -> None:
    turn_to(clock, datetime(2025, 3, 29, 12, tzinfo=UTC))
    app.set_schedule(
        "poll", every=DAY, type="poll", start_at=datetime(2025, 3, 29, 14, tzinfo=timezone(timedelta(hours=1)))
    )
    for _ in range(3):
        clock.advance(DAY)
        app.tick()
    assert ticks_of(app, "poll") == ["03-29 13:00", "03-30 13:00", "03-31 13:00"]


def test_missed_ticks_of_an_interval_follow_catch_up(app: Any, clock: Clock) -> None:
    for catch_up in dibs.CatchUp:
        app.set_schedule(catch_up.value, every=600, type=catch_up.value, catch_up=catch_up)
    clock.advance(HOUR + 5 * MINUTE)
    app.tick()
    assert [ticks_of(app, each) for each in ("one", "none")] == [["06-15 13:00"], []]
    assert ticks_of(app, "all") == [f"06-15 12:{minute}0" for minute in range(1, 6)] + ["06-15 13:00"]
    assert app.get_schedule("all").next_at == at("13:10")


# Start and end


def test_a_cron_expression_ticks_between_its_start_and_its_end_both_included(app: Any, clock: Clock) -> None:
    made = app.set_schedule("some", "0 * * * *", "report", start_at=at("14:00"), end_at=at("16:00"), catch_up="all")
    assert made.next_at == at("14:00")
    clock.advance(DAY)
    assert app.tick() == 3
    assert ticks_of(app) == ["06-15 14:00", "06-15 15:00", "06-15 16:00"]
    ended = app.get_schedule("some")
    assert (ended.state, ended.ended, ended.next_at, ended.due_at, ended.next_runs()) == ("ended", True, None, None, [])
    assert app.tick() == 0


def test_an_ended_schedule_goes_on_with_a_later_end(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report", end_at=at("13:00"))
    clock.advance(5 * HOUR)
    app.tick()
    assert app.enable_schedule("some").ended
    assert app.set_schedule("some", "@hourly", "report", end_at=at("19:00")).next_at == at("18:00")


def test_a_schedule_that_is_stored_after_its_end_is_ended(app: Any, clock: Clock) -> None:
    assert app.set_schedule("some", "@hourly", "report", end_at=at("11:00")).ended
    clock.advance(DAY)
    assert app.tick() == 0


def test_the_next_runs_after_a_downtime_are_those_that_catch_up_enqueues(app: Any, clock: Clock) -> None:
    for catch_up in dibs.CatchUp:
        app.set_schedule(catch_up.value, every=60, type=catch_up.value, catch_up=catch_up, start_at=NOON)
    clock.advance(5 * MINUTE + 30)
    runs = {each.name: each.next_runs(8, now=moment(clock)) for each in app.schedules()}
    next_ones = [at(f"12:0{minute}") for minute in (6, 7, 8)]
    assert runs["one"][:4] == [at("12:05"), *next_ones]
    assert runs["all"] == [*(at(f"12:0{minute}") for minute in (1, 2, 3, 4, 5)), *next_ones]
    assert runs["none"][:4] == [at("12:05"), *next_ones]
    app.tick()
    enqueued = {name: times(app, name) for name in runs}
    assert enqueued == {name: [f"{run:%H:%M:%S}" for run in runs[name] if run <= moment(clock)] for name in runs}


# Once


def test_a_single_time_ticks_once_and_then_the_schedule_has_ended(app: Any, clock: Clock) -> None:
    new = {"name": "launch", "at": at("18:30:15"), "type": "poll"}
    assert app.set_schedule(**new).next_runs() == [at("18:30:15")]
    clock.advance(DAY)
    assert (app.tick(), app.tick(), times(app)) == (1, 0, ["18:30:15"])
    assert app.set_schedule(**new, priority=3).ended  # the same time again does not run it again
    assert app.tick() == 0


def test_a_single_time_in_the_past_follows_catch_up(app: Any) -> None:
    for catch_up in dibs.CatchUp:
        app.set_schedule(catch_up.value, at=at("09:00"), type=catch_up.value, catch_up=catch_up)
    assert app.tick() == 2
    assert [len(app.list_tasks(type=each.value)) for each in dibs.CatchUp] == [1, 1, 0]
    assert all(each.ended for each in app.schedules())


def test_a_single_time_that_passed_while_its_schedule_was_disabled_is_not_caught_up(app: Any, clock: Clock) -> None:
    app.set_schedule("launch", at=at("13:00"), type="poll")
    app.disable_schedule("launch")
    clock.advance(2 * HOUR)
    assert app.enable_schedule("launch").ended
    assert app.tick() == 0


# Jitter


def test_jitter_delays_each_tick_by_another_time_and_the_task_keeps_its_tick(app: Any, clock: Clock) -> None:
    made = app.set_schedule("some", "*/5 * * * *", "report", jitter=120)
    runs = made.next_runs(50, now=moment(clock))
    delays = [(due - made.next_at - n * timedelta(minutes=5)).total_seconds() for n, due in enumerate(runs)]
    assert all(0 <= delay < 120 for delay in delays)
    assert len(set(delays)) == 50
    assert max(delays) - min(delays) > 60
    assert made.due_at == runs[0]
    clock.now = round(runs[0].timestamp() * 1e6) - 2
    assert app.tick() == 0
    clock.now += 4
    assert app.tick() == 1
    assert ticks_of(app) == ["06-15 12:05"]
    assert app.get_schedule("some").due_at == runs[1]


def test_a_schedule_at_the_ends_of_the_calendar_is_stored_and_read(app: Any) -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    app.set_schedule("late", every=60, type="poll", start_at=last)
    app.set_schedule("early", every=60, type="poll", start_at=first)
    assert app.get_schedule("late").next_runs(5) == [last]
    assert len(app.get_schedule("early").next_runs(5)) == 5


def test_jitter_is_the_same_in_every_process_and_differs_between_schedules() -> None:
    def due(name: str) -> datetime:
        return NewSchedule(name=name, cron="@hourly", type="report", jitter=60).timing.due_at(NOON)

    assert due("some") == due("some") == datetime(2025, 6, 15, 12, 0, 2, 204129, tzinfo=UTC)
    assert due("some") != due("other")


def test_each_tick_with_jitter_is_enqueued_once_and_in_order(app: Any, clock: Clock) -> None:
    app.set_schedule("poll", "* * * * * *", "poll", jitter=3)  # later ticks may be due before earlier ones
    for _ in range(40):
        clock.advance(0.5)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: app.tick(), range(4)))
    served = times(app)
    assert served == [f"12:00:{second:02}" for second in range(1, len(served) + 1)]
    assert len(served) >= 16


def test_missed_ticks_with_jitter_are_caught_up_once(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report", jitter=600, catch_up="all")
    clock.advance(4 * HOUR + 15 * MINUTE)
    assert app.tick() == 4
    assert app.get_schedule("some").next_at == at("17:00")


# Declarations and refusals

WRONG: list[dict[str, Any]] = [
    {},
    {"cron": "@hourly", "every": 5},
    {"every": 5, "at": NOON},
    {"every": 0.5},
    {"every": "5"},
    {"every": float("nan")},
    {"every": 30, "timezone": "Europe/Berlin"},
    {"every": 30, "jitter": 30},
    {"cron": "@hourly", "jitter": -1},
    {"cron": "@hourly", "jitter": 3601},
    {"at": NOON.replace(tzinfo=None)},
    {"at": NOON, "jitter": 5},
    {"at": NOON, "end_at": NOON},
    {"cron": "@hourly", "start_at": NOON, "end_at": NOON - timedelta(hours=1)},
    {"cron": "@yearly", "start_at": NOON, "end_at": NOON + timedelta(days=1)},
    {"cron": "@hourly", "start_at": "tomorrow"},
    {"cron": "@hourly", "overlap": "never"},
]


@for_each("wrong", WRONG)
def test_a_timing_that_does_not_fit_together_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        NewSchedule(name="some", type="report", **wrong)


def test_a_handler_may_have_an_interval_or_a_single_time() -> None:
    app = dibs.Dibs("sqlite:///never-opened.db")

    @app.task(every=30, jitter=5, overlap="skip")
    def poll() -> None: ...

    @app.task(at=NOON)
    def launch() -> None: ...

    assert (poll.schedule.every, poll.schedule.jitter, poll.schedule.overlap) == (30, 5, "skip")
    assert launch.schedule.at == NOON
    with pytest.raises(InvalidValue, match="overlap has no schedule"):
        app.task(overlap="skip")(lambda: None)


def test_an_interval_in_code_that_was_changed_by_hand_stays_so_until_its_declaration_changes(app: Any) -> None:
    def declare(every: float) -> Any:
        new = NewSchedule(name="poll", every=every, type="poll", jitter=1, end_at=at("23:00"))
        return run(app, app._store.schedules.put_schedule(new, "code"))

    assert declare(30).declared["every"] == 30
    app.set_schedule("poll", every=60, type="poll")
    assert (declare(30).every, declare(30).overridden) == (60.0, True)
    assert (declare(45).every, declare(45).overridden) == (45.0, False)


@pytest.mark.parametrize("change", [{"every": 60}, {"start_at": NOON}, {"end_at": at("23:00")}, {"jitter": 7}])
def test_another_timing_computes_the_next_tick_from_now(app: Any, clock: Clock, change: dict[str, Any]) -> None:
    app.set_schedule("poll", type="poll", every=30)
    clock.advance(HOUR)
    assert app.set_schedule("poll", **{"type": "poll", "every": 30, **change}).next_at > moment(clock)
    assert app.tick() == 0


def test_two_clients_that_tick_an_interval_concurrently_enqueue_each_tick_once(
    url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(2)]
    apps[0].set_schedule("poll", every=1, type="poll")
    for _ in range(10):
        clock.advance(2)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: apps[n % 2].tick(), range(4)))
    assert times(apps[0]) == [f"12:00:{second:02}" for second in range(1, 21)]
