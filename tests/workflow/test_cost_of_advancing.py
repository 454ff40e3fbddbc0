"""Finishing a step costs as much as it has edges, in a graph of any size: measured in the work of the database."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable

import psycopg
import pytest

import dibs
from dibs import Claim, Completed, NewStep, NewTask, NewWorkflow
from dibs.store.sqlite.connection import add_functions, clock
from tests.helpers.databases import sqlite_path
from tests.helpers.plans import Work, explain_postgres, explain_sqlite

SMALL, LARGE = 200, 4000
Graph = Callable[[int], list[NewStep]]


def chain(size: int) -> list[NewStep]:
    return [a_step(n, after=[n - 1] if n else []) for n in range(size)]


def fan_in(size: int) -> list[NewStep]:
    return [*(a_step(n, after=[]) for n in range(size - 1)), a_step(size - 1, after=list(range(size - 1)))]


def pairs(size: int) -> list[NewStep]:
    """Many small graphs in one."""
    return [a_step(n, after=[n - 1] if n % 2 else []) for n in range(size)]


def a_step(number: int, after: list[int]) -> NewStep:
    return NewStep(name=str(number), task=NewTask("t"), after=[str(parent) for parent in after])


@pytest.mark.parametrize("graph", [chain, fan_in, pairs])
def test_finishing_a_step_costs_as_much_in_a_large_graph_as_in_a_small_one(empty_url: str, graph: Graph) -> None:
    with dibs.Dibs(empty_url) as app:
        small, large = (works_of_a_finish(app, empty_url, graph(size)) for size in (SMALL, LARGE))
        assert [work.name for work in small] == [work.name for work in large]
        assert total(large) < 1.5 * total(small), [
            (a.name, cost(a), cost(b)) for a, b in zip(small, large, strict=True)
        ]


def works_of_a_finish(app: dibs.Dibs, url: str, steps: list[NewStep]) -> list[Work]:
    """What each statement does to finish a step of this graph, just stored: no statistics know of it yet."""
    app.start_workflow(NewWorkflow(name="graph", steps=steps))
    claims = (claim_newest(app) for _ in range(3))
    app.complete(next(claims))  # the first change of a page has a price of its own
    app.complete(next(claims))
    return explain(url, app, next(claims))


def claim_newest(app: dibs.Dibs) -> Claim:
    """A step of the graph that was stored last."""
    claim = app.claim("worker", order="lifo")
    assert claim is not None
    return claim


def explain(url: str, app: dibs.Dibs, claim: Claim) -> list[Work]:
    operation = app._store.queue.finish([(claim, Completed())])
    if not url.startswith("sqlite"):
        with psycopg.connect(url, autocommit=True) as session:
            return explain_postgres(session, operation)
    with contextlib.closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as connection:
        add_functions(connection)
        return explain_sqlite(connection, operation, clock())


def total(works: list[Work]) -> float:
    return sum(cost(work) for work in works)


def cost(work: Work) -> float:
    """Pages read by PostgreSQL; instructions of SQLite's virtual machine."""
    return work.pages or work.rows
