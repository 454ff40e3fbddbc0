"""A store on a connection that the program lends, as Django lends its own: see dibs.store.borrowed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import dibs
from dibs import NewTask
from dibs.model.claim import Completed
from dibs.store.borrowed import BorrowedStore
from dibs.store.open import borrowed_engine


class Lender:
    """A program with one connection. In its transaction nothing is committed by the store."""

    def __init__(self, engine: str, url: str) -> None:
        self.name = "sqlite" if engine == "sqlite" else "postgresql"
        self.connection: Any = (
            sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            if engine == "sqlite"
            else psycopg.connect(url, autocommit=True)
        )
        self.store = BorrowedStore(borrowed_engine(self.name), lambda: self.connection)

    def run(self, operation: Any) -> Any:
        return self.store.run(operation)

    def list(self) -> list[int]:
        return [task.id for task in self.run(self.store.queue.peek(dibs.model.claim.Filters(count=10)))]


@pytest.fixture
def lender(engine: str, empty_url: str) -> Iterator[Lender]:
    lender = Lender(engine, empty_url)
    yield lender
    lender.store.close()
    lender.connection.close()


def enqueue(lender: Lender) -> int:
    [task] = lender.run(lender.store.queue.enqueue([NewTask("ship", {})]))
    return int(task.id)


def test_it_never_makes_tables_by_itself(lender: Lender) -> None:
    assert lender.store.missing_migrations() == ["0001_initial"]
    with pytest.raises(dibs.SchemaMissing):
        enqueue(lender)
    assert lender.store.missing_migrations() == ["0001_initial"]


def test_tables_are_made_emptied_and_dropped_on_the_connection(lender: Lender) -> None:
    assert lender.store.migrate() == ["0001_initial"]
    assert lender.store.migrate() == []
    enqueue(lender)
    lender.store.empty()
    assert lender.list() == []
    assert lender.store.missing_migrations() == []
    lender.store.drop()
    assert lender.store.missing_migrations() == ["0001_initial"]
    lender.store.migrate()
    enqueue(lender)


def test_tables_that_are_made_in_a_transaction_vanish_with_its_rollback(lender: Lender) -> None:
    lender.connection.execute("BEGIN")
    lender.store.migrate()
    enqueue(lender)
    lender.connection.execute("ROLLBACK")
    assert lender.store.missing_migrations() == ["0001_initial"]


def test_every_operation_joins_the_open_transaction(lender: Lender) -> None:
    lender.store.migrate()
    kept = enqueue(lender)
    lender.connection.execute("BEGIN")
    enqueue(lender)
    request = dibs.model.claim.ClaimRequest(worker_id="w", count=2)
    claims = lender.run(lender.store.queue.claim(request))
    lender.run(lender.store.queue.finish([(claim, Completed(None)) for claim in claims]))
    lender.connection.execute("ROLLBACK")
    assert lender.list() == [kept]


def test_on_an_event_loop_operations_run_in_the_thread_of_the_connection(lender: Lender) -> None:
    lender.store.migrate()
    enqueue(lender)
    assert len(asyncio.run(lender.store.run_async(lender.store.registry.queues()))) == 1


def test_workers_are_notified_over_the_connection(engine: str, empty_url: str) -> None:
    if engine != "postgres":
        pytest.skip("a waiting worker notices every commit of a SQLite file")
    with (
        psycopg.connect(empty_url, autocommit=True) as connection,
        psycopg.connect(empty_url, autocommit=True) as listening,
    ):
        listening.execute("LISTEN dibs")
        borrowed_engine("postgresql").wake(connection)
        assert [notice.channel for notice in listening.notifies(timeout=10, stop_after=1)] == ["dibs"]
