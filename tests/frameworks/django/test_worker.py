"""A worker in a Django project: connections around attempts, the log of queries, child processes."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connections, transaction
from django.test import override_settings

import dibs
from dibs.django import app
from dibs.django.databases import url_of
from tests.frameworks.django.sessions import sessions
from tests.frameworks.django.shop import tasks
from tests.helpers.waiting import until


def work(**options: object) -> None:
    assert app.worker(burst=True, poll=0.05, **options).run() == 0  # type: ignore[arg-type]


def test_a_worker_leaves_no_connection_open(alias: str) -> None:
    before = sessions(alias)
    for _ in range(10):
        tasks.mark_shipped.enqueue(1)
        tasks.count_async.enqueue()
        tasks.chain.enqueue(1)
    work()
    until(lambda: sessions(alias) <= before)


def test_connections_are_closed_after_each_attempt(alias: str) -> None:
    """With CONN_MAX_AGE of 0, the default, an idle worker holds no connection of Django."""
    if connections[alias].vendor != "postgresql":
        pytest.skip("SQLite has no list of sessions")
    before = sessions(alias)
    ours = f"{connections[alias].settings_dict['NAME']}-handlers"
    connections.settings[alias]["OPTIONS"]["application_name"] = ours
    try:
        done = [tasks.mark_shipped.enqueue(1), tasks.count_async.enqueue()]
        with app.worker(poll=0.05):
            for each in done:
                assert each.wait(30).state == "completed"
            until(lambda: not named(alias, ours) - before)
    finally:
        del connections.settings[alias]["OPTIONS"]["application_name"]


def named(alias: str, name: str) -> set[int]:
    """The sessions of Django in the threads of handlers; the worker itself has others of the same name."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND query LIKE '%%shop_order%%'", [name]
        )
        return {pid for (pid,) in cursor.fetchall()}


def test_the_log_of_queries_does_not_grow(alias: str) -> None:
    with override_settings(DEBUG=True):
        counts = [tasks.count_queries.enqueue(alias) for _ in range(5)]
        work(concurrency=1)
    logged = [app.get(each.id).result for each in counts]  # type: ignore[union-attr]
    assert logged[1:] == [logged[1]] * 4


def test_a_child_process_sets_up_django(alias: str) -> None:
    task = tasks.name_in_child.enqueue()
    work()
    done = app.get(task.id)
    assert done is not None
    assert (done.state, done.result) == ("completed", "shop.Order"), done.error


def test_batch_handlers_close_connections_as_well(alias: str) -> None:
    assert tasks.index.middleware is not None
    assert tasks.index.middleware.names == tasks.ship.middleware.names  # type: ignore[union-attr]
    stored = [tasks.index.enqueue(tasks.Document(number)) for number in range(3)]
    work()
    assert [app.get(each.id).result for each in stored] == [0, 1, 2]  # type: ignore[union-attr]


def test_a_worker_in_memory_is_refused_with_advice(alias: str) -> None:
    if connections[alias].vendor != "sqlite":
        pytest.skip("only SQLite has databases in memory")
    name = connections.settings[alias]["NAME"]
    connections.settings[alias]["NAME"] = ":memory:"
    try:
        with pytest.raises(dibs.InvalidValue, match=r"in memory(.|\n)*TEST"):
            app.worker(burst=True)
    finally:
        connections.settings[alias]["NAME"] = name


def test_workers_are_notified_after_the_commit_and_not_after_a_rollback(alias: str) -> None:
    if connections[alias].vendor != "postgresql":
        pytest.skip("a waiting worker notices every commit of a SQLite file")
    with psycopg.connect(url_of(alias), autocommit=True) as listening:
        listening.execute("LISTEN dibs")
        with transaction.atomic(using=alias):
            tasks.ship.enqueue(1)
            assert list(listening.notifies(timeout=0.2)) == []
        assert len(list(listening.notifies(timeout=10, stop_after=1))) == 1
        with transaction.atomic(using=alias):
            tasks.ship.enqueue(1)
            transaction.set_rollback(True, using=alias)
        assert list(listening.notifies(timeout=0.2)) == []
