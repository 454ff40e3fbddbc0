"""A commit that SQLAlchemy reports wakes the workers; connections that commit each statement, and pools."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from django.db import connections, transaction
from django.utils.connection import ConnectionProxy
from sqlalchemy.ext.asyncio import AsyncSession

import dibs
from dibs import NewTask, State
from tests.helpers.clients import AsyncAsSync
from tests.helpers.connections import KINDS, waits_on
from tests.helpers.databases import run_sql
from tests.helpers.waiting import until

on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
in_sync = pytest.mark.parametrize("mode", ["sync"], indirect=True)
in_async = pytest.mark.parametrize("mode", ["async"], indirect=True)


@pytest.fixture
def notifications(app: Any, url: str) -> Iterator[Any]:
    """Returns the number of wake-ups of `app` that other processes receive within some seconds, at most one.

    The session of a process that an earlier test killed may still end its own notification."""
    app.queues()
    wakeups = app._store.wakeups
    with psycopg.connect(url, autocommit=True) as listening:
        listening.execute("LISTEN dibs")

        def received(seconds: float) -> int:
            ends = time.monotonic() + seconds
            while (left := ends - time.monotonic()) > 0:
                for notice in listening.notifies(timeout=left, stop_after=1):
                    if notice.pid == wakeups._own:
                        return 1
            return 0

        while received(0.3):  # of the calls before
            pass
        yield received


def wait_of(app: Any) -> Any:
    return waits_on(app.loop if isinstance(app, AsyncAsSync) else None)


@on_postgres
def test_the_commit_of_a_session_wakes_the_workers_and_nothing_before_it(
    app: Any, url: str, mode: str, notifications: Callable[[float], int]
) -> None:
    name = "Session on psycopg" if mode == "sync" else "AsyncSession on asyncpg"
    mine = KINDS["postgres", mode][name](url, wait_of(app))
    app.on(mine.given).enqueue("ship")
    mine.set_savepoint()
    app.on(mine.given).enqueue("ship")
    mine._wait(mine._nested.commit())  # type: ignore[attr-defined]
    assert notifications(0.3) == 0
    mine.commit()
    assert notifications(10) == 1
    mine.close()


@on_postgres
def test_a_connection_of_sqlalchemy_wakes_the_workers_when_it_returns_to_its_pool(
    app: Any, url: str, mode: str, notifications: Callable[[float], int]
) -> None:
    name = "Connection on psycopg" if mode == "sync" else "AsyncConnection on asyncpg"
    mine = KINDS["postgres", mode][name](url, wait_of(app))
    app.on(mine.given).enqueue("ship")
    assert notifications(0.3) == 0
    mine.commit()
    mine.close()
    assert notifications(10) == 1


@on_postgres
@in_sync
def test_the_commit_of_django_wakes_the_workers_and_nothing_before_it(
    app: Any, url: str, notifications: Callable[[float], int]
) -> None:
    mine = KINDS["postgres", "sync"]["Django alias"](url, wait_of(app))
    with transaction.atomic(using=mine.given):
        app.on(mine.given).enqueue("ship")
    assert notifications(0.3) == 0
    mine.commit()
    assert notifications(10) == 1
    mine.close()


@in_sync
def test_django_outside_of_an_atomic_block_commits_the_call_and_in_a_manual_transaction_joins_it(
    app: Any, url: str, engine: str
) -> None:
    mine = KINDS[engine, "sync"]["Django alias"](url, wait_of(app))
    proxy = ConnectionProxy(connections, mine.given)
    mine._block.__exit__(None, None, None)  # type: ignore[attr-defined]
    task = app.on(proxy).enqueue("ship")
    assert app.get(task.id) == task
    proxy.set_autocommit(False)
    undone = app.on(proxy).enqueue("ship")
    proxy.rollback()
    proxy.set_autocommit(True)
    assert app.get(undone.id) is None
    assert len(app.list_tasks()) == 1
    mine._begin()  # type: ignore[attr-defined]
    mine.close()


@on_postgres
@in_sync
def test_psycopg2_with_autocommit_commits_each_call_as_a_whole(app: Any, url: str) -> None:
    app.enqueue("ship", key="taken")
    mine = psycopg2.connect(url)
    mine.autocommit = True
    task = app.on(mine).enqueue("ship")
    assert app.get(task.id) == task
    with pytest.raises(dibs.KeyConflict):
        app.on(mine).enqueue_many([NewTask("crop"), NewTask("crop", key="taken")])
    assert app.list_tasks(type="crop") == []
    assert mine.info.transaction_status == psycopg2.extensions.TRANSACTION_STATUS_IDLE
    mine.close()


@on_postgres
@in_async
def test_asyncpg_without_a_transaction_commits_each_call_as_a_whole(app: Any, url: str) -> None:
    app.enqueue("ship", key="taken")
    mine = app.loop.run(_asyncpg(url))
    task = app.on(mine).enqueue("ship")
    assert app.get(task.id) == task
    with pytest.raises(dibs.KeyConflict):
        app.on(mine).enqueue_many([NewTask("crop"), NewTask("crop", key="taken")])
    assert app.list_tasks(type="crop") == []
    assert not mine.is_in_transaction()
    app.loop.run(mine.close())


async def _asyncpg(url: str) -> Any:
    return await asyncpg.connect(url)


@on_postgres
@in_async
def test_a_connection_from_a_pool_of_asyncpg_is_joined(app: Any, url: str) -> None:
    async def play(app: Any) -> Any:
        pool = asyncpg.create_pool(url, min_size=1, max_size=1)
        async with pool, pool.acquire() as mine, mine.transaction():
            task = await app.on(mine).enqueue("ship")
            assert await app.get(task.id) is None
        return await app.get(task.id)

    assert app.loop.run(play(app.app)).state is State.PENDING


@on_postgres
@in_async
def test_a_cancelled_call_leaves_no_transaction_open_on_a_connection_of_asyncpg(app: Any, url: str) -> None:
    async def play(app: Any) -> tuple[bool, bool]:
        mine, other = await asyncpg.connect(url), await asyncpg.connect(url)
        await app.queues()
        lock = other.transaction()
        await lock.start()
        await other.execute("LOCK TABLE dibs_tasks IN ACCESS EXCLUSIVE MODE")
        waiting = asyncio.create_task(app.on(mine).enqueue_many([NewTask("ship", key="a"), NewTask("ship", key="b")]))
        await asyncio.to_thread(until, lambda: run_sql(url, "SELECT 1 FROM pg_locks WHERE NOT granted") != [])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        left = mine.is_in_transaction(), mine.is_closed()
        await lock.rollback()
        await mine.close()
        await other.close()
        return left

    assert app.loop.run(play(app.app)) == (False, False)


@in_sync
def test_a_handler_on_a_session_enqueues_in_its_transaction(app: Any, url: str, engine: str) -> None:
    @app.task
    def ship(order: int) -> str:
        return f"order {order} shipped"

    name = "Session" if engine == "sqlite" else "Session on psycopg2"
    mine = KINDS[engine, "sync"][name](url, wait_of(app))
    task = ship.on(mine.given).enqueue(7)
    many = ship.options(priority=5).on(mine.given).map([8, 9])
    assert (ship.get(task.id), len(app.list_tasks())) == (None, 0)
    mine.commit()
    assert ship.get(task.id).params == {"order": 7}
    assert [each.priority for each in app.list_tasks(type="ship")] == [5, 5, 0]
    assert len(many.ids) == 2
    mine.close()


@in_async
def test_a_handler_of_async_dibs_on_a_session_enqueues_in_its_transaction(app: Any, url: str, engine: str) -> None:
    @app.task
    async def ship(order: int) -> str:
        return f"order {order} shipped"

    name = "AsyncSession" if engine == "sqlite" else "AsyncSession on asyncpg"
    mine = KINDS[engine, "async"][name](url, wait_of(app))
    assert isinstance(mine.given, AsyncSession)
    task = app.loop.run(ship.on(mine.given).enqueue(7))
    assert app.get(task.id) is None
    mine.commit()
    assert app.get(task.id).params == {"order": 7}
    mine.close()


@in_sync
def test_the_first_enqueue_of_a_program_on_a_session_stores_its_limits_before_unless_the_file_is_locked(
    app: Any, url: str, engine: str
) -> None:
    app.queues()
    app.limit("stripe", max=1)
    name = "Session" if engine == "sqlite" else "Session on psycopg"
    mine = KINDS[engine, "sync"][name](url, wait_of(app))
    mine.given.execute(sa.text("SELECT 1"))
    app.on(mine.given).enqueue("ship")
    mine.rollback()
    assert [limit.name for limit in app.limits()] == ([] if engine == "sqlite" else ["stripe"])
    mine.close()
    assert run_sql(url, "SELECT count(*) FROM dibs_tasks") == [(0,)]
