"""Every connection to PostgreSQL notices in half a minute that the other end is gone, unless the URL says otherwise."""

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
from dibs.store.postgres.connection import watchful
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


def said(url: str) -> dict[str, str]:
    """What libpq is told beyond the address."""
    return {name: str(value) for name, value in conninfo_to_dict(watchful(url)).items() if name in SETTINGS}


@pytest.mark.parametrize("url", ["postgresql://host/db", "postgresql://host/db?application_name=x", "host=h dbname=d"])
def test_a_connection_notices_that_the_other_end_is_gone(url: str) -> None:
    assert said(url) == SETTINGS


def test_what_the_url_says_itself_holds() -> None:
    own = "postgresql://host/db?connect_timeout=3&keepalives_count=9&tcp_user_timeout=0"
    assert said(own) == SETTINGS | {"connect_timeout": "3", "keepalives_count": "9", "tcp_user_timeout": "0"}


def test_the_address_stays_as_it_was() -> None:
    url = "postgresql://me:s%40crit@host:5433/db?application_name=a%20b"
    whole = conninfo_to_dict(watchful(url))
    assert {name: whole[name] for name in conninfo_to_dict(url)} == conninfo_to_dict(url)


def test_the_connections_of_the_pool_are_such_connections(postgres_server: str, postgres_template: str) -> None:
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
def test_so_it_is_on_an_event_loop(url: str) -> None:
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
def test_who_has_time_makes_the_plans_that_others_find_made(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(PostgresStore(url)) as store:
        opened = store._opened().connections
        with opened.pool().connection() as borrowed:
            assert not opened.plans_are_old(borrowed, idle=True)  # it has none yet
            monkeypatch.setattr("dibs.store.postgres.store.PLANS_RENEWED_AFTER", 0.0)
            assert not opened.plans_are_old(borrowed)
            assert opened.plans_are_old(borrowed, idle=True)
            monkeypatch.setattr("dibs.store.postgres.store.PLANS_KEPT_FOR", 0.0)
            assert opened.plans_are_old(borrowed)  # nobody keeps them for ever


def sources() -> list[Path]:
    """The modules of the engine."""
    return list(Path(connection.__file__).parent.glob("*.py"))


def test_no_connection_is_made_in_another_way() -> None:
    makers = ("sessions_of(url).connect", "sessions_of(self._url).connect", "ConnectionPool", "AsyncConnectionPool")
    calls = [
        ast.unparse(node.args[0])
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in makers
    ]
    assert len(calls) == 6
    assert not any("psycopg.connect(" in path.read_text(encoding="utf-8") for path in sources())
    assert set(calls) <= {"watchful(self._url)", "watchful(url)", "self._conninfo"}


def test_each_attempt_to_reach_a_server_that_never_answers_ends_after_the_time_the_url_says(
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
def test_closing_leaves_no_connection_of_those_who_were_just_asking(url: str) -> None:
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
def test_the_server_notices_that_we_are_gone_as_soon_as_we_notice_it(url: str) -> None:
    store = PostgresStore(url)
    with store._opened().connections.pool().connection() as borrowed:
        shown = borrowed.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    store.close()
    assert shown == ("10s",)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_what_the_url_says_of_open_transactions_holds(url: str) -> None:
    store = PostgresStore(f"{url}&options=-c%20idle_in_transaction_session_timeout%3D3s")
    with store._opened().connections.pool().connection() as borrowed:
        shown = borrowed.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    store.close()
    assert shown == ("3s",)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_who_falls_silent_in_a_transaction_keeps_nobody_from_its_rows(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker frozen, or cut off, between two statements: its locks would hide its tasks from every recovery."""
    monkeypatch.setitem(connection.SERVER_TIMEOUTS, "idle_in_transaction_session_timeout", "200ms")
    store, tries = PostgresStore(url), iter(range(10))
    with dibs.Dibs(url) as app:
        app.enqueue("t")
        claim = app.claim("w", lease=0.05)
        assert claim is not None

        def fall_silent() -> Statements[int]:
            yield Statement("hold_tasks", {"ids": [claim.task_id]})
            if next(tries) == 0:
                until(lambda: app.upkeep().recovered == 1)
            yield Statement("clock")
            return next(tries)

        assert (
            store.run(Operation("fall_silent", fall_silent, mode=Mode.TRANSACTION)) == 2
        )  # it was begun anew, by itself
    store.close()
