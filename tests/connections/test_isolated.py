"""dibs.testing with the connections of SQLAlchemy and Django, and on a database that belongs to the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import dibs
from dibs.testing import isolated
from tests.helpers.clients import AsyncAsSync
from tests.helpers.connections import KINDS, Given, OfDjango, OfSqlAlchemy, sync_engine, waits_on, with_driver
from tests.helpers.databases import run_sql

sync_only = pytest.mark.parametrize("mode", ["sync"], indirect=True)


def client(app: Any) -> Any:
    """The Dibs or AsyncDibs itself."""
    return app.app if isinstance(app, AsyncAsSync) else app


def engine_of(url: str) -> sa.Engine:
    engine: sa.Engine = sync_engine(url if url.startswith("sqlite") else with_driver(url, "psycopg"))
    return engine


def on_one_connection(url: str) -> Iterator[Given]:
    """What a test of a user has: objects that stay on one connection."""
    plainly = waits_on(None)
    yield OfSqlAlchemy(plainly, engine_of(url), lambda engine: engine.connect())
    yield OfSqlAlchemy(plainly, engine_of(url), lambda engine: Session(bind=engine.connect()))
    yield OfDjango(url)
    yield OfDjango(url, by_alias=True)


@pytest.fixture
def orders(url: str) -> Iterator[Callable[[], int]]:
    """Counts the rows of a table of the user."""
    run_sql(url, "CREATE TABLE orders (id integer)")
    yield lambda: run_sql(url, "SELECT count(*) FROM orders")[0][0]
    run_sql(url, "DROP TABLE orders")


@sync_only
def test_tasks_are_committed_and_rolled_back_with_the_transaction_and_never_reach_the_real_queue(
    app: Any, url: str, orders: Callable[[], int]
) -> None:
    for mine in on_one_connection(url):
        before = orders()
        with isolated(app, on=mine.given) as box:
            mine.execute("INSERT INTO orders VALUES (1)")
            app.on(mine.given).enqueue("ship", {"order": 1})
            mine.rollback()
            box.assert_nothing_enqueued()

            mine.execute("INSERT INTO orders VALUES (2)")
            app.on(mine.given).enqueue("ship", {"order": 2})
            mine.commit()
            box.assert_enqueued("ship", order=2, count=1)
            mine.rollback()
            box.assert_enqueued("ship", count=1)
        mine.close()
        assert (orders() - before, app.list_tasks()) == (1, [])
        assert run_sql(url, _FOREIGN[url.startswith("sqlite")]) == []


_FOREIGN = {
    True: "SELECT name FROM sqlite_master WHERE name LIKE 'dibs_isolated%'",
    False: "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'dibs_isolated%'",
}


@sync_only
def test_a_test_inside_a_transaction_that_is_rolled_back_leaves_nothing_behind(
    app: Any, url: str, orders: Callable[[], int]
) -> None:
    for mine in on_one_connection(url):
        mine.execute("INSERT INTO orders VALUES (1)")
        with isolated(app, on=mine.given) as box:
            app.enqueue("pack")
            app.on(mine.given).enqueue("ship")
            box.assert_enqueued("ship", count=1)
        mine.rollback()
        with isolated(app, on=mine.given) as box:
            box.assert_nothing_enqueued()
        mine.rollback()
        mine.close()
        assert (orders(), app.list_tasks()) == (0, [])
        assert run_sql(url, _FOREIGN[url.startswith("sqlite")]) == []


@sync_only
def test_a_transaction_that_has_no_statement_yet_leaves_nothing_behind(
    app: Any, url: str, orders: Callable[[], int]
) -> None:
    for mine in on_one_connection(url):
        if isinstance(mine, OfSqlAlchemy):
            mine.given.begin()  # in the database it begins with the first statement, as Django's on PostgreSQL
        with isolated(app, on=mine.given):
            app.enqueue("pack")
            mine.execute("INSERT INTO orders VALUES (1)")
            app.on(mine.given).enqueue("ship")
        mine.rollback()
        with isolated(app, on=mine.given) as box:
            box.assert_nothing_enqueued()
        mine.rollback()
        mine.close()
        assert (orders(), app.list_tasks()) == (0, [])
        assert run_sql(url, _FOREIGN[url.startswith("sqlite")]) == []


@sync_only
def test_what_has_no_fixed_connection_is_refused_with_advice(app: Any, url: str, engine: str) -> None:
    mine = Session(engine_of(url))
    with pytest.raises(dibs.InvalidValue, match="Bind the session"), isolated(app, on=mine):
        pass
    mine.close()
    if engine == "postgres":
        opened = KINDS["postgres", "sync"]["psycopg2"](url, waits_on(None))
        with pytest.raises(dibs.InvalidValue, match="url="), isolated(app, on=opened.given):
            pass
        opened.close()


def test_on_a_database_of_the_test_every_kind_of_connection_is_joined(
    app: Any, url: str, engine: str, mode: str
) -> None:
    done: list[int] = []

    @client(app).task(name="ship")
    def ship(order: int) -> None:
        done.append(order)

    wait = waits_on(app.loop if isinstance(app, AsyncAsSync) else None)
    with isolated(client(app), url=url) as box:
        for number, open_one in enumerate(KINDS[engine, mode].values()):
            mine = open_one(url, wait)
            app.on(mine.given).enqueue("ship", {"order": -1})
            mine.rollback()
            app.on(mine.given).enqueue("ship", {"order": number})
            box.assert_nothing_enqueued()
            mine.commit()
            mine.close()
            [task] = box.enqueued("ship")
            assert task.created_at == box.clock.now
            box.drain()
    assert done == list(range(len(KINDS[engine, mode])))


@sync_only
def test_a_database_with_tasks_is_refused_because_the_test_would_run_them(app: Any, url: str) -> None:
    task = app.enqueue("real")
    with pytest.raises(dibs.InvalidValue, match="has tasks"), isolated(app, url=url):
        pass
    assert app.list_tasks() == [task]


@sync_only
def test_a_connection_and_a_url_exclude_each_other(app: Any, url: str) -> None:
    with pytest.raises(dibs.InvalidValue, match="not both"), isolated(app, on=object(), url=url):
        pass
