"""A session of a demoted, read-only node is closed; the call, which changed nothing, is repeated on a new session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

import dibs
from dibs.store.postgres.migrations import migrate
from dibs.store.postgres.wakeups import PostgresWakeups
from tests.helpers.borrowed import Borrowed
from tests.helpers.databases import run_sql
from tests.helpers.waiting import until

pytestmark = [pytest.mark.parametrize("engine", ["postgres"], indirect=True), pytest.mark.own_connections]


@contextmanager
def read_only(url: str) -> Iterator[None]:
    """Sessions that begin in here are read-only for as long as they live, like those of a demoted node."""
    name = conninfo_to_dict(url)["dbname"]
    run_sql(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        yield
    finally:
        run_sql(url, "SET default_transaction_read_only = off", f"ALTER DATABASE {name} RESET ALL")


def end_sessions(url: str) -> None:
    """Every session of the database but the one that asks."""
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    run_sql(url, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}")


def test_a_session_that_is_read_only_does_not_stay_in_the_pool(open_app: Callable[..., Any], url: str) -> None:
    app = open_app(url)
    app.enqueue("before")
    end_sessions(url)
    with read_only(url):
        assert app.stats().depth == {"pending": 1}  # this session is in the pool now
    began = time.monotonic()
    app.enqueue("after")
    assert time.monotonic() - began < 15
    assert app.claim_many("w", 5)


def test_all_read_only_sessions_of_the_pool_are_replaced_at_once(url: str) -> None:
    with dibs.Dibs(url) as app:
        app.enqueue("before")
        end_sessions(url)
        with read_only(url):
            together(8, app.stats)
        began = time.monotonic()
        together(8, lambda: app.enqueue("after"))
        assert time.monotonic() - began < 15
        assert app.stats().depth == {"pending": 9}


def together(count: int, call: Callable[[], object]) -> None:
    """Run the call in this number of threads at the same time."""
    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def test_a_call_that_meets_a_read_only_server_succeeds_once_the_server_can_be_written(
    open_app: Callable[..., Any], url: str
) -> None:
    app = open_app(url)
    app.enqueue("before")
    end_sessions(url)
    answers: list[Any] = []
    caller = threading.Thread(target=lambda: answers.append(app.enqueue("t")))
    with read_only(url):
        caller.start()
        sessions = "SELECT count(*) > 2 FROM pg_stat_activity WHERE datname = current_database() AND query <> ''"
        refused = "SELECT xact_rollback > 1 FROM pg_stat_database WHERE datname = current_database()"
        until(lambda: run_sql(url, refused) == [(True,)] or run_sql(url, sessions) == [(True,)], 30)
        assert not answers
    caller.join(30)
    assert [answer.state for answer in answers] == ["pending"]
    assert app.stats().depth == {"pending": 2}


def test_a_server_that_stays_read_only_is_reported_as_unavailable_after_the_usual_time(
    open_app: Callable[..., Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.store.postgres.outages.POOL_TIMEOUT", 1.0)
    app = open_app(url)
    app.enqueue("before")
    end_sessions(url)
    with read_only(url):
        began = time.monotonic()
        with pytest.raises(dibs.StoreUnavailable, match="read-only") as raised:
            app.enqueue("t")
        assert 0.9 < time.monotonic() - began < 10
    assert "target_session_attrs=read-write" in raised.value.hint
    assert app.stats().depth == {"pending": 1}


@pytest.mark.parametrize("refused", ["session", "transaction"])
def test_a_read_only_connection_of_the_user_is_refused_at_once_and_left_alone(
    open_app: Callable[..., Any], url: str, refused: str
) -> None:
    app = open_app(url)
    app.enqueue("before")
    with read_only(url):
        mine = Borrowed(app, url, {})
    if refused == "transaction":
        mine.execute("SET TRANSACTION READ ONLY")
    began = time.monotonic()
    with pytest.raises(dibs.StoreUnavailable, match="read-only") as raised:
        app.on(mine.connection).enqueue("t")
    assert time.monotonic() - began < 15
    assert "connection that you handed in" in raised.value.hint
    assert not mine.connection.closed
    mine.close()


def test_migrations_wait_for_a_server_that_can_be_written(empty_url: str) -> None:
    applied: list[Any] = []
    migrating = threading.Thread(target=lambda: applied.append(migrate(empty_url)))
    with read_only(empty_url):
        migrating.start()
        refused = "SELECT xact_rollback > 1 FROM pg_stat_database WHERE datname = current_database()"
        until(lambda: run_sql(empty_url, refused) == [(True,)], 30)
    migrating.join(30)
    assert applied
    assert applied[0]


def test_migrations_of_a_server_that_stays_read_only_give_up(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.store.postgres.outages.POOL_TIMEOUT", 0.5)
    with read_only(empty_url), pytest.raises(dibs.StoreUnavailable, match="read-only"):
        migrate(empty_url)


def test_wake_ups_leave_a_node_that_has_become_read_only(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LISTEN and NOTIFY also work in a read-only session, where no notification of a write arrives or helps."""
    monkeypatch.setattr("dibs.store.postgres.wakeups.CHECK_INTERVAL", 0.1)
    wakeups = PostgresWakeups(url)
    waiting = threading.Thread(target=wait_often, args=(wakeups,))
    with read_only(url):
        waiting.start()
        wakeups.wrote()
        stale: set[int] = set()  # the one that listens and the one that notifies, which both come back again and again
        until(lambda: stale.update(sessions_of(url)) or len(stale) >= 2)
    wakeups.wrote()
    until(lambda: len(found := sessions_of(url)) == 2 and not found & stale, 15)
    wakeups.close()
    waiting.join()


def wait_often(wakeups: PostgresWakeups) -> None:
    """As a worker without tasks does, until the wake-ups are closed."""
    while not wakeups._closed:
        wakeups.wait(wakeups.generation, 0.5)


def sessions_of(url: str) -> set[int]:
    """The processes of the sessions that are not ours."""
    others = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    return {pid for (pid,) in run_sql(url, f"SELECT pid FROM pg_stat_activity WHERE {others}")}
