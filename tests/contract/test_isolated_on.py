"""dibs.testing on a connection of the program: tasks of its transaction can be tested and never reach a real queue."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dibs
from dibs.testing import isolated
from tests.helpers.borrowed import Borrowed
from tests.helpers.clients import AsyncAsSync

pytestmark = pytest.mark.database


@pytest.fixture
def borrow(app: Any, url: str) -> Iterator[Callable[..., Borrowed]]:
    """Makes connections to the database of the app, with a table of the program's own in it."""
    made: list[Borrowed] = []

    def make(**options: Any) -> Borrowed:
        made.append(Borrowed(app, url, options))
        return made[-1]

    app.enqueue("real")
    first = make()
    first.execute("CREATE TABLE orders (id integer)")
    first.commit()
    yield make
    for each in made[1:]:
        each.close()
    first.rollback()
    first.execute("DROP TABLE orders")  # a database with its own tables again can be lent to the next test
    first.commit()
    first.close()
    assert [task.type for task in app.list_tasks()] == ["real"]  # regardless of what the test did


def client(app: Any) -> Any:
    """The Dibs or AsyncDibs itself."""
    return app.app if isinstance(app, AsyncAsSync) else app


def test_joining_a_transaction_inside_of_isolated_is_refused(app: Any, borrow: Callable[..., Borrowed]) -> None:
    mine = borrow()
    before = app.on(mine.connection)
    with isolated(client(app)):
        for joined in (app.on(mine.connection), before):
            with pytest.raises(dibs.InvalidValue, match=r"isolated\(app\)"):
                joined.enqueue("resize")
            with pytest.raises(dibs.InvalidValue, match=r"isolated\(app\)"):
                joined.list_tasks()
    mine.rollback()


def test_a_copy_of_the_client_made_before_the_block_is_isolated_as_well(
    app: Any, borrow: Callable[..., Borrowed]
) -> None:
    signed = app.signed("me")
    with isolated(client(app)) as box:
        signed.enqueue("resize")
        box.assert_enqueued("resize")


def test_a_task_that_is_enqueued_in_a_transaction_is_seen_and_committed_with_it(
    app: Any, borrow: Callable[..., Borrowed]
) -> None:
    mine = borrow()
    with isolated(client(app), on=mine.connection) as box:
        box.assert_nothing_enqueued()
        mine.execute("INSERT INTO orders VALUES (7)")
        app.on(mine.connection).enqueue("ship", {"order": 7})
        box.assert_enqueued("ship", order=7, count=1)
        mine.commit()
        box.assert_enqueued("ship", order=7, count=1)
        mine.rollback()
        box.assert_enqueued("ship", order=7, count=1)
    assert mine.value("SELECT count(*) FROM orders") == 1
    mine.rollback()


@pytest.mark.parametrize("first", ["look", "nothing"])
def test_a_task_that_is_rolled_back_is_not_enqueued(app: Any, borrow: Callable[..., Borrowed], first: str) -> None:
    mine = borrow()
    with isolated(client(app), on=mine.connection) as box:
        if first == "look":
            box.assert_nothing_enqueued()
        mine.execute("INSERT INTO orders VALUES (7)")
        app.on(mine.connection).enqueue("ship")
        mine.rollback()
        box.assert_nothing_enqueued()
        app.on(mine.connection).enqueue("ship")
        mine.commit()
        box.assert_enqueued("ship", count=1)
    assert mine.value("SELECT count(*) FROM orders") == 0
    mine.rollback()


def test_a_handler_runs_on_a_task_of_the_transaction_and_can_use_the_queue(
    app: Any, borrow: Callable[..., Borrowed]
) -> None:
    mine = borrow()
    real = client(app)

    @real.task(max_attempts=2)
    def ship(ctx: dibs.Context, order: int) -> int:
        ctx.progress(50, "packed")
        if ctx.attempt == 1:
            raise OSError("no van")
        return order + 1

    with isolated(real, on=mine.connection) as box:
        app.on(mine.connection).enqueue("ship", {"order": 7}, max_attempts=2)
        mine.commit()
        [done] = box.drain(advance=True)
        assert (done.result, done.attempts, done.progress_message) == (8, 2, "packed")
        assert [entry.event.value for entry in app.history(done.id)][-1] == "completed"
        with pytest.raises(OSError, match="no van"):
            box.run_now(ship, order=1)
        assert app.stats().depth["completed"] >= 1


def test_plain_methods_of_the_app_use_the_same_queue(app: Any, borrow: Callable[..., Borrowed]) -> None:
    mine = borrow()
    with isolated(client(app), on=mine.connection) as box:
        task = app.enqueue("resize")
        assert not mine.in_transaction  # it is stored, as without a connection
        assert app.get(task.id).type == "resize"
        assert app.claim("w").task.id == task.id
        assert not mine.in_transaction
        assert app.on(mine.connection).get(task.id).state == "claimed"
        mine.commit()
        assert box.enqueued() == []


def test_another_connection_inside_of_the_block_is_refused(app: Any, borrow: Callable[..., Borrowed]) -> None:
    mine, other = borrow(), borrow()
    with isolated(client(app), on=mine.connection), pytest.raises(dibs.InvalidValue, match="another connection"):
        app.on(other.connection).enqueue("resize")


def test_a_block_inside_of_a_transaction_is_undone_with_it(app: Any, borrow: Callable[..., Borrowed]) -> None:
    """The pattern of many test suites: one transaction around each test, rolled back in the end."""
    mine = borrow()
    mine.execute("INSERT INTO orders VALUES (1)")
    with isolated(client(app), on=mine.connection) as box:
        app.on(mine.connection).enqueue("ship")
        box.assert_enqueued("ship")
        assert mine.in_transaction
    mine.rollback()
    assert mine.value("SELECT count(*) FROM orders") == 0
    assert [task.type for task in app.on(mine.connection).list_tasks()] == ["real"]
    mine.rollback()


def test_a_transaction_that_is_left_open_is_reported_and_rolled_back(app: Any, borrow: Callable[..., Borrowed]) -> None:
    mine = borrow()

    def leave_it_open() -> None:
        with isolated(client(app), on=mine.connection):
            mine.execute("INSERT INTO orders VALUES (7)")
            app.on(mine.connection).enqueue("ship")

    with pytest.raises(dibs.InvalidValue, match="still open"):
        leave_it_open()
    assert mine.value("SELECT count(*) FROM orders") == 0
    mine.rollback()


def test_the_connection_is_as_before_after_the_block(app: Any, borrow: Callable[..., Borrowed]) -> None:
    mine = borrow()

    def fail_in_the_block() -> None:
        with isolated(client(app), on=mine.connection) as box:
            box.assert_nothing_enqueued()
            app.on(mine.connection).enqueue("ship")
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fail_in_the_block()
        assert not mine.in_transaction
        assert [task.type for task in app.on(mine.connection).list_tasks()] == ["real"]
        mine.rollback()


def test_a_database_without_dibs_tables_has_none_after_the_block(
    app: Any, borrow: Callable[..., Borrowed], empty_url: str
) -> None:
    mine = Borrowed(app, empty_url, {})
    try:
        with isolated(client(app), on=mine.connection) as box:
            app.on(mine.connection).enqueue("ship")
            mine.commit()
            box.assert_enqueued("ship")
        sqlite = empty_url.startswith("sqlite")
        tables = "sqlite_master WHERE" if sqlite else "information_schema.tables WHERE table_"
        assert mine.value(f"SELECT count(*) FROM {tables}{' ' if sqlite else ''}name LIKE 'dibs%'") == 0
        mine.rollback()
    finally:
        mine.close()


def test_a_value_that_is_not_a_connection_is_refused(app: Any) -> None:
    with pytest.raises(dibs.InvalidValue, match="connection"), isolated(client(app), on=object()):
        pass


@pytest.mark.parametrize("mode", ["async"], indirect=True)
def test_a_test_that_is_a_coroutine_runs_handlers_on_its_loop(app: Any, borrow: Callable[..., Borrowed]) -> None:
    mine = borrow()
    real: dibs.AsyncDibs = client(app)

    @real.task
    async def double(ctx: dibs.Context, n: int) -> int:
        ctx.progress(50)
        await asyncio.sleep(0)
        if n > 1:
            await double.enqueue(n - 1)
        return 2 * n

    async def check() -> list[Any]:
        with isolated(real, on=mine.connection) as box:
            await real.on(mine.connection).enqueue("double", {"n": 3})
            box.assert_enqueued(double, n=3)
            if isinstance(mine.connection, sqlite3.Connection):
                mine.connection.commit()
            else:
                await mine.connection.commit()
            assert await box.run_now_async(double, 1) == 2
            return [task.result for task in await box.drain_async()]

    assert app.loop.run(check()) == [6, 4, 2]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit attribute before 3.12")
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_connection_that_is_always_in_a_transaction_sees_the_real_queue_again(
    app: Any, borrow: Callable[..., Borrowed]
) -> None:
    mine = borrow(autocommit=False)
    with isolated(client(app), on=mine.connection) as box:
        app.on(mine.connection).enqueue("ship")
        mine.commit()
        app.on(mine.connection).enqueue("thank")
        mine.rollback()
        assert [task.type for task in box.enqueued()] == ["ship"]
    mine.rollback()
    assert [task.type for task in app.on(mine.connection).list_tasks()] == ["real"]
    mine.rollback()


def test_the_connection_joins_the_real_queue_again_after_the_block(app: Any, borrow: Callable[..., Borrowed]) -> None:
    mine = borrow()
    with isolated(client(app), on=mine.connection):
        for _ in range(3):
            app.on(mine.connection).enqueue("resize")
        mine.commit()
    real = app.list_tasks()[0]
    joined = app.on(mine.connection)
    assert joined.enqueue("rotate").id > real.id
    flow = joined.start_workflow(dibs.NewWorkflow(name="w", steps=[dibs.NewStep(name="s", task=dibs.NewTask("crop"))]))
    assert [step.task_id for step in joined.steps(flow.id)] == [real.id + 2]
    mine.rollback()
