"""The health figures of a database and the number of its workflows, which only its server reads."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import psycopg
import pytest

import dibs
from dibs.model.statistics import DatabaseHealth
from tests.helpers.clients import run
from tests.helpers.waiting import until
from tests.helpers.workflows import complete, fail, finalize, start

pytestmark = pytest.mark.database("only the server asks this")


def health(app: Any) -> DatabaseHealth:
    store = (app.app if hasattr(app, "app") else app)._store
    found: DatabaseHealth = run(app, store.statistics.database_health())
    return found


@contextlib.contextmanager
def transaction(engine: str, url: str) -> Iterator[None]:
    """A transaction that reads and stays open."""
    if engine == "postgres":
        with psycopg.connect(url) as connection:
            connection.execute("SELECT 1")
            yield
        return
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM dibs_tasks").fetchall()
        yield


def test_the_reported_size_of_a_store_grows_with_its_tasks(app: Any) -> None:
    app.enqueue("resize")
    before = size(app)
    for _ in range(20):  # tables that were emptied may have room for the first of them
        app.enqueue_many([dibs.NewTask("resize", {"text": token_hex(5_000)}) for _ in range(100)])
        if size(app) > before + 900_000:
            return
    pytest.fail(f"{size(app)} bytes hold what {before} did, and 20 MB more.")


def size(app: Any) -> int:
    found = health(app)
    return found.size + (found.wal_size or 0)


def test_each_engine_reports_what_delays_its_cleanup(app: Any, engine: str, url: str) -> None:
    app.enqueue("resize")
    with transaction(engine, url):
        if engine == "postgres":
            assert health(app).wal_size is None
            until(lambda: (health(app).oldest_transaction or 0) > 0.2)
        else:
            app.enqueue("resize")
            assert health(app).oldest_transaction is None
            assert (health(app).wal_size or 0) > 0


def test_workflows_are_counted_by_state(app: Any) -> None:
    store = (app.app if hasattr(app, "app") else app)._store
    assert run(app, store.workflows.workflow_counts()) == {}
    step = dibs.NewStep(name="s", task=dibs.NewTask("resize"))
    ids = [app.start_workflow(dibs.NewWorkflow(name="w", steps=[step])).id for _ in range(3)]
    app.cancel_workflow(ids[0])
    assert run(app, store.workflows.workflow_counts()) == {"running": 2, "cancelled": 1}
    last = start(app, step, finalizer=dibs.NewTask("report"))
    complete(app, last, "s")
    finalize(app, last)
    fail(app, ids[1], "s")
    finalize(app, ids[1])
    complete(app, ids[2], "s")
    finalize(app, ids[2])
    each = {"finalizing": 1, "cancelled": 1, "failed": 1, "completed": 1}
    assert run(app, store.workflows.workflow_counts()) == each
