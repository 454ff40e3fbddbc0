"""The cost of a claim on PostgreSQL: one statement, and the locks of the claimed tasks; and its choice at the bounds of
its tiers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

import dibs
from dibs import NewTask, Order, State
from dibs.model.claim import ClaimRequest
from dibs.store.contract import Store
from dibs.store.open import open_store
from dibs.store.operation import BeginTransaction, Rows, Statement, drive
from dibs.store.operations import claim as claim_operations
from dibs.store.postgres import dialect
from dibs.store.postgres.connection import SQL, bind
from tests.helpers.claim_model import SHAPES, Play
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.helpers.waiting import until

pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)

BY_INDEX = [Order.PRIORITY, Order.FIFO, Order.LIFO]


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A store that has not swept yet."""
    with closing(open_store(url)) as store:
        yield store


def test_a_claim_is_one_statement_while_nothing_is_overdue(store: Store, url: str) -> None:
    enqueue(store, NewTask("t"), NewTask("t", delay=3600))
    assert statements(store, url) == ["claim"]
    assert statements(store, url) == ["claim"]  # nor where it finds nothing


def test_overdue_tasks_are_promoted_and_recovered_before_the_claim(store: Store, url: str) -> None:
    _, urgent = enqueue(store, NewTask("t"), NewTask("t", priority=9, delay=0.01))
    until(
        lambda: (
            run_sql(
                url, f"SELECT run_at < extract(epoch FROM clock_timestamp()) * 1e6 FROM dibs_tasks WHERE id = {urgent}"
            )
            == [(True,)]
        )
    )  # the clock is the database's own
    assert statements(store, url) == ["claim", "promote", "recover", "expired", "pauses_to_unpark", "claim"]
    assert store.run(store.tasks.get(urgent)).state is State.CLAIMED


@pytest.mark.parametrize("order", BY_INDEX)
def test_a_claim_skips_any_number_of_tasks_that_other_transactions_lock(store: Store, url: str, order: str) -> None:
    ids = enqueue(store, *(NewTask("t") for _ in range(300)))
    if order == Order.LIFO:
        ids.reverse()
    claimed: list[int] = []
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM dibs_tasks WHERE id = ANY(%s) FOR UPDATE", [ids[:200]])
        assert statements(store, url, claimed, count=5, order=order) == ["claim"]
    assert claimed == ids[200:205]


def test_a_claim_passes_over_groups_whose_first_tasks_other_transactions_lock(url: str) -> None:
    with dibs.Dibs(url) as app:
        app.set_limit("tenant", max=1, per="group")
        for group in (f"g{number}" for number in range(40)):
            app.enqueue_many(NewTask("t", limits=["tenant"], group=group, priority=priority) for priority in (5, 0))
        app.claim("w", types=["other"])  # it registers the groups
        with psycopg.connect(url) as other:
            other.execute("SELECT FROM dibs_tasks WHERE priority = 5 FOR UPDATE")
            claim = app.claim("w")
    assert claim is not None
    assert (claim.task.group, claim.task.priority) == ("g0", 0)


@pytest.mark.parametrize("order", [*BY_INDEX, Order.PRIORITY_LIFO])
@pytest.mark.parametrize("lines", [1, 3])
def test_a_claim_locks_no_more_than_it_takes(store: Store, url: str, order: str, lines: int) -> None:
    enqueue(store, *(NewTask(f"t-{n % lines}") for n in range(60)))
    with psycopg.connect(url) as mine, psycopg.connect(url, autocommit=True) as other:
        request = ClaimRequest(worker_id="w", count=5, order=order)  # its text says 16
        assert len(store.run(store.queue.claim(request), on=mine)) == 5
        assert other.execute(FREE).fetchone() == (55,)


FREE = "SELECT count(*) FROM (SELECT FROM dibs_tasks FOR UPDATE SKIP LOCKED) AS free"


def enqueue(store: Store, *tasks: NewTask) -> list[int]:
    return [task.id for task in store.run(store.queue.enqueue(list(tasks)))]


def statements(store: Store, url: str, claimed: list[int] | None = None, **wanted: Any) -> list[str]:
    """The names of the statements of one claim, at a moment at which it is time to sweep."""
    store._operations.claims.sweeper.next_at = 0.0  # type: ignore[attr-defined]
    names: list[str] = []

    def execute(statement: Statement | BeginTransaction) -> Rows:
        assert isinstance(statement, Statement)
        names.append(statement.name)
        given = bind(statement, {"now": None, "by": None})
        return connection.execute(SQL.text(statement.name, statement.words).encode(), given).fetchall()

    with psycopg.connect(url, autocommit=True) as connection:
        operation = store.queue.claim(ClaimRequest(worker_id="w", **wanted))
        claims = operation.result(drive(operation.begin(), execute))
    if claimed is not None:
        claimed += [claim.task_id for claim in claims]
    return names


# The bounds of scans and walks


@pytest.mark.parametrize("shape", ["many queues", "unserved pairs ahead", "few attempts ahead"])
def test_claims_that_reach_their_bounds_take_what_the_model_takes(
    url: str, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    for name, value in {"SCANNED": -7, "EXTRA_CANDIDATES": 1, "EXTRA_FILTERED_CANDIDATES": 0, "MIN_WALK": 1}.items():
        monkeypatch.setattr(dialect, name, value)
    monkeypatch.setattr(dialect, "WALKS", (1, 2, 4))
    monkeypatch.setattr(claim_operations, "SCAN_EVERY", 3)
    clock = Clock()
    with dibs.Dibs(url, clock=clock) as app:
        Play(app, clock, SHAPES[shape], seed=3).run(150)
