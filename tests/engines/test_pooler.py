"""Behind PgBouncer in transaction mode, of any version: statements of different clients are never confused."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import dibs
from tests.helpers.consistency import assert_balanced
from tests.helpers.pooler import Pooler
from tests.helpers.waiting import until

CLIENTS, TIMES = 4, 20

pytestmark = [pytest.mark.parametrize("engine", ["postgres"], indirect=True), pytest.mark.own_connections]


@pytest.fixture
def pooled(url: str) -> Iterator[str]:
    """The same database behind two sessions that all clients share."""
    with needed_pooler(url) as pooler:
        yield pooler.url


def needed_pooler(url: str) -> Pooler:
    """PgBouncer, if it is here; it must be, where every change is checked."""
    if shutil.which("pgbouncer") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("pgbouncer is not installed (Debian: pgbouncer)")
    return Pooler(url)


def test_clients_that_share_two_sessions_do_not_get_each_others_statements(pooled: str) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda number: work(pooled, f"w{number}"), range(CLIENTS)))
    with dibs.Dibs(pooled) as app:
        assert app.stats().depth == {"completed": CLIENTS * TIMES}
        assert_balanced(app)


def test_async_clients_that_share_two_sessions_do_not_get_each_others_statements(pooled: str) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda number: asyncio.run(work_async(pooled, f"w{number}")), range(CLIENTS)))
    with dibs.Dibs(pooled) as app:
        assert app.stats().depth == {"completed": CLIENTS * TIMES}
        assert_balanced(app)


def test_a_direct_connection_still_prepares_its_statements(url: str) -> None:
    with dibs.Dibs(url) as app:
        for _ in range(20):
            app.enqueue("t")
        with app._store._opened().connections.pool().connection() as borrowed:  # type: ignore[attr-defined]
            assert borrowed.execute("SELECT count(*) > 0 FROM pg_prepared_statements").fetchone() == (True,)


def test_no_listen_and_no_prepared_statement_stays_in_the_sessions_of_the_pooler(empty_url: str) -> None:
    """Another client gets the session next: it would receive our notifications and run our prepared statements."""
    with needed_pooler(empty_url) as pooler, dibs.Dibs(pooler.url) as app, dibs.Dibs(pooler.url) as other:
        work(pooler.url, "w")
        app.claim("w", wait=0.3)
        for _ in range(20):  # each is notified to other processes by the notifier thread
            other.enqueue("t")
            until(other._store.wakeups._written.empty)  # type: ignore[attr-defined]
        with (
            psycopg.connect(pooler.url) as one,
            psycopg.connect(pooler.url) as another,
        ):  # in transactions: both sessions
            for connection in (one, another):
                assert connection.execute("SELECT pg_listening_channels()").fetchall() == []
                assert connection.execute("SELECT statement FROM pg_prepared_statements").fetchall() == []


def test_a_waiting_claim_behind_the_pooler_gets_a_new_task(pooled: str) -> None:
    with dibs.Dibs(pooled) as app, dibs.Dibs(pooled) as other, ThreadPoolExecutor(1) as pool:
        found = pool.submit(app.claim, "w", wait=20)
        until(lambda: app._store.wakeups._waiting)  # type: ignore[attr-defined]
        task = other.enqueue("t")
        claim = found.result(30)
        assert claim is not None
        assert claim.task_id == task.id


def work(url: str, name: str) -> None:
    with dibs.Dibs(url) as app:
        for number in range(TIMES):
            app.enqueue("t", {"by": name, "number": number})
            claim = app.claim(name)
            while claim is None:  # other clients took it; their task is left for this one
                claim = app.claim(name)
            app.complete(claim, {"number": number})


async def work_async(url: str, name: str) -> None:
    async with dibs.AsyncDibs(url) as app:
        for number in range(TIMES):
            await app.enqueue("t", {"by": name, "number": number})
            claim = await app.claim(name)
            while claim is None:
                claim = await app.claim(name)
            await app.complete(claim, {"number": number})
