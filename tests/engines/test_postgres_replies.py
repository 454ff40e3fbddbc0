"""No call waits forever for PostgreSQL: a session without a reply within the bound is closed."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

import dibs
from dibs.store.operation import Mode, Operation, Statement, Statements
from dibs.store.postgres import replies
from dibs.store.postgres.connection import NAMED, connection_string
from dibs.store.postgres.store import PostgresStore
from dibs.store.postgres.wakeups import PostgresWakeups
from tests.helpers import handlers
from tests.helpers.consistency import assert_balanced
from tests.helpers.databases import run_sql
from tests.helpers.handlers import nap
from tests.helpers.waiting import let_pass, until

on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)

pytestmark = pytest.mark.own_connections

BOUND = 1.0


def bounded(url: str, seconds: float = BOUND) -> str:
    return f"{url}&reply_timeout={seconds}"


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Freeze processes of the server; the kernel still acknowledges what is sent to them."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


RUNNING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND state = 'active' AND query LIKE 'SELECT pg_sleep(%'"
)
"""The statements of this file that sleep. Other databases of the same server belong to other tests."""


def sessions(url: str, state: str = "%") -> list[int]:
    """The processes of the server that serve other sessions of the database."""
    others = (
        "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        f" AND state LIKE '{state}'"
    )
    return [pid for (pid,) in run_sql(url, f"SELECT pid FROM pg_stat_activity WHERE {others}")]


@on_postgres
def test_a_read_that_is_not_answered_is_repeated_on_a_new_session(open_app: Callable[..., Any], url: str) -> None:
    app = open_app(bounded(url))
    task = app.enqueue("t")
    app.get(task.id)
    with frozen(*sessions(url)):
        began = time.monotonic()
        assert app.get(task.id).state == "pending"
        assert BOUND * 0.5 < time.monotonic() - began < 10


@on_postgres
def test_the_outcome_of_a_write_that_is_not_answered_is_unknown(open_app: Callable[..., Any], url: str) -> None:
    app = open_app(bounded(url))
    app.enqueue("before")
    with frozen(*sessions(url)):
        began = time.monotonic()
        with pytest.raises(dibs.OutcomeUnknown, match=r"did not answer enqueue within 1\.0 s"):
            app.enqueue("t", key="once")
        assert time.monotonic() - began < 10
        first = app.enqueue("t", key="once")  # on a new session
    assert app.enqueue("t", key="once").id == first.id
    until(lambda: app.stats().depth == {"pending": 2})


@on_postgres
@pytest.mark.parametrize("writing", [False, True])
def test_idle_sessions_on_a_frozen_server_are_not_tried_one_by_one(
    url: str, writing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(PostgresStore(bounded(url))) as store, ExitStack() as in_use:
        pool = store._opened().connections.pool()
        for _ in range(8):
            in_use.enter_context(pool.connection())
        in_use.close()
        with frozen(*sessions(url)), caplog.at_level(logging.WARNING, "dibs.postgres"):
            if writing:
                with pytest.raises(dibs.OutcomeUnknown):
                    store.run(store.registry.pause("default"))
            else:
                store.run(store.history.last_entry())
            with ThreadPoolExecutor(8) as callers:  # all at once, so that each needs a session
                list(callers.map(lambda _: store.run(Operation("get", sleeping(0.3), mode=Mode.READ)), range(8)))
    given_up = [record for record in caplog.records if getattr(record, "event", "") == "postgres.unanswered"]
    assert 1 <= len(given_up) <= 2  # the pool may have been opening one more session at that moment


@on_postgres
def test_a_late_error_of_an_old_session_does_not_cost_new_sessions(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        connections = store._opened().connections
        with connections.pool().connection() as old, connections.pool().connection() as other:
            connections.broke(old, psycopg.OperationalError("gone"))
            assert not connections.trusts(old)
            assert not connections.trusts(other)
            new = type(old)(old.pgconn)
            connections.broke(other, psycopg.OperationalError("gone as well"))
            assert connections.trusts(new)
            connections.broke(new, psycopg.errors.DeadlockDetected("not a matter of the connection"))
            assert connections.trusts(new)


@on_postgres
def test_the_log_names_the_statement_without_a_reply(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with dibs.Dibs(bounded(url)) as app, caplog.at_level(logging.WARNING, "dibs.postgres"):
        app.get(app.enqueue("t").id)
        with frozen(*sessions(url)):
            app.get(1)
    # The pool may have been opening one more session, and then reports that session as well.
    lines = [record.getMessage() for record in caplog.records if record.name == "dibs.postgres"]
    assert ["has not answered get for 1.0 s" in line for line in lines].count(True) == 1


@on_postgres
def test_a_call_that_waits_for_a_lock_gives_up_before_its_session_is_closed(
    open_app: Callable[..., Any], url: str
) -> None:
    app = open_app(bounded(url))
    app.enqueue("before")
    with psycopg.connect(url) as other, other.transaction():
        other.execute("LOCK TABLE dibs_tasks IN ACCESS EXCLUSIVE MODE")
        before = sessions(url)
        with pytest.raises(dibs.StoreBusy, match="lock timeout"):
            app.enqueue("t")
        assert set(before) <= set(sessions(url))  # the pool may have been opening one more session
    app.enqueue("t")


@on_postgres
def test_a_lock_timeout_of_the_administrator_is_kept(url: str) -> None:
    own = f"{url}&options=-c%20lock_timeout%3D123ms"
    with closing(PostgresStore(own)) as store, store._opened().connections.pool().connection() as borrowed:
        assert borrowed.execute("SHOW lock_timeout").fetchone() == ("123ms",)


@on_postgres
def test_sessions_wait_for_locks_half_as_long_as_for_a_reply(url: str) -> None:
    for place, shown in ((url, "15s"), (bounded(url, 8), "4s"), (bounded(url, 0), "0")):
        with closing(PostgresStore(place)) as store, store._opened().connections.pool().connection() as borrowed:
            assert borrowed.execute("SHOW lock_timeout").fetchone() == (shown,)


@on_postgres
@pytest.mark.parametrize("name", ["prune", "stats"])
def test_a_long_operation_may_take_longer(url: str, name: str) -> None:
    with closing(PostgresStore(bounded(url, 0.2))) as store:
        assert store.run(Operation(name, sleeping(1.0), mode=Mode.READ)) == 1.0
        with pytest.raises(dibs.StoreUnavailable, match="did not answer get within"):
            store.run(Operation("get", sleeping(1.0), mode=Mode.READ))


def sleeping(seconds: float) -> Callable[[], Statements[float]]:
    def steps() -> Statements[float]:
        yield Statement("doze", {"seconds": seconds})
        return seconds

    return steps


@pytest.fixture(autouse=True)
def statement_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement of the test's own beside those of dibs."""
    plain, sleep = NAMED.text, "SELECT pg_sleep(:seconds)"
    monkeypatch.setattr(NAMED, "text", lambda name, *words: sleep if name == "doze" else plain(name, *words))


@on_postgres
def test_an_abandoned_read_ends_on_the_server_too(url: str) -> None:
    with closing(PostgresStore(bounded(url, 0.2))) as store:
        with pytest.raises(dibs.StoreUnavailable):
            store.run(Operation("get", sleeping(60.0), mode=Mode.READ))
        until(lambda: run_sql(url, RUNNING) == [(0,)])


@on_postgres
def test_an_abandoned_write_is_not_cancelled(url: str) -> None:
    """A cancel could end the wait of its COMMIT for a synchronous standby, and show a row that is not replicated."""
    with closing(PostgresStore(bounded(url, 0.2))) as store:
        with pytest.raises(dibs.OutcomeUnknown):
            store.run(Operation("enqueue", sleeping(60.0)))
        let_pass(1)  # a cancel, which another thread sends, would have ended the statement by now
        assert run_sql(url, RUNNING) == [(1,)]
        run_sql(url, RUNNING.replace("count(*)", "pg_terminate_backend(pid)"))


@on_postgres
def test_a_bound_of_zero_means_no_bound(url: str) -> None:
    with closing(PostgresStore(bounded(url, 0))) as store:
        assert store.run(Operation("get", sleeping(0.5), mode=Mode.READ)) == 0.5
        with store._opened().connections.pool().connection() as borrowed:
            assert borrowed.reply_within == 0


def test_the_bound_comes_from_the_url_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, said = "postgresql://host/db", "postgresql://host/db?reply_timeout=7&application_name=x"
    assert replies.reply_timeout_of(plain) == replies.REPLY_TIMEOUT
    monkeypatch.setenv("DIBS_REPLY_TIMEOUT", "12.5")
    assert replies.reply_timeout_of(plain) == 12.5
    assert replies.reply_timeout_of(said) == 7


@pytest.mark.parametrize(
    ("url", "left"),
    [
        ("postgresql://h/db?reply_timeout=7", "postgresql://h/db"),
        ("postgresql://h/db?reply_timeout=7&sslmode=disable", "postgresql://h/db?sslmode=disable"),
        ("postgresql://h/db?sslmode=disable&reply_timeout=7", "postgresql://h/db?sslmode=disable"),
        ("postgresql://h/db?host=a,b&reply_timeout=7&port=1,2", "postgresql://h/db?host=a,b&port=1,2"),
        ("postgresql://h/db", "postgresql://h/db"),
    ],
)
def test_libpq_does_not_see_the_bound(url: str, left: str) -> None:
    assert replies.without_reply_timeout(url) == left
    assert connection_string(url) == connection_string(left)


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "inf"])
def test_a_bound_that_is_not_a_valid_time_is_refused(given: str) -> None:
    with (
        pytest.raises(dibs.InvalidValue, match="reply_timeout is"),
        dibs.Dibs(f"postgresql://h/db?reply_timeout={given}") as app,
    ):
        app.stats()


def test_operations_with_a_bound_of_their_own_exist() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in Path(replies.__file__).parents[1].rglob("*.py"))
    names = set(re.findall(r'\bOperation\(\s*"(\w+)"', source))
    assert (replies.LONG | replies.SHORT) - {"doctor"} - names == set()


@pytest.mark.parametrize(
    ("name", "alike"),
    [("find", "search"), ("discard_many", "retry_many"), ("discard_some", "redrive")],
)
def test_operations_that_read_as_many_rows_have_the_same_bound(name: str, alike: str) -> None:
    assert replies._share(name) == replies._share(alike)


@on_postgres
def test_wake_ups_leave_a_server_that_does_not_answer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.store.postgres.wakeups.CHECK_INTERVAL", 0.1)
    wakeups = PostgresWakeups(bounded(url, 0.5))
    waiting = threading.Thread(target=wait_often, args=(wakeups,))
    waiting.start()
    wakeups.wrote()
    stale = set(until(lambda: len(found := sessions(url)) == 2 and found))
    with frozen(*stale):
        wakeups.wrote()
        until(lambda: len(set(sessions(url)) - stale) == 2, 15)
    wakeups.close()
    waiting.join()


def wait_often(wakeups: PostgresWakeups) -> None:
    """As a worker without tasks does, until the wake-ups are closed."""
    while not wakeups._closed:
        wakeups.wait(wakeups.generation, 0.5)


def is_in_use(pool: AsyncConnectionPool[Any]) -> bool:
    """True while a call has taken a session."""
    stats = pool.get_stats()
    return stats["pool_available"] < stats["pool_size"]


@on_postgres
def test_ctrl_c_and_cancelling_do_not_wait_for_a_frozen_server(url: str) -> None:
    async def cancel_a_call() -> float:
        app = dibs.AsyncDibs(bounded(url, 2))
        await app.enqueue("t")
        with frozen(*sessions(url)):
            call = asyncio.create_task(app.get(1))
            pool = await app._store._store._opened().connections.async_pool()  # type: ignore[attr-defined]
            await asyncio.to_thread(until, lambda: is_in_use(pool))
            call.cancel()
            began = time.monotonic()
            with suppress(asyncio.CancelledError, dibs.StoreError):
                await call
            took = time.monotonic() - began
        await app.close()
        return took

    assert asyncio.run(cancel_a_call()) < 15


@on_postgres
def test_a_worker_continues_when_its_sessions_freeze(url: str) -> None:
    """Claimer, lease keeper and finisher each lose their session, and take a new one."""
    with handlers.at(bounded(url)) as app:
        worker = app.worker(lease=6, upkeep_every=0.5, concurrency=4)
        running = threading.Thread(target=worker.run)
        running.start()
        app.enqueue_many([nap.new(seconds=0.05) for _ in range(200)])
        until(lambda: app.stats().depth.get("completed", 0) > 20, 30)
        with frozen(*sessions(url, "idle")):  # one that holds a lock of the server would stop all the others
            until(lambda: completed(url) == 200, 60)
        worker.stop()
        running.join(30)
        assert_balanced(app)


def completed(url: str) -> int:
    return int(run_sql(url, "SELECT count(*) FROM dibs_tasks WHERE state = 'completed'")[0][0])
