"""Every connection to PostgreSQL notices a lost server within half a minute, unless the URL has other timeouts."""

from __future__ import annotations

import ast
import asyncio
import time
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

import dibs
from dibs.store.operation import Mode, Operation, Statement, Statements
from dibs.store.postgres import connection
from dibs.store.postgres.connection import connection_string
from dibs.store.postgres.store import PostgresStore
from tests.helpers import postgres
from tests.helpers.silent import silent_server
from tests.helpers.waiting import until

pytestmark = pytest.mark.own_connections

SETTINGS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


def settings_of(url: str) -> dict[str, str]:
    """The settings for libpq beside the address."""
    return {name: str(value) for name, value in conninfo_to_dict(connection_string(url)).items() if name in SETTINGS}


@pytest.mark.parametrize("url", ["postgresql://host/db", "postgresql://host/db?application_name=x", "host=h dbname=d"])
def test_a_connection_has_timeouts_for_a_lost_server(url: str) -> None:
    assert settings_of(url) == SETTINGS


def test_timeouts_in_the_url_are_kept() -> None:
    own = "postgresql://host/db?connect_timeout=3&keepalives_count=9&tcp_user_timeout=0"
    assert settings_of(own) == SETTINGS | {"connect_timeout": "3", "keepalives_count": "9", "tcp_user_timeout": "0"}


def test_the_address_and_credentials_of_the_url_are_kept() -> None:
    url = "postgresql://me:s%40crit@host:5433/db?application_name=a%20b"
    whole = conninfo_to_dict(connection_string(url))
    assert {name: whole[name] for name in conninfo_to_dict(url)} == conninfo_to_dict(url)


def test_the_connections_of_the_pool_have_the_timeouts(postgres_server: str, postgres_template: str) -> None:
    url = postgres.clone(postgres_server, postgres_template)
    store = PostgresStore(url)
    with store._opened().connections.pool().connection() as borrowed:
        given = borrowed.info.get_parameters()
    store.close()
    postgres.drop(postgres_server, url)
    assert {name: given.get(name) for name in SETTINGS} == SETTINGS


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_the_connection_that_came_back_last_is_lent_next(url: str) -> None:
    """Its plans are made. In turn, each of ten would have to make them."""
    with closing(PostgresStore(url)) as store:
        pool = store._opened().connections.pool()
        with ExitStack() as lent:
            last, *_ = [lent.enter_context(pool.connection()) for _ in range(3)]
        for _ in range(5):
            with pool.connection() as borrowed:
                assert borrowed is last


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_the_async_connection_that_came_back_last_is_lent_next(url: str) -> None:
    async def borrow() -> None:
        store = PostgresStore(url)
        pool = await (await store._opened_async()).connections.async_pool()
        async with AsyncExitStack() as lent:
            last, *_ = [await lent.enter_async_context(pool.connection()) for _ in range(3)]
        for _ in range(5):
            async with pool.connection() as borrowed:
                assert borrowed is last
        await store.close_async()

    asyncio.run(borrow())


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_an_idle_worker_renews_query_plans_before_they_are_too_old(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(PostgresStore(url)) as store:
        opened = store._opened().connections
        with opened.pool().connection() as borrowed:
            assert not opened.plans_are_old(borrowed, idle=True)  # it has none yet
            monkeypatch.setattr("dibs.store.postgres.store.PLANS_RENEWED_AFTER", 0.0)
            assert not opened.plans_are_old(borrowed)
            assert opened.plans_are_old(borrowed, idle=True)
            monkeypatch.setattr("dibs.store.postgres.store.PLANS_KEPT_FOR", 0.0)
            assert opened.plans_are_old(borrowed)  # plans are never kept forever


def sources() -> list[Path]:
    """The modules of the engine."""
    return list(Path(connection.__file__).parent.glob("*.py"))


def test_every_connection_is_made_with_the_timeouts() -> None:
    makers = ("sessions_of(url).connect", "sessions_of(self._url).connect", "ConnectionPool", "AsyncConnectionPool")
    calls = [
        ast.unparse(node.args[0])
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in makers
    ]
    assert len(calls) == 6
    assert not any("psycopg.connect(" in path.read_text(encoding="utf-8") for path in sources())
    assert set(calls) <= {"connection_string(self._url)", "connection_string(url)", "self._conninfo"}


def test_an_attempt_to_connect_to_a_server_that_never_answers_ends_after_the_timeout_in_the_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dibs.store.postgres.store.POOL_TIMEOUT", 1.0)  # one attempt
    with (
        silent_server() as address,
        dibs.Dibs(f"postgresql://me@{address}/db?connect_timeout=2&sslmode=disable") as app,
    ):
        began = time.monotonic()
        with pytest.raises(dibs.StoreUnavailable):
            app.stats()
        assert time.monotonic() - began < 8


def test_a_url_that_libpq_cannot_read_is_refused() -> None:
    with (
        pytest.raises(dibs.InvalidValue, match="no_such_setting"),
        dibs.Dibs("postgresql://host/db?no_such_setting=1") as app,
    ):
        app.stats()


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_closing_leaves_no_connection_of_calls_that_were_just_starting(url: str) -> None:
    assert asyncio.run(left_after_closing(url)) == []


async def left_after_closing(url: str) -> list[str]:
    """What still runs for a pool of connections after a client was closed by some while others asked it."""
    app = dibs.AsyncDibs(url)
    await app.enqueue("t")
    for _ in range(20):
        await asyncio.gather(app.close(), app.get(1), app.enqueue("t"), app.close(), app.list_tasks())
    await app.close()
    return [name for each in asyncio.all_tasks() if (name := each.get_name()).startswith("pool-")]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_the_server_ends_the_transaction_of_a_lost_client_after_ten_seconds(url: str) -> None:
    store = PostgresStore(url)
    with store._opened().connections.pool().connection() as borrowed:
        shown = borrowed.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    store.close()
    assert shown == ("10s",)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_timeout_of_open_transactions_in_the_url_is_kept(url: str) -> None:
    store = PostgresStore(f"{url}&options=-c%20idle_in_transaction_session_timeout%3D3s")
    with store._opened().connections.pool().connection() as borrowed:
        shown = borrowed.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    store.close()
    assert shown == ("3s",)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_client_that_freezes_in_a_transaction_loses_its_row_locks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker frozen, or cut off, between two statements: its locks would hide its tasks from every recovery."""
    monkeypatch.setitem(connection.SERVER_TIMEOUTS, "idle_in_transaction_session_timeout", "200ms")
    store, tries = PostgresStore(url), iter(range(10))
    with dibs.Dibs(url) as app:
        app.enqueue("t")
        claim = app.claim("w", lease=0.05)
        assert claim is not None

        def fall_silent() -> Statements[int]:
            yield Statement("lock_tasks", {"ids": [claim.task_id]})
            if next(tries) == 0:
                until(lambda: app.upkeep().recovered == 1)
            yield Statement("clock")
            return next(tries)

        assert (
            store.run(Operation("fall_silent", fall_silent, mode=Mode.TRANSACTION)) == 2
        )  # it was begun anew, by itself
    store.close()
