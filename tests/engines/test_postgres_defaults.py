"""Defaults that an administrator set for the database: dibs works with them, and the doctor reports them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from typing import Any

import psycopg
import pytest

import dibs
from dibs import Verdict
from dibs.store.operation import Mode, Operation, Statement, Statements
from dibs.store.postgres import store as postgres_store
from dibs.store.postgres.store import PostgresStore
from tests.engines.test_pooler import needed_pooler
from tests.helpers.borrowed import Borrowed
from tests.helpers.consistency import assert_balanced
from tests.helpers.databases import run_sql
from tests.helpers.waiting import until
from tests.helpers.workflows import start, states, step

pytestmark = [pytest.mark.parametrize("engine", ["postgres"], indirect=True), pytest.mark.own_connections]

LEVELS = ["repeatable read", "serializable"]
OPENERS, STEPS, WORKERS = 6, 24, 6


def set_default(url: str, name: str, value: str) -> None:
    """What an administrator does: a default for every new session of the database."""
    [(database,)] = run_sql(url, "SELECT current_database()")
    run_sql(url, f"ALTER DATABASE {database} SET {name} = '{value}'")


def reset_defaults(url: str) -> None:
    """Take back every default of the database."""
    [(database,)] = run_sql(url, "SELECT current_database()")
    run_sql(url, f"ALTER DATABASE {database} RESET ALL")


@pytest.fixture(params=LEVELS)
def strict_url(url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A migrated database with another default isolation level."""
    set_default(url, "default_transaction_isolation", request.param)
    yield url
    reset_defaults(url)  # a database with the usual settings can be lent to the next test


@pytest.mark.parametrize("level", LEVELS)
def test_several_programs_open_an_empty_database_concurrently_at_any_default_isolation(
    empty_url: str, level: str
) -> None:
    set_default(empty_url, "default_transaction_isolation", level)
    together = threading.Barrier(OPENERS)

    def open_first(number: int) -> None:
        with dibs.Dibs(empty_url) as app:
            together.wait(20)
            app.enqueue("t", {"number": number})

    with ThreadPoolExecutor(OPENERS) as pool:
        list(pool.map(open_first, range(OPENERS)))
    with dibs.Dibs(empty_url) as app:
        assert app.stats().depth == {"pending": OPENERS}


def fan(app: dibs.Dibs) -> int:
    """A workflow of many steps that one step waits for."""
    parts = [step(f"part{n}") for n in range(STEPS)]
    return start(app, *parts, step("join", *(part.name for part in parts)))


def test_steps_that_end_concurrently_are_stored_without_an_error_at_any_default_isolation(strict_url: str) -> None:
    with dibs.Dibs(strict_url) as app:
        workflow = fan(app)
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda number: work(strict_url, f"w{number}"), range(WORKERS)))
        assert set(states(app, workflow).values()) == {"completed"}
        assert_balanced(app)


def test_steps_that_end_concurrently_on_an_event_loop_are_stored_at_any_default_isolation(strict_url: str) -> None:
    with dibs.Dibs(strict_url) as app:
        workflow = fan(app)
        asyncio.run(work_together(strict_url))
        assert set(states(app, workflow).values()) == {"completed"}
        assert_balanced(app)


def test_steps_that_end_concurrently_behind_a_pooler_are_stored_at_any_default_isolation(strict_url: str) -> None:
    with needed_pooler(strict_url) as pooler, dibs.Dibs(pooler.url) as app:
        workflow = fan(app)
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda number: work(pooler.url, f"w{number}"), range(WORKERS)))
        assert set(states(app, workflow).values()) == {"completed"}
        assert_balanced(app)


def work(url: str, name: str) -> None:
    """Claim and complete until every step has ended."""
    with dibs.Dibs(url) as app:
        while app.stats().depth != {"completed": STEPS + 1}:
            for claim in app.claim_many(name, 2):
                app.complete(claim, {"by": name})


async def work_together(url: str) -> None:
    async with dibs.AsyncDibs(url) as app:

        async def work_as(name: str) -> None:
            while (await app.stats()).depth != {"completed": STEPS + 1}:
                for claim in await app.claim_many(name, 2):
                    await app.complete(claim, {"by": name})

        await asyncio.gather(*(work_as(f"w{number}") for number in range(WORKERS)))


# The level at which each statement runs

NOTE_LEVELS = (
    "CREATE TABLE levels (level text)",
    """CREATE FUNCTION note_level() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO levels VALUES (current_setting('transaction_isolation')); RETURN NULL; END $$""",
    "CREATE TRIGGER note_level AFTER INSERT OR UPDATE ON dibs_tasks EXECUTE FUNCTION note_level()",
)


@pytest.fixture
def levels(strict_url: str) -> Iterator[Callable[[], set[str]]]:
    """The isolation levels at which tasks were written."""
    run_sql(strict_url, *NOTE_LEVELS)
    yield lambda: {level for (level,) in run_sql(strict_url, "SELECT level FROM levels")}
    run_sql(strict_url, "DROP FUNCTION note_level CASCADE", "DROP TABLE levels")


def write(app: Any) -> None:
    """Operations of one statement, and of several."""
    app.enqueue("t")
    app.enqueue("t", key="k")
    app.complete(app.claim("w"))
    app.finish([(app.claim("w"), dibs.Completed())])


def test_every_write_is_read_committed(
    strict_url: str, open_app: Callable[..., Any], levels: Callable[[], set[str]]
) -> None:
    write(open_app(strict_url))
    assert levels() == {"read committed"}


def test_every_write_behind_a_pooler_is_read_committed(
    strict_url: str, open_app: Callable[..., Any], levels: Callable[[], set[str]]
) -> None:
    with needed_pooler(strict_url) as pooler:
        app = open_app(pooler.url)
        write(app)
        app.close()
    assert levels() == {"read committed"}


def test_a_transaction_that_dibs_begins_on_a_connection_of_the_user_is_read_committed(
    strict_url: str, open_app: Callable[..., Any], levels: Callable[[], set[str]]
) -> None:
    app = open_app(strict_url)
    task = app.enqueue("t")
    run_sql(strict_url, "DELETE FROM levels")
    with closing(Borrowed(app, strict_url, {"autocommit": True})) as own:
        app.on(own.connection).cancel(task.id)
        assert own.value("SELECT 1") == 1
    assert levels() == {"read committed"}


def test_the_users_transaction_keeps_its_isolation_level(
    strict_url: str, open_app: Callable[..., Any], levels: Callable[[], set[str]]
) -> None:
    app = open_app(strict_url)
    with closing(Borrowed(app, strict_url, {})) as own:
        [task] = app.on(own.connection).enqueue_many([dibs.NewTask("t")])
        assert own.value("SHOW transaction_isolation") in LEVELS
        own.commit()
    assert app.get(task.id).state == "pending"
    assert levels() <= set(LEVELS)


# Retries


def test_a_retry_after_a_serialization_failure_waits_longer_each_time(url: str) -> None:
    began: list[float] = []

    def collide() -> Statements[int]:
        began.append(time.monotonic())
        if len(began) < postgres_store.TRIES:
            raise psycopg.errors.SerializationFailure("could not serialize access")
        yield Statement("clock")
        return len(began)

    with closing(PostgresStore(url)) as store:
        assert store.run(Operation("collide", collide, mode=Mode.TRANSACTION)) == postgres_store.TRIES
    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert all(pause >= least for pause, least in zip(pauses, (0.005, 0.01, 0.02), strict=True))


def test_the_pauses_of_transactions_that_collided_differ(engine: str) -> None:
    assert len({postgres_store.pause_before(2) for _ in range(50)}) > 40


# Timeouts

ENDED = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def wait_until_the_server_ended_every_session(url: str) -> None:
    until(lambda: run_sql(url, ENDED) == [(True,)])


def test_a_session_that_the_server_ended_while_it_was_idle_fails_no_call(
    url: str, open_app: Callable[..., Any]
) -> None:
    set_default(url, "idle_session_timeout", "1s")  # a new session must not wait that long for its first statement
    app = open_app(url)
    for _ in range(2):
        app.enqueue("t")
        wait_until_the_server_ended_every_session(url)
    app.complete(app.claim("w"))
    wait_until_the_server_ended_every_session(url)
    assert app.stats().depth == {"pending": 1, "completed": 1}


def test_a_call_on_a_user_connection_that_the_server_ended_reports_that_nothing_was_written(
    url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(url)
    app.enqueue("t")
    set_default(url, "idle_session_timeout", "100ms")
    with closing(Borrowed(app, url, {"autocommit": True})) as own:
        until(lambda: run_sql(url, "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND pid = "
                              f"{own.connection.info.backend_pid}") == [(0,)])  # fmt: skip
        with pytest.raises(dibs.StoreUnavailable, match="idle-session timeout"):
            app.on(own.connection).enqueue("t")
    assert app.stats().depth == {"pending": 1}


def test_other_processes_are_notified_also_after_the_server_ended_the_idle_session_that_notifies(url: str) -> None:
    set_default(url, "idle_session_timeout", "100ms")
    with dibs.Dibs(url) as app, psycopg.connect(url, autocommit=True) as other:
        other.execute("SET idle_session_timeout = 0")
        other.execute("LISTEN dibs")
        for _ in range(2):
            app.enqueue("t")
            assert list(other.notifies(timeout=10, stop_after=1))
            until(lambda: run_sql(url, ENDED.replace("= 0", "= 1")) == [(True,)])  # all but the one that listens


@pytest.mark.parametrize("name", ["lock_timeout", "statement_timeout"])
def test_a_program_waits_for_a_concurrent_migration_under_any_default_timeouts(empty_url: str, name: str) -> None:
    from dibs.store.postgres.migrations import LOCK

    set_default(empty_url, name, "250ms")
    with psycopg.connect(empty_url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SET statement_timeout = 0")
        other.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        opening = pool.submit(migrate, empty_url)
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        until(lambda: run_sql(empty_url, waiting) != [(0,)])
        with pytest.raises(TimeoutError):
            opening.result(0.5)
        other.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
        assert opening.result(60)


def migrate(url: str) -> list[str]:
    with dibs.Dibs(url) as app:
        return app.migrate()


# The doctor


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("default_transaction_isolation", "serializable", Verdict.WARN),
        ("default_transaction_isolation", "repeatable read", Verdict.WARN),
        ("default_transaction_isolation", "read committed", Verdict.OK),
        ("default_transaction_read_only", "on", Verdict.FAIL),
        ("default_transaction_read_only", "off", Verdict.OK),
        ("idle_session_timeout", "5s", Verdict.WARN),
        ("idle_session_timeout", "10min", Verdict.OK),
        ("statement_timeout", "2s", Verdict.WARN),
        ("statement_timeout", "5min", Verdict.OK),
        ("lock_timeout", "100ms", Verdict.WARN),
        ("lock_timeout", "0", Verdict.OK),
    ],
)
def test_the_doctor_reports_a_default_that_affects_dibs(
    url: str, open_app: Callable[..., Any], name: str, value: str, verdict: Verdict
) -> None:
    set_default(url, name, value)
    found = {check.name: check for check in open_app(url).doctor()}
    assert (found[name].verdict, found[name].message) == (verdict, f"{name} is {value}")
    assert bool(found[name].hint) is (verdict is not Verdict.OK)


def test_the_doctor_examines_the_whole_database_under_any_statement_timeout(
    url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(url)
    app.enqueue("t")
    set_default(url, "statement_timeout", "100ms")
    with psycopg.connect(url) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SET statement_timeout = 0")
        other.execute("LOCK TABLE dibs_history IN ACCESS EXCLUSIVE MODE")
        checks = pool.submit(app.doctor)
        with pytest.raises(TimeoutError):
            checks.result(1)
        other.rollback()
        assert "books states" in {check.name for check in checks.result(30)}
