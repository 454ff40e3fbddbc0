"""Schedules: a tick is enqueued once, also by concurrent clients, and downtime is caught up as the schedule demands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dibs
from dibs import Backoff, CatchUp, InvalidValue, Schedule, ScheduleNotFound, SchemaViolation, State
from dibs.model.schedule import CATCH_UP_LIMIT, MAX_SCHEDULE_NAME, DueSchedule, NewSchedule
from tests.helpers import tables
from tests.helpers.borrowed import Borrowed
from tests.helpers.clients import Clock, run
from tests.helpers.databases import run_sql
from tests.helpers.tasks import events, moment

NOON = datetime(2025, 6, 15, 12, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = 60.0, 3600.0, 24 * 3600.0
NEEDS_TEXT = {"type": "object", "required": ["text"]}


@pytest.fixture
def clock() -> Clock:
    """A clock that shows noon of a summer's day."""
    clock = Clock()
    turn_to(clock, NOON)
    return clock


def turn_to(clock: Clock, when: datetime) -> None:
    clock.now = round(when.timestamp()) * 1_000_000


def at(text: str) -> datetime:
    """A time of that summer's day."""
    return datetime.fromisoformat(f"2025-06-15 {text}").replace(tzinfo=UTC)


def ticks_of(app: Any, type: str = "report") -> list[str]:
    """The times that the tasks of a type serve, oldest first."""
    return [f"{task.run_at:%m-%d %H:%M}" for task in reversed(app.list_tasks(type=type, limit=1000))]


def due(app: Any) -> list[DueSchedule]:
    found: list[DueSchedule] = run(app, app._store.schedules.due_schedules())
    return found


def tick_one(app: Any, read: DueSchedule) -> int:
    ticked: int = run(app, app._store.schedules.tick_schedule(read))
    return ticked


# Declaring


def test_a_schedule_is_stored_with_all_its_options_and_its_next_tick(app: Any, clock: Clock) -> None:
    made = app.set_schedule(
        "nightly",
        "30 2 * * *",
        "report",
        {"kind": "sales"},
        timezone="Europe/Berlin",
        catch_up="all",
        queue="slow",
        priority=7,
        max_attempts=5,
        timeout=1.5,
        backoff=Backoff(2, 30),
    )
    assert made == Schedule(
        name="nightly",
        cron="30 2 * * *",
        timezone="Europe/Berlin",
        catch_up=CatchUp.ALL,
        enabled=True,
        type="report",
        params={"kind": "sales"},
        queue="slow",
        priority=7,
        max_attempts=5,
        timeout=1.5,
        backoff=Backoff(2, 30),
        source="command",
        next_at=datetime(2025, 6, 16, 0, 30, tzinfo=UTC),
        due_at=datetime(2025, 6, 16, 0, 30, tzinfo=UTC),
        created_at=moment(clock),
        updated_at=moment(clock),
    )
    assert app.get_schedule("nightly") == made


def test_the_defaults_of_a_schedule_are_utc_and_one_task_after_downtime(app: Any) -> None:
    made = app.set_schedule("hourly", "@hourly", "report")
    assert (made.timezone, made.catch_up, made.enabled, made.params) == ("UTC", CatchUp.ONE, True, {})
    assert (made.queue, made.priority, made.max_attempts, made.timeout) == ("default", 0, 3, None)
    assert (made.cron, made.next_at) == ("@hourly", at("13:00"))


def test_the_same_declaration_again_changes_nothing(app: Any, url: str, clock: Clock) -> None:
    for _ in range(2):
        app.set_schedule("hourly", "@hourly", "report", {"a": 1}, timeout=3)
        rows = tables.read(url)
        clock.advance(10)
    app.set_schedule("hourly", "@hourly", "report", {"a": 1}, timeout=3)
    assert tables.read(url) == rows


def test_the_same_declaration_after_downtime_keeps_the_tick_that_is_due(app: Any, clock: Clock) -> None:
    app.set_schedule("hourly", "@hourly", "report")
    clock.advance(3 * HOUR)
    assert app.set_schedule("hourly", "@hourly", "report").next_at == at("13:00")


@pytest.mark.parametrize("change", [{"cron": "*/7 * * * *"}, {"timezone": "Asia/Kathmandu"}])
def test_another_cron_expression_or_time_zone_computes_the_next_tick_from_now(
    app: Any, clock: Clock, change: dict[str, str]
) -> None:
    app.set_schedule("some", "0 12 * * *", "report")
    clock.advance(DAY + 60)  # a tick is due
    changed = app.set_schedule("some", **{"cron": "0 12 * * *", "type": "report", **change})
    assert changed.next_at > moment(clock)
    assert app.tick() == 0


@pytest.mark.parametrize(
    "change",
    [
        {"type": "other"},
        {"params": {"b": 2}},
        {"catch_up": "none"},
        {"queue": "slow"},
        {"priority": 3},
        {"max_attempts": 9},
        {"timeout": None},
        {"backoff": Backoff(3, 4)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_other_change_keeps_the_next_tick(app: Any, clock: Clock, change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"cron": "@hourly", "type": "report", "params": {"a": 1}, "timeout": 5}
    before = app.set_schedule("some", **given)
    clock.advance(2 * HOUR)
    after = app.set_schedule("some", **{**given, **change})
    [name] = change
    assert getattr(after, name) == change[name]
    assert (after.next_at, after.created_at, after.updated_at) == (before.next_at, before.created_at, moment(clock))
    assert app.get_schedule("some") == after


def test_the_source_of_a_schedule_is_that_of_its_last_change(app: Any) -> None:
    new = NewSchedule(name="some", cron="@hourly", type="report")
    assert run(app, app._store.schedules.put_schedule(new, "code")).source == "code"
    assert app.set_schedule("some", "@hourly", "report").source == "command"


def declare(app: Any, cron: str, **options: Any) -> Schedule:
    """Store the schedule as a worker does that finds it in its code."""
    new = NewSchedule(name="some", cron=cron, type="report", **options)
    declared: Schedule = run(app, app._store.schedules.put_schedule(new, "code"))
    return declared


def test_a_schedule_set_by_hand_overrides_the_code_until_the_declaration_changes(app: Any) -> None:
    declare(app, "@hourly")
    app.set_schedule("some", "@daily", "report", priority=7)
    again = declare(app, "@hourly")
    assert (again.cron, again.priority, again.overridden, again.declared["cron"]) == ("@daily", 7, True, "@hourly")
    changed = declare(app, "@weekly")
    assert (changed.cron, changed.priority, changed.overridden, changed.source) == ("@weekly", 0, False, "code")
    assert app.get_schedule("some") == changed


def test_a_schedule_set_by_hand_before_the_code_declares_it_stays_as_it_is(app: Any) -> None:
    app.set_schedule("some", "@daily", "report")
    declared = declare(app, "@hourly")
    assert (declared.cron, declared.overridden, declared.declared["cron"]) == ("@daily", True, "@hourly")
    assert declare(app, "@hourly", priority=1).cron == "@hourly"


def test_a_schedule_of_the_code_follows_each_change_of_its_declaration(app: Any) -> None:
    assert [declare(app, cron).cron for cron in ("@hourly", "@daily", "@hourly")] == ["@hourly", "@daily", "@hourly"]


def test_declaring_a_disabled_schedule_again_does_not_enable_it(app: Any) -> None:
    app.set_schedule("some", "@hourly", "report")
    app.disable_schedule("some")
    assert not app.set_schedule("some", "@daily", "report").enabled


def test_a_declaration_can_enable_and_disable_the_schedule(app: Any, clock: Clock) -> None:
    assert not app.set_schedule("some", "@hourly", "report", enabled=False).enabled
    clock.advance(5 * HOUR)
    enabled = app.set_schedule("some", "@hourly", "report", enabled=True)
    assert (enabled.enabled, enabled.next_at) == (True, at("18:00"))
    assert app.set_schedule("some", "@hourly", "report", enabled=False).next_at == at("18:00")


def test_schedules_are_listed_by_name(app: Any) -> None:
    for name in ("b", "a", "C"):
        app.set_schedule(name, "@hourly", "report")
    assert [schedule.name for schedule in app.schedules()] == ["C", "a", "b"]


def test_a_removed_schedule_is_gone_and_its_tasks_stay(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report")
    clock.advance(HOUR)
    app.tick()
    app.remove_schedule("some")
    clock.advance(HOUR)
    assert (app.schedules(), app.tick(), ticks_of(app)) == ([], 0, ["06-15 13:00"])


@pytest.mark.parametrize(
    "verb", ["get_schedule", "remove_schedule", "enable_schedule", "disable_schedule", "run_schedule"]
)
def test_an_unknown_schedule_is_reported_as_not_found(app: Any, verb: str) -> None:
    with pytest.raises(ScheduleNotFound, match="'nobody'") as refused:
        getattr(app, verb)("nobody")
    assert (refused.value.code, refused.value.name) == ("schedule_not_found", "nobody")
    assert "schedules()" in refused.value.hint


@pytest.mark.parametrize(
    "wrong",
    [
        {"cron": "0 0 30 2 *"},
        {"cron": "every day"},
        {"timezone": "Mars/Olympus"},
        {"catch_up": "some"},
        {"enabled": 1},
        {"name": ""},
        {"name": "x" * (MAX_SCHEDULE_NAME + 1)},
        {"type": "a\nb"},
        {"queue": ""},
        {"priority": 0.5},
        {"max_attempts": 0},
        {"timeout": -1},
        {"backoff": 3},
        {"params": [1]},
        {"params": {"a": {1, 2}}},
    ],
    ids=lambda wrong: " ".join(f"{name}={str(value)[:12]}" for name, value in wrong.items()),
)
def test_an_invalid_schedule_is_refused_before_anything_is_stored(app: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        app.set_schedule(**{"name": "some", "cron": "@hourly", "type": "report", **wrong})
    assert app.schedules() == []


def test_a_schedule_with_the_longest_name_ticks(app: Any, clock: Clock) -> None:
    app.set_schedule("ü" * MAX_SCHEDULE_NAME, "@hourly", "report")
    clock.advance(HOUR)
    assert app.tick() == 1


# Ticking


def test_a_tick_is_enqueued_when_it_is_due_and_not_before(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "*/5 * * * *", "report")
    clock.advance(5 * MINUTE - 0.000001)
    assert app.tick() == 0
    clock.advance(0.000001)
    assert app.tick() == 1
    assert app.tick() == 0


def test_the_task_of_a_tick_is_pending_and_names_its_tick(app: Any, clock: Clock) -> None:
    app.set_schedule(
        "some",
        "*/5 * * * *",
        "report",
        {"a": 1},
        queue="slow",
        priority=7,
        max_attempts=5,
        timeout=2,
        backoff=Backoff(8, 8),
    )
    clock.advance(5 * MINUTE + 3)
    app.signed("janitor").tick()
    [task] = app.list_tasks()
    assert (task.state, task.run_at, task.created_at) == (State.PENDING, at("12:05"), at("12:05:03"))
    assert (task.type, task.params, task.queue, task.priority) == ("report", {"a": 1}, "slow", 7)
    assert (task.max_attempts, task.timeout, task.key) == (5, 2.0, "schedule:some:2025-06-15T12:05:00Z")
    assert [entry.by for entry in app.history(task.id)] == ["janitor"]
    finished = app.fail(app.claim("worker-1"), "broken")
    assert 7.2 <= (finished.run_at - moment(clock)).total_seconds() <= 8.8


def test_the_schedule_stores_its_last_tick_and_its_next_tick(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "*/5 * * * *", "report")
    clock.advance(5 * MINUTE)
    app.tick()
    schedule = app.get_schedule("some")
    [task] = app.list_tasks()
    assert (schedule.last_at, schedule.last_task_id, schedule.next_at) == (at("12:05"), task.id, at("12:10"))
    assert (schedule.last_error, schedule.updated_at) == (None, NOON)


def test_each_of_several_ticks_gets_its_own_task(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "*/15 * * * *", "report")
    assert [(clock.advance(15 * MINUTE), app.tick())[1] for _ in range(5)] == [1] * 5
    assert ticks_of(app) == ["06-15 12:15", "06-15 12:30", "06-15 12:45", "06-15 13:00", "06-15 13:15"]


def test_upkeep_enqueues_due_ticks(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report")
    app.set_schedule("other", "30 * * * *", "report", catch_up="all")
    clock.advance(2 * HOUR)
    assert app.upkeep().ticked == 3
    assert app.upkeep().ticked == 0


def test_a_tick_wakes_a_waiting_claim(url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)  # the real clock
    app.set_schedule("some", "* * * * * *", "report")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(app.claim, "worker-1", wait=60)
        while not app.tick():
            pass
        assert waiting.result(30).task.type == "report"


def test_a_schedule_with_seconds_ticks_by_the_second(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "*/20 * * * * *", "report")
    assert [(clock.advance(10), app.tick())[1] for _ in range(6)] == [0, 1, 0, 1, 0, 1]


@pytest.mark.database("only a client of the database can join a transaction")
def test_ticking_joins_your_transaction_and_is_undone_with_it(app: Any, url: str, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report")
    clock.advance(HOUR)
    rows = tables.read(url)
    borrowed = Borrowed(app, url, {})
    assert app.on(borrowed.connection).tick() == 1
    borrowed.rollback()
    assert tables.read(url) == rows
    assert app.tick() == 1
    borrowed.close()


# Exactly once


def test_twenty_threads_that_tick_concurrently_enqueue_one_task(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report")
    for hour in range(1, 4):
        clock.advance(HOUR)
        with ThreadPoolExecutor(20) as pool:
            assert sum(pool.map(lambda _: app.tick(), range(20))) == 1
        assert len(app.list_tasks()) == hour


def test_two_clients_that_tick_many_schedules_concurrently_tick_each_once(
    url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(2)]
    for number in range(30):
        apps[0].set_schedule(f"schedule-{number}", "@hourly", "report", {"n": number}, catch_up="all")
    clock.advance(3 * HOUR)
    with ThreadPoolExecutor(8) as pool:
        ticked = sum(pool.map(lambda n: apps[n % 2].tick(), range(8)))
    tasks = apps[0].list_tasks(limit=1000)
    assert (ticked, len(tasks), len({task.key for task in tasks})) == (90, 90, 90)


def test_of_all_clients_that_read_the_same_due_tick_one_enqueues_its_task(
    url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(2)]
    apps[0].set_schedule("some", "@hourly", "report", catch_up="all")
    clock.advance(2 * HOUR)
    reads = [due(apps[n % 2])[0] for n in range(10)]
    with ThreadPoolExecutor(10) as pool:
        ticked = list(pool.map(lambda n: tick_one(apps[n % 2], reads[n]), range(10)))
    assert sorted(ticked) == [0] * 9 + [2]


def test_twenty_threads_that_declare_the_same_schedule_create_one_schedule(app: Any) -> None:
    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda _: app.set_schedule("some", "@hourly", "report"), range(20)))
    assert app.schedules() == [made[0]]
    assert all(each == made[0] for each in made)


@pytest.mark.parametrize("meanwhile", ["tick", "ticks", "disable", "remove", "cron", "zone"])
def test_an_old_tick_changes_nothing(app: Any, url: str, clock: Clock, meanwhile: str) -> None:
    app.set_schedule("some", "0 * * * *", "report")
    clock.advance(HOUR)
    [read] = due(app)
    if meanwhile == "tick":
        app.tick()
    elif meanwhile == "ticks":
        for _ in range(2):
            app.tick()
            clock.advance(HOUR)
    elif meanwhile == "disable":
        app.disable_schedule("some")
    elif meanwhile == "remove":
        app.remove_schedule("some")
    else:  # the next tick happens to be the one that was read
        turn_to(clock, at("12:30"))
        change = {"cron": "0 */1 * * *"} if meanwhile == "cron" else {"timezone": "Europe/Berlin"}
        changed = app.set_schedule("some", **{"cron": "0 * * * *", "type": "report", **change})
        assert changed.next_at == read.schedule.next_at
    rows = tables.read(url)
    assert tick_one(app, read) == 0
    assert tables.read(url) == rows


def test_a_tick_enqueues_the_current_declaration_of_the_schedule(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report", {"a": 1})
    clock.advance(HOUR)
    [read] = due(app)
    app.set_schedule("some", "@hourly", "report", {"a": 2})
    assert tick_one(app, read) == 1
    assert app.list_tasks()[0].params == {"a": 2}


def test_a_clock_that_jumps_back_enqueues_no_tick_again(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report")
    clock.advance(HOUR)
    app.tick()
    [task] = app.list_tasks()
    turn_to(clock, NOON)
    app.remove_schedule("some")
    app.set_schedule("some", "@hourly", "report")
    clock.advance(HOUR)
    assert app.tick() == 0
    assert app.list_tasks() == [task]
    schedule = app.get_schedule("some")
    assert (schedule.last_at, schedule.last_task_id, schedule.next_at) == (at("13:00"), task.id, at("14:00"))


# Both or neither


class Broken(Exception):
    """What stops an operation between two of its statements."""


def broken_after(app: Any, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Let the operations of the client stop when they want to run this statement."""
    from dibs.store.postgres.connection import AsyncPostgresExecutor, PostgresExecutor
    from dibs.store.sqlite.connection import SqliteExecutor

    def stopping(execute: Callable[..., Any]) -> Callable[..., Any]:
        def stop_or_execute(self: Any, wanted: Any) -> Any:
            if wanted.name == statement:
                raise Broken
            return execute(self, wanted)

        return stop_or_execute

    for executor in (AsyncPostgresExecutor, PostgresExecutor, SqliteExecutor):
        monkeypatch.setattr(executor, "__call__", stopping(executor.__call__))


@pytest.mark.database("it breaks a statement")
@pytest.mark.parametrize("statement", ["enqueue", "record_tick"])
def test_a_schedule_whose_enqueue_fails_keeps_its_next_tick(
    app: Any, url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    app.set_schedule("some", "@hourly", "report")
    clock.advance(HOUR)
    rows = tables.read(url)
    with monkeypatch.context() as broken:
        broken_after(app, broken, statement)
        with pytest.raises(Broken):
            app.tick()
    assert tables.read(url) == rows
    assert app.tick() == 1


KILLED = """
import os, sys, dibs
from dibs.store.sqlite.connection import SqliteExecutor as Sqlite
from dibs.store.postgres.connection import PostgresExecutor as Postgres

def dying(execute):
    def die_or_execute(self, statement):
        if statement.name == "enqueue":
            os._exit(9)
        return execute(self, statement)
    return die_or_execute

for executor in (Sqlite, Postgres):
    executor.__call__ = dying(executor.__call__)
dibs.Dibs(sys.argv[1], clock=lambda: int(sys.argv[2])).tick()
"""


def test_a_tick_survives_a_process_killed_between_its_two_statements(app: Any, url: str, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report")
    clock.advance(HOUR)
    program = [sys.executable, "-c", KILLED, url, str(clock.now)]
    assert subprocess.run(program, check=False, timeout=60, env=os.environ).returncode == 9
    assert app.get_schedule("some").next_at == at("13:00")
    assert app.tick() == 1


# Refused


def test_params_that_do_not_fit_their_type_are_recorded_as_error_and_the_schedule_continues(
    app: Any, clock: Clock
) -> None:
    app.set_schedule("some", "@hourly", "report", {"a": 1})
    app.register_type("report", NEEDS_TEXT)
    clock.advance(HOUR)
    assert app.tick() == 0
    schedule = app.get_schedule("some")
    assert "text" in schedule.last_error
    assert (schedule.next_at, schedule.last_at, schedule.last_task_id) == (at("14:00"), None, None)
    assert (due(app), app.list_tasks()) == ([], [])


def test_an_accepted_tick_clears_the_error_of_a_refused_tick(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report", {"a": 1})
    app.register_type("report", NEEDS_TEXT)
    clock.advance(HOUR)
    app.tick()
    app.set_schedule("some", "@hourly", "report", {"text": "fine"})
    clock.advance(HOUR)
    assert app.tick() == 1
    schedule = app.get_schedule("some")
    assert (schedule.last_error, schedule.last_at) == (None, at("14:00"))


def test_a_refused_tick_keeps_the_record_of_the_last_accepted_tick(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report", {"a": 1})
    clock.advance(HOUR)
    app.tick()
    app.register_type("report", NEEDS_TEXT)
    clock.advance(HOUR)
    app.tick()
    schedule = app.get_schedule("some")
    assert (schedule.last_at, schedule.last_task_id) == (at("13:00"), app.list_tasks()[0].id)
    assert schedule.last_error is not None


def test_a_key_that_another_task_has_is_recorded_as_error_and_the_schedule_continues(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report", catch_up="all")
    app.enqueue("other", key="schedule:some:2025-06-15T14:00:00Z")
    clock.advance(3 * HOUR)
    assert app.tick() == 2
    assert ticks_of(app) == ["06-15 13:00", "06-15 15:00"]
    assert app.get_schedule("some").last_error is None  # the last tick was good
    app.enqueue("other", key="schedule:some:2025-06-15T16:00:00Z")
    clock.advance(HOUR)
    assert app.tick() == 0
    schedule = app.get_schedule("some")
    assert "'schedule:some:2025-06-15T16:00:00Z'" in schedule.last_error
    assert schedule.next_at == at("17:00")


def test_a_refused_tick_of_one_schedule_does_not_hold_up_other_schedules(app: Any, clock: Clock) -> None:
    for name in ("a", "b", "c"):
        app.set_schedule(name, "@hourly", "strict" if name == "b" else "report")
    app.register_type("strict", NEEDS_TEXT)
    clock.advance(HOUR)
    assert app.tick() == 2


def test_a_machine_that_does_not_know_the_time_zone_leaves_the_tick_to_other_machines(
    app: Any, url: str, clock: Clock
) -> None:
    app.set_schedule("a", "@hourly", "report")
    app.set_schedule("b", "@hourly", "report")
    run_sql(url, "UPDATE dibs_schedules SET timezone = 'Mars/Olympus' WHERE name = 'a'")
    clock.advance(HOUR)
    assert app.tick() == 1
    stuck = app.get_schedule("a")
    assert (stuck.next_at, "'Mars/Olympus'" in stuck.last_error) == (at("13:00"), True)
    run_sql(url, "UPDATE dibs_schedules SET timezone = 'UTC' WHERE name = 'a'")
    assert app.tick() == 1
    assert app.get_schedule("a").last_error is None


# Catching up


def test_after_downtime_catch_up_one_enqueues_only_the_latest_tick(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "*/5 * * * *", "report", catch_up="one")
    clock.advance(7 * HOUR + 3 * MINUTE)
    assert app.tick() == 1
    assert ticks_of(app) == ["06-15 19:00"]
    assert app.get_schedule("some").next_at == at("19:05")


@pytest.mark.parametrize(("seconds", "expected"), [(1, 1), (7, 7), (59.999999, 59), (60, 60), (61, 1), (HOUR, 1)])
def test_catch_up_one_enqueues_every_tick_of_the_last_minute(
    app: Any, clock: Clock, seconds: float, expected: int
) -> None:
    app.set_schedule("some", "* * * * * *", "report", catch_up="one")
    clock.advance(seconds)
    assert app.tick() == expected


def test_after_downtime_catch_up_all_enqueues_every_tick_in_order(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report", catch_up="all")
    clock.advance(4 * HOUR + 3 * MINUTE)
    assert app.tick() == 4
    assert ticks_of(app) == ["06-15 13:00", "06-15 14:00", "06-15 15:00", "06-15 16:00"]
    assert app.get_schedule("some").next_at == at("17:00")


def test_catch_up_all_enqueues_at_most_the_newest_thousand_ticks(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "* * * * *", "report", catch_up="all")
    clock.advance(30 * DAY)
    assert app.tick() == CATCH_UP_LIMIT == 1000
    served = [task.run_at for task in app.list_tasks(limit=1000)]
    assert served == [moment(clock) - timedelta(minutes=n) for n in range(1000)]
    assert app.tick() == 0


@pytest.mark.parametrize(("late", "expected"), [(0, 1), (60, 1), (60.000001, 0), (7 * HOUR + 120, 0)])
def test_catch_up_none_enqueues_only_a_tick_that_is_at_most_a_minute_late(
    app: Any, clock: Clock, late: float, expected: int
) -> None:
    app.set_schedule("some", "@hourly", "report", catch_up="none")
    clock.advance(HOUR + late)
    assert app.tick() == expected
    schedule = app.get_schedule("some")
    assert schedule.next_at > moment(clock)
    assert schedule.last_at == (at("13:00") if expected else None)


def test_catch_up_none_enqueues_the_first_tick_after_downtime(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report", catch_up="none")
    clock.advance(7 * HOUR + 30)
    assert app.tick() == 1
    assert ticks_of(app) == ["06-15 19:00"]


# Daylight saving


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (datetime(2025, 3, 29, 12, tzinfo=UTC), ["03-30 01:00", "03-31 00:30"]),  # 02:30 is skipped: 03:00 CEST
        (datetime(2025, 10, 25, 12, tzinfo=UTC), ["10-26 00:30", "10-27 01:30"]),  # 02:30 comes twice: the first
    ],
    ids=["spring", "autumn"],
)
def test_a_nightly_schedule_ticks_once_in_the_night_of_a_clock_change(
    app: Any, clock: Clock, start: datetime, expected: list[str]
) -> None:
    turn_to(clock, start)
    app.set_schedule("nightly", "30 2 * * *", "report", timezone="Europe/Berlin")
    for _ in range(48 * 4):
        clock.advance(15 * MINUTE)
        app.tick()
    assert ticks_of(app) == expected


# Disable, enable, run


def test_a_disabled_schedule_does_not_tick(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report")
    assert not app.disable_schedule("some").enabled
    clock.advance(3 * HOUR)
    assert (due(app), app.tick()) == ([], 0)


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_enabling_a_schedule_computes_the_next_tick_from_now_without_catch_up(
    app: Any, clock: Clock, catch_up: CatchUp
) -> None:
    app.set_schedule("some", "@hourly", "report", catch_up=catch_up)
    app.disable_schedule("some")
    clock.advance(3 * HOUR + 1)
    enabled = app.enable_schedule("some")
    assert (enabled.enabled, enabled.next_at, enabled.updated_at) == (True, at("16:00"), moment(clock))
    assert app.tick() == 0
    clock.advance(HOUR)
    assert app.tick() == 1
    assert ticks_of(app) == ["06-15 16:00"]


def test_enabling_an_enabled_schedule_keeps_a_tick_that_is_due(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report")
    clock.advance(HOUR)
    assert app.enable_schedule("some").next_at == at("13:00")
    assert app.tick() == 1


def test_disabling_twice_is_the_same_as_once(app: Any, clock: Clock) -> None:
    app.set_schedule("some", "@hourly", "report")
    first = app.disable_schedule("some")
    clock.advance(1)
    assert app.disable_schedule("some") == first


@pytest.mark.parametrize("enabled", [True, False])
def test_run_enqueues_a_task_now_and_keeps_the_next_tick(app: Any, url: str, clock: Clock, enabled: bool) -> None:
    made = app.set_schedule("some", "@hourly", "report", {"a": 1}, queue="slow", priority=4, enabled=enabled)
    clock.advance(90)
    first, second = app.run_schedule("some"), app.run_schedule("some")
    assert first.id != second.id
    assert (first.state, first.run_at) == (State.PENDING, moment(clock))
    assert first.key.startswith("schedule:some:run-")
    assert (first.type, first.params, first.queue, first.priority) == ("report", {"a": 1}, "slow", 4)
    assert events(app, first.id) == ["enqueued"]
    assert app.get_schedule("some") == made


def test_run_refuses_params_that_do_not_fit_their_type(app: Any) -> None:
    app.set_schedule("some", "@hourly", "report")
    app.register_type("report", NEEDS_TEXT)
    with pytest.raises(SchemaViolation):
        app.run_schedule("some")


# When to look again


def test_the_next_tick_of_an_enabled_schedule_counts_for_the_next_due_time(app: Any, clock: Clock) -> None:
    def next_due() -> float | None:
        answer: float | None = run(app, app._store.upkeep.next_due())
        return answer

    assert next_due() is None
    app.set_schedule("hourly", "@hourly", "report")
    assert next_due() == HOUR
    app.set_schedule("quarterly", "*/15 * * * *", "report")
    assert next_due() == 15 * MINUTE
    app.enqueue("resize", delay=60)
    assert next_due() == 60
    app.promote()
    app.disable_schedule("quarterly")
    clock.advance(60)
    app.promote()
    assert next_due() == HOUR - 60
    clock.advance(HOUR)
    assert next_due() == 0  # a tick has come
    clock.advance(1)
    assert next_due() is None  # no process could tick it for a minute: it is no longer urgent
    app.tick()
    assert next_due() == HOUR - 61


def test_a_schedule_survives_closing_and_opening_the_database(
    url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    app = open_app(url, clock=clock)
    made = app.set_schedule("some", "@hourly", "report")
    app.close()
    again = open_app(url, clock=clock)
    assert again.schedules() == [made]
    clock.advance(HOUR)
    assert again.tick() == 1


def test_the_types_of_schedules_are_public() -> None:
    assert {"Schedule", "CatchUp", "ScheduleNotFound"} <= set(dibs.__all__)
    assert [each.value for each in dibs.CatchUp] == ["one", "all", "none"]
