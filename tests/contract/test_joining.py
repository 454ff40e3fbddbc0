"""Calls on a connection of the user join its transaction: its commit stores them, its rollback undoes them."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import dibs
from dibs import NewTask, State
from tests.helpers.borrowed import Borrowed
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql, sqlite_path
from tests.helpers.tasks import events, task_in

pytestmark = pytest.mark.database("only a client of the database can join a transaction")

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
since_3_12 = pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit attribute before 3.12")

Borrow = Callable[..., Borrowed]


@pytest.fixture
def borrow(app: Any, url: str) -> Iterator[Borrow]:
    """Opens connections of the user's own to the database, beside a table of the user's own."""
    app.queues()  # migrated, so that the table below is not the first thing in the file
    run_sql(url, "CREATE TABLE orders (id integer PRIMARY KEY)")
    opened: list[Borrowed] = []

    def open_one(to: str = url, **options: Any) -> Borrowed:
        opened.append(Borrowed(app, to, options))
        return opened[-1]

    yield open_one
    for mine in opened:
        mine.close()
    run_sql(url, "DROP TABLE orders")  # a database with its own tables again can be lent to the next test


def orders(url: str) -> int:
    return int(run_sql(url, "SELECT count(*) FROM orders")[0][0])


def everything(app: Any) -> tuple[Any, ...]:
    """All that a verb could change."""
    listed = app.queues(), app.workers(), app.list_types(), app.keys(), app.retention(), app.retention_changes()
    return app.list_tasks(), app.all_history(), *listed


# Every verb that writes: what it needs beforehand, and the verb on the joined client.

Verb = Callable[[Any, Any], Any]

VERBS: dict[str, tuple[str | None, Verb]] = {
    "enqueue": (None, lambda app, task: app.enqueue("crop")),
    "enqueue with a key": (None, lambda app, task: app.enqueue("crop", key="once")),
    "enqueue many": (None, lambda app, task: app.enqueue_many([NewTask("crop"), NewTask("crop")])),
    "enqueue many with keys": (None, lambda app, task: app.enqueue_many([NewTask("crop", key=key) for key in "ab"])),
    "register_type": (None, lambda app, task: app.register_type("crop", {"type": "object"})),
    "claim": ("pending", lambda app, task: app.claim("worker-2")),
    "claim by id": ("pending", lambda app, task: app.claim_by_id(task.id, "worker-2")),
    "claim of a due task": ("scheduled", lambda app, task: app.claim("worker-2")),
    "complete": ("claimed", lambda app, task: app.complete(held(task), {"size": 3})),
    "fail": ("claimed", lambda app, task: app.fail(held(task), "broken")),
    "release": ("claimed", lambda app, task: app.release(held(task))),
    "renew": ("claimed", lambda app, task: app.renew(held(task), lease=9999)),
    "progress": ("claimed", lambda app, task: app.progress(held(task), 50)),
    "change": ("pending", lambda app, task: app.change(task.id, priority=3, delay=60)),
    "change of params": ("pending", lambda app, task: app.change(task.id, params={"n": 1})),
    "change of the queue of a task with a key": (
        None,
        lambda app, task: app.change(app.enqueue("crop", key="a").id, queue="b"),
    ),
    "change_matching": (
        "pending",
        lambda app, task: app.change_matching(dibs.TaskChange(queue="mail"), type="resize"),
    ),
    "cancel": ("pending", lambda app, task: app.cancel(task.id)),
    "cancel of a running task": ("claimed", lambda app, task: app.cancel(task.id)),
    "retry": ("failed", lambda app, task: app.retry(task.id)),
    "redrive": ("failed", lambda app, task: app.redrive()),
    "pause": (None, lambda app, task: app.pause("default")),
    "promote": ("scheduled", lambda app, task: app.promote()),
    "recover": ("claimed", lambda app, task: app.recover()),
    "prune": ("completed", lambda app, task: (app.set_retention("completed", 0), app.prune())),
    "set_retention": (None, lambda app, task: app.set_retention("completed", 0)),
    "remove_retention": (None, lambda app, task: (app.set_retention("failed", 1), app.remove_retention("failed"))),
    "upkeep": ("scheduled", lambda app, task: app.upkeep()),
    "exchange": ("claimed", lambda app, task: app.exchange([(held(task), dibs.Completed(3))], "worker-1")),
    "heartbeat": (None, lambda app, task: app.heartbeat("worker-2")),
    "create_key": (None, lambda app, task: app.create_key("ci", ["read"])),
}


def held(task: dibs.Task) -> dibs.ClaimRef:
    return dibs.ClaimRef(task.id, task.token, "worker-1")


def prepared(app: Any, clock: Clock, verb: str) -> tuple[dibs.Task | None, Verb]:
    state, run = VERBS[verb]
    task = task_in(app, state) if state else None
    clock.advance(3600)
    return task, run


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_call_in_the_users_transaction_is_undone_by_its_rollback(
    app: Any, clock: Clock, borrow: Borrow, verb: str
) -> None:
    task, run = prepared(app, clock, verb)
    before = everything(app)
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (1)")
    run(app.on(mine.connection), task)
    assert everything(app) == before  # other connections do not see it yet
    mine.rollback()
    assert everything(app) == before


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_call_that_begins_the_users_transaction_is_undone_by_its_rollback(
    app: Any, clock: Clock, borrow: Borrow, verb: str
) -> None:
    task, run = prepared(app, clock, verb)
    before = everything(app)
    mine = borrow()
    run(app.on(mine.connection), task)
    assert everything(app) == before
    mine.rollback()
    assert everything(app) == before


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_call_in_the_users_transaction_is_stored_by_its_commit(
    app: Any, clock: Clock, borrow: Borrow, verb: str
) -> None:
    task, run = prepared(app, clock, verb)
    before = everything(app)
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (1)")
    run(app.on(mine.connection), task)
    mine.commit()
    assert everything(app) != before
    assert orders(app.url) == 1


# Together with the user's own rows


def test_the_users_row_and_the_task_are_committed_together(app: Any, url: str, borrow: Borrow) -> None:
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (7)")
    task = app.on(mine.connection).enqueue("ship", {"order": 7})
    assert (app.get(task.id), orders(url)) == (None, 0)
    mine.commit()
    assert (app.get(task.id), orders(url)) == (task, 1)
    assert events(app, task.id) == ["enqueued"]


def test_the_users_row_and_the_task_are_rolled_back_together(app: Any, url: str, borrow: Borrow) -> None:
    mine = borrow()
    task = app.on(mine.connection).enqueue("ship", {"order": 7})
    mine.execute("INSERT INTO orders VALUES (7)")
    mine.rollback()
    assert (app.get(task.id), app.history(task.id), orders(url)) == (None, [], 0)


@on_postgres
def test_the_first_enqueue_of_a_program_stores_its_limits_outside_of_the_transaction(app: Any, borrow: Borrow) -> None:
    app.limit("stripe", max=1)
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (7)")
    app.on(mine.connection).enqueue("ship", limits=["stripe"])
    app.set_limit("mail", max=1)  # which would wait for a transaction that has stored a limit
    mine.rollback()
    assert [limit.name for limit in app.limits()] == ["mail", "stripe"]


@on_sqlite
def test_a_transaction_that_has_locked_the_file_stores_no_limits(app: Any, borrow: Borrow) -> None:
    app.limit("stripe", max=1)
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (7)")
    app.on(mine.connection).enqueue("ship")
    mine.commit()
    assert app.limits() == []
    app.enqueue("ship", limits=["stripe"])
    assert [limit.name for limit in app.limits()] == ["stripe"]


def test_work_and_its_completion_are_committed_together(app: Any, url: str, borrow: Borrow) -> None:
    app.enqueue("ship")
    claim = app.claim("worker-1")
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (7)")
    app.on(mine.connection).complete(claim, {"order": 7})
    assert app.get(claim.task_id).state is State.CLAIMED
    mine.commit()
    assert (app.get(claim.task_id).state, orders(url)) == (State.COMPLETED, 1)


def test_a_rolled_back_completion_leaves_the_claim_as_it_was(app: Any, borrow: Borrow) -> None:
    app.enqueue("ship")
    claim = app.claim("worker-1")
    mine = borrow()
    app.on(mine.connection).complete(claim)
    mine.rollback()
    assert app.complete(claim).repeated is False


def test_a_lost_claim_is_refused_and_the_user_can_roll_back_the_work(
    app: Any, url: str, clock: Clock, borrow: Borrow
) -> None:
    app.enqueue("ship")
    claim = app.claim("worker-1")
    clock.advance(60)
    app.claim("worker-2")
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (7)")
    with pytest.raises(dibs.ClaimLost):
        app.on(mine.connection).complete(claim)
    mine.rollback()
    assert orders(url) == 0


def test_the_token_of_a_rolled_back_claim_is_issued_to_the_next_claim(app: Any, borrow: Borrow) -> None:
    app.enqueue("ship")
    mine = borrow()
    assert app.on(mine.connection).claim("worker-1").token == 1
    mine.rollback()
    assert app.claim("worker-2").token == 1


def test_several_calls_in_one_transaction_see_each_others_changes(app: Any, borrow: Borrow) -> None:
    mine = borrow()
    joined = app.on(mine.connection)
    task = joined.enqueue("ship")
    claim = joined.claim("worker-1")
    joined.complete(claim, 42)
    assert joined.get(task.id).result == 42
    assert [entry.event for entry in joined.history(task.id)] == ["enqueued", "claimed", "completed"]
    mine.commit()
    assert app.get(task.id).result == 42


def test_a_key_used_in_the_same_transaction_is_recognised(app: Any, borrow: Borrow) -> None:
    mine = borrow()
    first = app.on(mine.connection).enqueue("ship", key="once")
    again = app.on(mine.connection).enqueue("ship", key="once")
    assert (again.id, again.deduplicated) == (first.id, True)
    mine.commit()
    assert len(app.list_tasks()) == 1


def test_a_refused_call_leaves_the_users_transaction_usable(app: Any, url: str, borrow: Borrow) -> None:
    app.enqueue("ship", key="taken")
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (7)")
    joined = app.on(mine.connection)
    with pytest.raises(dibs.KeyConflict):
        joined.enqueue("crop", key="taken")
    with pytest.raises(dibs.KeyConflict):
        joined.enqueue_many([NewTask("crop", key="new"), NewTask("crop", key="taken")])
    with pytest.raises(dibs.TaskNotFound):
        joined.cancel(404)
    task = joined.enqueue("ship")
    mine.commit()
    assert [found.id for found in app.list_tasks(type="ship", limit=1)] == [task.id]
    assert (app.list_tasks(type="crop"), orders(url)) == ([], 1)


def test_the_signature_is_kept_when_a_client_joins_a_transaction(app: Any, borrow: Borrow) -> None:
    mine = borrow()
    task = app.signed("key-1").on(mine.connection).enqueue("ship")
    app.on(mine.connection).signed("key-2").cancel(task.id)
    mine.commit()
    assert [entry.by for entry in app.history(task.id)] == ["key-1", "key-2"]


def test_joining_leaves_the_client_itself_as_it_was(app: Any, borrow: Borrow) -> None:
    mine = borrow()
    app.on(mine.connection)
    task = app.enqueue("ship")
    mine.rollback()
    assert app.get(task.id) is not None


def test_a_type_registered_in_a_rolled_back_transaction_does_not_apply(app: Any, borrow: Borrow) -> None:
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (1)")
    app.on(mine.connection).register_type("ship", {"required": ["order"]})
    app.on(mine.connection).enqueue("ship", {"order": 7})
    mine.rollback()
    assert app.enqueue("ship").type_version is None


def test_a_type_registered_after_a_rolled_back_registration_applies(app: Any, borrow: Borrow) -> None:
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (1)")
    app.on(mine.connection).register_type("ship", {"required": ["order"]})
    app.on(mine.connection).enqueue("ship", {"order": 7})
    mine.rollback()
    app.register_type("ship", {"required": ["parcel"]})
    assert app.enqueue("ship", {"parcel": 7}).type_version == 1


# Kinds of sqlite3 connections


@on_sqlite
@pytest.mark.parametrize("options", [{}, {"isolation_level": "DEFERRED"}, {"isolation_level": "IMMEDIATE"}], ids=str)
def test_a_legacy_connection_is_left_with_an_open_transaction(app: Any, borrow: Borrow, options: Any) -> None:
    mine = borrow(**options)
    task = app.on(mine.connection).enqueue("ship")
    assert mine.in_transaction
    assert app.get(task.id) is None
    mine.commit()
    assert app.get(task.id) == task


@on_sqlite
def test_a_legacy_connection_with_an_open_transaction_is_joined(app: Any, borrow: Borrow) -> None:
    mine = borrow(isolation_level="")
    mine.execute("INSERT INTO orders VALUES (1)")
    assert mine.in_transaction
    task = app.on(mine.connection).enqueue("ship")
    mine.rollback()
    assert (app.get(task.id), mine.value("SELECT count(*) FROM orders")) == (None, 0)


@on_sqlite
def test_a_legacy_connection_without_isolation_level_commits_the_call(app: Any, borrow: Borrow) -> None:
    mine = borrow(isolation_level=None)
    task = app.on(mine.connection).enqueue("ship")
    assert not mine.in_transaction
    assert app.get(task.id) == task


@on_sqlite
def test_a_legacy_connection_without_isolation_level_is_joined_after_begin(app: Any, borrow: Borrow) -> None:
    mine = borrow(isolation_level=None)
    mine.execute("BEGIN")
    task = app.on(mine.connection).enqueue("ship")
    assert mine.in_transaction
    mine.execute("ROLLBACK")
    assert app.get(task.id) is None


@on_sqlite
def test_a_refused_call_leaves_a_legacy_connection_without_isolation_level_without_a_transaction(
    app: Any, borrow: Borrow
) -> None:
    app.enqueue("ship", key="taken")
    mine = borrow(isolation_level=None)
    with pytest.raises(dibs.KeyConflict):
        app.on(mine.connection).enqueue("crop", key="taken")
    assert not mine.in_transaction


@on_sqlite
@since_3_12
def test_a_connection_with_autocommit_off_is_joined(app: Any, borrow: Borrow) -> None:
    mine = borrow(autocommit=False)
    task = app.on(mine.connection).enqueue("ship")
    assert app.get(task.id) is None
    mine.rollback()
    assert app.get(task.id) is None
    task = app.on(mine.connection).enqueue("ship")
    mine.commit()
    assert app.get(task.id) == task


@on_sqlite
@since_3_12
def test_a_connection_with_autocommit_on_commits_the_call(app: Any, borrow: Borrow) -> None:
    mine = borrow(autocommit=True)
    task = app.on(mine.connection).enqueue("ship")
    assert not mine.in_transaction
    assert app.get(task.id) == task


@on_sqlite
def test_row_and_text_factories_of_the_users_connection_do_no_harm_and_stay(app: Any, borrow: Borrow) -> None:
    mine = borrow()
    mine.connection.row_factory, mine.connection.text_factory = sqlite3.Row, bytes
    joined = app.on(mine.connection)
    task = joined.enqueue("ship", {"order": 7})
    assert joined.claim("worker-1").task.params == {"order": 7}
    with pytest.raises(dibs.TaskNotFound):
        joined.cancel(404)
    assert (mine.connection.row_factory, mine.connection.text_factory) == (sqlite3.Row, bytes)
    mine.commit()
    assert app.get(task.id).state is State.CLAIMED


@on_sqlite
@pytest.mark.parametrize("isolation", ["", None])
def test_reading_on_the_users_connection_begins_no_transaction(app: Any, borrow: Borrow, isolation: Any) -> None:
    task = app.enqueue("ship")
    mine = borrow(isolation_level=isolation)
    assert app.on(mine.connection).get(task.id) == task
    assert not mine.in_transaction


@on_sqlite
def test_the_savepoint_of_a_call_is_released(app: Any, borrow: Borrow) -> None:
    mine = borrow()
    app.on(mine.connection).enqueue("ship")
    with pytest.raises(sqlite3.OperationalError, match="no such savepoint"):
        mine.execute("RELEASE dibs")
    mine.rollback()


# Kinds of psycopg connections


@on_postgres
def test_an_autocommit_connection_commits_the_call(app: Any, borrow: Borrow) -> None:
    mine = borrow(autocommit=True)
    task = app.on(mine.connection).enqueue("ship")
    assert not mine.in_transaction
    assert app.get(task.id) == task


@on_postgres
def test_an_autocommit_connection_is_joined_after_begin(app: Any, borrow: Borrow) -> None:
    mine = borrow(autocommit=True)
    mine.execute("BEGIN")
    joined = app.on(mine.connection)
    task = joined.enqueue("ship")
    joined.cancel(task.id)
    assert (app.get(task.id), mine.in_transaction) == (None, True)
    mine.execute("ROLLBACK")
    assert app.get(task.id) is None


@on_postgres
@pytest.mark.parametrize("keys", [[None, None], ["a", "b"]], ids=["without keys", "with keys"])
def test_a_connection_without_autocommit_is_left_with_an_open_transaction(app: Any, borrow: Borrow, keys: Any) -> None:
    mine = borrow()
    app.on(mine.connection).enqueue_many([NewTask("ship", key=key) for key in keys])
    assert mine.in_transaction
    assert app.list_tasks() == []
    mine.commit()
    assert len(app.list_tasks()) == 2


@on_postgres
def test_a_row_factory_of_the_users_connection_does_no_harm_and_stays(app: Any, borrow: Borrow) -> None:
    mine = borrow(row_factory=dict_row)
    task = app.on(mine.connection).enqueue("ship", {"order": 7})
    assert app.on(mine.connection).claim("worker-1").task.params == {"order": 7}
    assert mine.value(f"SELECT state FROM dibs_tasks WHERE id = {task.id}") == "claimed"
    mine.commit()
    assert app.get(task.id).state is State.CLAIMED


# What cannot be joined


@pytest.mark.parametrize("wrong", [object(), "sqlite:///dibs.db", 7], ids=["object", "url", "number"])
@pytest.mark.parametrize("verb", ["enqueue", "get"])
def test_a_value_that_is_not_a_connection_is_refused(app: Any, wrong: Any, verb: str) -> None:
    with pytest.raises(dibs.InvalidValue, match="connection"):
        getattr(app.on(wrong), verb)("ship" if verb == "enqueue" else 1)
    assert app.list_tasks() == []


@on_postgres
def test_a_sqlite_connection_is_refused_by_postgres(app: Any) -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(dibs.InvalidValue, match="Connection is not a connection"):
        app.on(connection).enqueue("ship")
    connection.close()


@on_postgres
def test_a_psycopg_connection_for_the_other_kind_of_client_is_refused(app: Any, url: str, mode: str) -> None:
    if mode == "async":
        with psycopg.connect(url) as connection, pytest.raises(dibs.InvalidValue, match="AsyncConnection"):
            app.on(connection).enqueue("ship")
        return
    other = AsyncConnectionOnALoop(url)
    with pytest.raises(dibs.InvalidValue, match=r"psycopg\.Connection"):
        app.on(other.connection).enqueue("ship")
    other.close()


class AsyncConnectionOnALoop:
    def __init__(self, url: str) -> None:
        from tests.helpers.clients import Loop

        self._loop = Loop()
        self.connection = self._loop.run(psycopg.AsyncConnection.connect(url))

    def close(self) -> None:
        self._loop.run(self.connection.close())
        self._loop.close()


@on_sqlite
def test_a_psycopg_connection_is_refused_by_sqlite(app: Any, postgres_server: str) -> None:
    with psycopg.connect(postgres_server) as connection, pytest.raises(dibs.InvalidValue, match="SQLite"):
        app.on(connection).enqueue("ship")


def test_a_connection_to_another_database_lacks_the_tables(app: Any, empty_url: str, borrow: Borrow) -> None:
    mine = borrow(empty_url)
    with pytest.raises(dibs.SchemaMissing, match=r"same (file|database)"):
        app.on(mine.connection).enqueue("ship")
    assert app.list_tasks() == []
    mine.rollback()
    assert run_sql(empty_url, "SELECT 1") == [(1,)]


@on_sqlite
def test_no_id_is_used_twice_if_the_connection_has_temporary_tables_with_ids(app: Any, borrow: Borrow) -> None:
    """SQLite keeps the highest id of temporary tables in a table that hides the one of the file."""
    first = app.enqueue("resize")
    mine = borrow()
    mine.execute("CREATE TEMPORARY TABLE notes (id integer PRIMARY KEY AUTOINCREMENT)")
    second = app.on(mine.connection).enqueue("rotate")
    mine.commit()
    assert second.id == first.id + 1


@on_sqlite
def test_the_queue_may_be_in_an_attached_file(app: Any, borrow: Borrow, url: str, tmp_path: Path) -> None:
    first = app.enqueue("resize")
    mine = borrow(f"sqlite:///{tmp_path}/mine.db")
    mine.execute("CREATE TABLE notes (id integer PRIMARY KEY AUTOINCREMENT)")
    mine.execute(f"ATTACH '{sqlite_path(url)}' AS \"the queue\"")
    second = app.on(mine.connection).enqueue("rotate")
    mine.commit()
    assert second.id == first.id + 1
    assert [task.type for task in app.list_tasks()] == ["rotate", "resize"]
