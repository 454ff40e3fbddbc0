"""Random-order numbers: only a store that is claimed in random order has them, and there every task has one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

import dibs
from dibs import Completed, NewStep, NewTask, NewWorkflow, Released
from dibs.store.operations import claim as claim_operations
from dibs.store.postgres import dialect as postgres_dialect
from tests.helpers.clients import Clock
from tests.helpers.databases import Rows, run_sql
from tests.helpers.probability import NEVER, chance_of_count
from tests.helpers.processes import processes
from tests.helpers.waiting import until

RACES = ("random", "weighted")

on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
each_race = pytest.mark.parametrize("order", RACES)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(url: str, clock: Clock) -> Iterator[dibs.Dibs]:
    with dibs.Dibs(url, clock=clock) as app:
        yield app


def fill(app: dibs.Dibs, count: int, **options: Any) -> list[int]:
    return [task.id for task in app.enqueue_many([NewTask("resize", max_attempts=3, **options)] * count)]


def numbers(url: str, which: str = "state = 'pending'") -> dict[int, tuple[bool, bool]]:
    """Of each task whether it has a number in the random and in the weighted race."""
    rows = run_sql(url, f"SELECT id, random_key, weighted_key FROM dibs_tasks WHERE {which} ORDER BY id")
    return {task_id: (by_chance is not None, by_weight is not None) for task_id, by_chance, by_weight in rows}


def without_number(url: str, order: str) -> list[int]:
    rows = run_sql(url, f"SELECT id FROM dibs_tasks WHERE state = 'pending' AND {order}_key IS NULL ORDER BY id")
    return [task_id for (task_id,) in rows]


def orders(url: str) -> Rows:
    return run_sql(url, "SELECT kind, numbered_to FROM dibs_random_orders ORDER BY kind")


def number(app: dibs.Dibs, order: str) -> bool:
    """Number some tasks; True if there may be more."""
    return bool(app._store.run(app._store.queue.number_random_order(order)))


def drain(app: dibs.Dibs, order: str, batch: int = 7) -> list[int]:
    ids = []
    while claims := app.claim_many("worker-1", batch, order=order):
        ids += [claim.task_id for claim in claims]
    return ids


# Which tasks have a number


def test_without_random_order_no_task_has_a_random_order_number(app: dibs.Dibs, url: str) -> None:
    fill(app, 5)
    for order in dibs.Order:
        if order not in RACES:
            app.finish([(app.claim("worker-1", order=order), Released())])
    assert set(numbers(url).values()) == {(False, False)}
    assert orders(url) == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_sqlite_file_has_the_index_of_a_random_order_only_after_a_claim_in_that_order(
    app: dibs.Dibs, url: str
) -> None:
    fill(app, 5)
    app.peek(3, order="random")
    assert random_indexes(url) == []
    app.release(app.claim("worker-1", order="weighted"))
    assert random_indexes(url) == ["dibs_tasks_by_weight"]


def random_indexes(url: str) -> list[str]:
    rows = run_sql(
        url, "SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '%\\_key IS NOT NULL' ESCAPE '\\'"
    )
    return sorted(name for (name,) in rows if name.startswith("dibs_tasks_by"))


def test_a_peek_stores_no_random_order_numbers_and_still_shows_all_tasks(app: dibs.Dibs, url: str) -> None:
    ids = fill(app, 5)
    for order in RACES:
        assert sorted(task.id for task in app.peek(10, order=order)) == ids
        assert len(app.peek(3, order=order)) == 3
    assert orders(url) == []


def test_the_first_claim_in_a_random_order_gives_every_task_a_number_of_that_order(app: dibs.Dibs, url: str) -> None:
    fill(app, 5)
    fill(app, 5, queue="mail")
    app.claim("worker-1", order="random", queues=["default"])
    assert set(numbers(url).values()) == {(True, False)}
    app.claim("worker-1", order="weighted", queues=["mail"])
    assert set(numbers(url).values()) == {(True, True)}
    assert orders(url) == [("random", None), ("weighted", None)]


def test_once_random_order_numbers_are_stored_peek_shows_what_the_next_claim_takes(app: dibs.Dibs) -> None:
    fill(app, 20)
    for order in RACES:
        app.claim("worker-1", order=order)
        seen = [task.id for task in app.peek(3, order=order)]
        assert [claim.task_id for claim in app.claim_many("worker-1", 3, order=order)] == seen


BACK: dict[str, Callable[[dibs.Dibs, Clock], Any]] = {
    "enqueued": lambda app, clock: fill(app, 1),
    "enqueued for later": lambda app, clock: (fill(app, 1, delay=10), clock.advance(11), app.promote()),
    "released": lambda app, clock: app.release(app.claim("worker-2")),
    "tried again": lambda app, clock: app.fail(app.claim("worker-2"), "so", retry_in=0),
    "tried again later": lambda app, clock: (
        app.fail(app.claim("worker-2"), "so", retry_in=10),
        clock.advance(11),
        app.promote(),
    ),
    "recovered": lambda app, clock: (app.claim("worker-2", lease=1), clock.advance(2), app.recover()),
    "retried": lambda app, clock: app.retry(app.fail(app.claim("worker-2"), "so", permanent=True).task_id),
    "redriven": lambda app, clock: (app.fail(app.claim("worker-2"), "so", permanent=True), app.redrive()),
    "a step": lambda app, clock: step_by_step(app),
}


def step_by_step(app: dibs.Dibs) -> None:
    """A workflow whose second step waits for its first."""
    task = NewTask("resize", max_attempts=3)
    steps = [NewStep(name="first", task=task), NewStep(name="second", task=task, after=["first"])]
    app.start_workflow(NewWorkflow(name="both", steps=steps))
    app.complete(app.claim("worker-2", order="lifo", queues=["default"]))


@pytest.mark.parametrize("way", BACK)
def test_a_task_that_becomes_pending_gets_numbers_only_in_a_store_with_random_order(
    app: dibs.Dibs, url: str, clock: Clock, way: str
) -> None:
    fill(app, 1)
    BACK[way](app, clock)
    assert set(numbers(url).values()) == {(False, False)}
    for claim in app.claim_many("worker-1", 100, order="fifo"):
        app.complete(claim)
    begin(app)
    BACK[way](app, clock)
    assert set(numbers(url).values()) == {(True, True)}


def begin(app: dibs.Dibs) -> None:
    """Random orders of both kinds."""
    for kind in RACES:
        while number(app, kind):
            pass
    fill(app, 1)


def test_a_random_order_that_no_claim_uses_for_a_day_ends_and_begins_again_where_it_was(
    app: dibs.Dibs, url: str, clock: Clock
) -> None:
    fill(app, 5)
    app.claim("worker-1", order="random", lease=7 * 24 * 3600)
    clock.advance(23 * 3600)
    app.upkeep()
    assert set(numbers(url, f"id = {fill(app, 1)[0]}").values()) == {(True, False)}
    [(position,)] = run_sql(url, "SELECT position FROM dibs_random_orders")
    clock.advance(2 * 3600)
    app.upkeep()
    [late] = fill(app, 1)
    assert numbers(url, f"id = {late}") == {late: (False, False)}
    app.claim("worker-1", order="random")
    assert without_number(url, "random") == []
    [(later, ended)] = run_sql(url, "SELECT position, ended FROM dibs_random_orders")
    assert later >= position
    assert not ended


# How they are drawn


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three numbers in a transaction."""
    monkeypatch.setattr(claim_operations, "NUMBER_FOR", 0.0)
    for module in ("sqlite.claims", "postgres.dialect"):
        monkeypatch.setattr(f"dibs.store.{module}.CHUNK", 3)


@each_race
def test_a_large_store_gets_its_random_order_numbers_in_several_transactions(
    app: dibs.Dibs, url: str, slowly: None, order: str
) -> None:
    ids = fill(app, 20)
    assert number(app, order)
    assert len(without_number(url, order)) == 17
    assert app.claim("worker-1", order=order).task_id in ids
    assert without_number(url, order) == []


@each_race
def test_tasks_of_several_queues_get_their_random_order_numbers_with_the_first_claim(
    app: dibs.Dibs, url: str, slowly: None, order: str
) -> None:
    ids = sorted(fill(app, 7) + fill(app, 2, queue="mail") + fill(app, 6, queue="media"))
    [first] = app.claim_many("worker-1", 1, order=order)
    assert without_number(url, order) == []
    assert sorted([first.task_id, *drain(app, order)]) == ids


@each_race
def test_the_next_claim_completes_the_random_order_numbers_that_a_killed_process_began(
    app: dibs.Dibs, url: str, slowly: None, order: str
) -> None:
    ids = fill(app, 20)
    number(app, order)
    more = fill(app, 3)  # they find the order
    assert without_number(url, order) == ids[3:]
    assert sorted(task.id for task in app.peek(50, order=order)) == ids + more
    assert sorted(drain(app, order)) == ids + more


@each_race
def test_tasks_of_a_paused_queue_get_their_random_order_numbers_when_it_is_resumed(
    app: dibs.Dibs, url: str, order: str
) -> None:
    ids = fill(app, 3) + fill(app, 5, queue="mail")
    app.pause("mail")
    app.release(app.claim("worker-1", order=order))
    assert without_number(url, order) == ids[3:]
    app.resume("mail")
    assert without_number(url, order) == []
    assert sorted(drain(app, order)) == ids


@each_race
def test_an_exchange_that_must_store_random_order_numbers_first_writes_its_outcomes_once(
    app: dibs.Dibs, url: str, slowly: None, order: str
) -> None:
    fill(app, 20)
    claims = app.claim_many("worker-1", 5)
    answers, next_ones = app.exchange([(claim, Completed()) for claim in claims], "worker-1", 5, order=order)
    assert [answer.state for answer in answers] == ["completed"] * 5
    assert len(next_ones) == 5
    events = [(entry.task_id, entry.event) for entry in app.all_history() if entry.event == "completed"]
    assert sorted(events) == [(claim.task_id, "completed") for claim in claims]


@each_race
def test_random_order_numbers_stored_in_the_users_transaction_are_undone_by_its_rollback(
    app: dibs.Dibs, url: str, engine: str, slowly: None, order: str
) -> None:
    ids = fill(app, 10)
    with closing(connect(engine, url)) as connection:
        connection.execute("BEGIN")
        assert len(app.on(connection).claim_many("worker-1", 4, order=order)) == 4
        connection.execute("ROLLBACK")
    assert without_number(url, order) == ids
    assert sorted(drain(app, order)) == ids


def connect(engine: str, url: str) -> Any:
    if engine == "sqlite":
        return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    return psycopg.connect(url, autocommit=True)


@each_race
def test_a_task_without_a_random_order_number_is_claimed_when_no_other_task_is_left(
    app: dibs.Dibs, url: str, order: str
) -> None:
    ids = fill(app, 10)
    app.release(app.claim("worker-1", order=order))
    run_sql(url, f"UPDATE dibs_tasks SET {order}_key = NULL WHERE id IN ({ids[3]}, {ids[7]})")
    assert sorted(drain(app, order)) == ids


@each_race
def test_tasks_from_before_and_after_the_start_of_random_order_have_the_same_chance(app: dibs.Dibs, order: str) -> None:
    random.seed(20251116)
    queues = [f"set-{n}" for n in range(150)]
    ids = {task.id for task in app.enqueue_many([NewTask("t", queue=queue) for queue in queues for _ in range(2)])}
    for queue in queues:
        app.release(app.claim("worker-1", order=order, queues=[queue]))
    app.enqueue_many([NewTask("t", queue=queue) for queue in queues for _ in range(2)])
    won = [app.claim("worker-1", order=order, queues=[queue]).task_id in ids for queue in queues]
    assert chance_of_count(sum(won), len(won), 0.5) > NEVER


# Many at once


@each_race
def test_tasks_enqueued_while_random_order_begins_are_all_claimed_once(
    app: dibs.Dibs, url: str, slowly: None, order: str
) -> None:
    fill(app, 100)
    with processes(url, 3) as members:
        for member in members:
            member.send(do="enqueue_batches", count=60)
        claimed = [app.claim("worker-1", order=order).task_id]
        assert [member.hear() for member in members] == [120] * 3
    claimed += [claim.task_id for claim in app.claim_many("worker-1", 5, order=order)]
    claimed += drain(app, order, 50)
    assert sorted(claimed) == [task.id for task in sorted(all_tasks(app), key=lambda task: task.id)]
    assert len(claimed) == 100 + 3 * 120


def all_tasks(app: dibs.Dibs) -> list[dibs.Task]:
    tasks = page = app.list_tasks(limit=1000)
    while page:
        tasks = tasks + (page := app.list_tasks(limit=1000, cursor=page[-1].id))
    return tasks


# PostgreSQL: transactions that began before random order


@on_postgres
@each_race
def test_a_task_enqueued_before_random_order_began_and_committed_later_gets_its_number_later(
    app: dibs.Dibs, url: str, order: str
) -> None:
    fill(app, 3)
    with psycopg.connect(url) as connection:
        late = fill(app.on(connection), 3)
        app.claim("worker-1", order=order)
        app.claim("worker-1", order=order)  # goes on with what there is
        assert app.claim("worker-1", queues=["none"], order=order) is None
    assert without_number(url, order) == late
    until(lambda: settled(app, url, order))
    assert without_number(url, order) == []


def settled(app: dibs.Dibs, url: str, order: str) -> bool:
    """True when the store was gone through once more; not before every older transaction of the server has ended."""
    app.release(app.claim("worker-1", order=order))
    return run_sql(url, "SELECT settles_after, numbered_to FROM dibs_random_orders") == [(None, None)]


@on_postgres
@each_race
def test_a_task_enqueued_from_an_old_snapshot_gets_its_number_when_it_is_the_oldest(
    app: dibs.Dibs, url: str, order: str
) -> None:
    fill(app, 1)
    with psycopg.connect(url) as connection:
        connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        connection.execute("SELECT 1")  # its snapshot
        until(lambda: settled(app, url, order))
        late = fill(app.on(connection), 1)
    more = fill(app, 20)
    assert without_number(url, order) == late
    app.complete(app.claim("worker-1", order="fifo"))
    first = app.claim("worker-1", order=order)
    assert without_number(url, order) == []
    assert sorted([first.task_id, *drain(app, order)]) == late + more


@on_postgres
@each_race
def test_tasks_locked_by_other_transactions_do_not_delay_the_storing_of_random_order_numbers(
    app: dibs.Dibs, url: str, order: str
) -> None:
    ids = fill(app, 6)
    with psycopg.connect(url) as connection:
        held = app.on(connection).claim_many("worker-2", 3)
        claimed = [claim.task_id for claim in app.claim_many("worker-1", 6, order=order)]
        assert sorted(claimed) == ids[3:]
        connection.rollback()
    assert sorted(drain(app, order)) == sorted(claim.task_id for claim in held)


@on_postgres
@each_race
def test_a_claim_that_has_claimed_tasks_continues_although_the_store_must_be_numbered_again(
    app: dibs.Dibs, url: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(app, 1_500)
    rare = {task.id for task in app.enqueue_many([NewTask("rare")] * 20)}
    with psycopg.connect(url) as older:
        older.execute("SELECT pg_current_xact_id()")
        app.release(app.claim("worker-1", order=order))
        tiers = []

        def statement(request: Any, tier: Any, claimed: int, *rest: Any, **more: Any) -> Any:
            """The statement of the claim. Between the first and the second one the older transaction ends, so that the
            store must be numbered once more."""
            tiers.append(claimed)
            if len(tiers) == 2:
                older.commit()
                until(lambda: run_sql(url, MUST_BE_NUMBERED) == [(True,)])
            return claim_statement(request, tier, claimed, *rest, **more)

        claim_statement = postgres_dialect._claim_statement
        monkeypatch.setattr(postgres_dialect, "_claim_statement", statement)
        claims = app.claim_many("worker-1", 19, order=order, types=["rare", "nobody-enqueues-this"])
    assert tiers[0] == 0 < tiers[1] < 19
    assert len(claims) == 19
    assert rare.issuperset(claim.task_id for claim in claims)


MUST_BE_NUMBERED = "SELECT settles_after < pg_snapshot_xmin(pg_current_snapshot()) FROM dibs_random_orders"
