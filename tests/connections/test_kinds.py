"""Every kind of object that `app.on` takes: its commit stores tasks, its rollback and its savepoints undo them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dibs
from dibs import NewTask, State
from tests.helpers.clients import AsyncAsSync
from tests.helpers.connections import KINDS, Given, waits_on
from tests.helpers.databases import run_sql

Open = Callable[..., Given]


@pytest.fixture
def kinds(app: Any, engine: str, mode: str, url: str) -> Iterator[Callable[..., Iterator[Given]]]:
    """Opens an object of each kind in turn, on the database of the app or on another one."""
    app.queues()
    run_sql(url, "CREATE TABLE orders (id integer PRIMARY KEY)")
    wait = waits_on(app.loop if isinstance(app, AsyncAsSync) else None)

    def each(to: str = url) -> Iterator[Given]:
        for name, open_one in KINDS[engine, mode].items():
            mine = open_one(to, wait)
            try:
                yield mine
            except BaseException as error:
                error.add_note(f"with {name}")
                raise
            finally:
                mine.close()
            run_sql(url, "DELETE FROM orders")

    yield each
    run_sql(url, "DROP TABLE orders")


Kinds = Callable[..., Iterator[Given]]


def orders(url: str) -> list[int]:
    return [row[0] for row in run_sql(url, "SELECT id FROM orders ORDER BY id")]


def test_tasks_are_stored_by_the_commit_and_seen_by_no_other_connection_before(
    app: Any, url: str, kinds: Kinds
) -> None:
    for mine in kinds():
        mine.execute("INSERT INTO orders VALUES (7)")
        task = app.on(mine.given).enqueue("ship", {"order": 7}, tags=["a", "b"], priority=3)
        many = app.on(mine.given).enqueue_many([NewTask("crop", {"n": n}, key=f"{task.id}-{n}") for n in range(3)])
        assert (app.get(task.id), app.peek(types=["ship"]), orders(url)) == (None, [], [])
        mine.commit()
        assert app.get(task.id) == task
        assert [app.get(each.id) for each in many] == many
        assert orders(url) == [7]
        app.cancel_matching(type="ship")


def test_a_commit_stores_a_task_that_was_the_only_thing_in_its_transaction(app: Any, kinds: Kinds) -> None:
    for mine in kinds():
        task = app.on(mine.given).enqueue("ship")
        assert app.get(task.id) is None
        mine.commit()
        assert app.get(task.id) == task


def test_a_rollback_undoes_tasks_and_rows(app: Any, url: str, kinds: Kinds) -> None:
    for mine in kinds():
        task = app.on(mine.given).enqueue("ship")
        app.on(mine.given).enqueue_many([NewTask("ship"), NewTask("ship")])
        mine.execute("INSERT INTO orders VALUES (7)")
        mine.rollback()
        assert (app.get(task.id), app.list_tasks(), orders(url)) == (None, [], [])


def test_a_savepoint_undoes_only_the_tasks_that_came_after_it(app: Any, url: str, kinds: Kinds) -> None:
    for mine in kinds():
        mine.execute("INSERT INTO orders VALUES (7)")
        kept = app.on(mine.given).enqueue("ship")
        mine.set_savepoint()
        mine.execute("INSERT INTO orders VALUES (8)")
        undone = app.on(mine.given).enqueue("crop")
        mine.undo()
        after = app.on(mine.given).enqueue("mail")
        mine.commit()
        assert [task.type for task in app.list_tasks(limit=2)] == ["mail", "ship"]
        assert (app.get(kept.id), app.get(after.id), orders(url)) == (kept, after, [7])
        assert all(task.type != "crop" for task in app.list_tasks()), undone


def test_a_task_is_completed_in_the_transaction_that_does_its_work(app: Any, url: str, kinds: Kinds) -> None:
    for mine in kinds():
        app.enqueue("ship")
        claim = app.claim("worker-1")
        mine.execute("INSERT INTO orders VALUES (7)")
        app.on(mine.given).complete(claim, {"order": 7})
        assert app.get(claim.task_id).state is State.CLAIMED
        mine.rollback()
        assert (app.get(claim.task_id).state, orders(url)) == (State.CLAIMED, [])
        mine.execute("INSERT INTO orders VALUES (8)")
        app.on(mine.given).complete(claim, {"order": 8})
        mine.commit()
        assert (app.get(claim.task_id).result, orders(url)) == ({"order": 8}, [8])


def test_a_refused_call_leaves_the_transaction_usable(app: Any, url: str, kinds: Kinds) -> None:
    for mine in kinds():
        key = f"taken-{id(mine)}"
        app.enqueue("ship", key=key)
        mine.execute("INSERT INTO orders VALUES (7)")
        with pytest.raises(dibs.KeyConflict):
            app.on(mine.given).enqueue_many([NewTask("crop"), NewTask("crop", key=key)])
        task = app.on(mine.given).enqueue("mail")
        mine.commit()
        assert (app.get(task.id), orders(url)) == (task, [7])
        assert app.list_tasks(type="crop") == []


def test_the_verbs_between_enqueue_and_result_work_on_every_kind(app: Any, kinds: Kinds) -> None:
    """A claim, a progress report, a failure, a change, a bulk change and a search have parameters of every type."""
    for mine in kinds():
        joined = app.on(mine.given)
        task = joined.enqueue("ship", {"text": "é % :n ' \\"}, delay=0.5, timeout=2.5, tags=["a", "b"], group="g")
        joined.change(task.id, delay=0, priority=2)
        claim = joined.claim("worker-1", queues=["default"], lease=12.5)
        assert claim.task.params == {"text": "é % :n ' \\"}
        joined.progress(claim, 50, "half")
        joined.fail(claim, "broken", retry_in=3600.5)
        assert joined.list_tasks(type="ship", tags=["a", "b"])[0].id == task.id
        assert joined.cancel_matching(type="ship") == 1
        assert [entry.event for entry in joined.history(task.id)][:3] == ["enqueued", "changed", "claimed"]
        mine.rollback()
        assert app.list_tasks() == []


def test_a_database_without_tables_is_refused_with_advice(app: Any, empty_url: str, kinds: Kinds) -> None:
    for mine in kinds(empty_url):
        with pytest.raises(dibs.SchemaMissing, match=r"(?s)no dibs tables.*migrate\(\).*same (file|database)"):
            app.on(mine.given).enqueue("ship")
        mine.rollback()
    assert app.list_tasks() == []


def test_an_unknown_kind_is_refused_with_the_list_of_known_kinds(app: Any) -> None:
    for unknown in (object(), "no alias", 7):
        with pytest.raises(dibs.InvalidValue, match=r"(?s)not a connection.*psycopg2.*AsyncSession.*Django"):
            app.on(unknown).enqueue("ship")
    assert app.list_tasks() == []
