"""Plan guards: with a million pending and a million finished tasks, an operation reads only the rows it needs.

The databases are created once for a test run. `make proof` creates them a tenth as large; `make stress` and
DIBS_TEST_MILLION=1000000 create them in full size.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs import Cancelled, ClaimRef, Completed, Failed, Failure, NewTask, Order, Released
from dibs.model.change import TaskChange
from dibs.model.checks import from_micros
from dibs.model.claim import ClaimRequest
from dibs.model.history import HistoryPosition
from dibs.model.retention import RetentionTarget
from dibs.model.search import SEARCH_SPAN, DeadFilter, TaskFilter, TaskSearch
from dibs.model.upkeep import BATCH, PrunePosition
from dibs.model.workflow import WorkflowFilter
from dibs.store.contract import Store
from dibs.store.open import open_store
from dibs.store.operation import Mode, Operation, Statement, Statements, limited
from dibs.store.operations import claim as claim_operations
from dibs.store.operations import upkeep as upkeep_operations
from dibs.store.operations.claim import CHUNK, RANDOM_ORDERS, SCANNED
from dibs.store.operations.retention import read_rules
from dibs.store.operations.stream_indexes import QUEUE, STREAM_INDEXES, TYPE, stream_index
from dibs.store.operations.upkeep import STRETCH, SWEEP_BATCH
from dibs.store.operations.workflow_views import FEW as FEW_WORKFLOWS
from dibs.store.sqlite.connection import clock, connect
from tests import matrix
from tests.helpers import million, postgres
from tests.helpers.databases import sqlite_path
from tests.helpers.million import FUTURE, SERIES, START, WAITING, WIDE, Shape
from tests.helpers.plans import Work, explain_postgres, explain_sqlite
from tests.helpers.waiting import until

pytestmark = [pytest.mark.own_connections, pytest.mark.million, pytest.mark.timeout(600)]

ROWS = int(os.environ.get("DIBS_TEST_MILLION") or (1_000_000 if matrix.is_stress() else 100_000))
FEW = 10_000
"""Rows of the database that the big one is compared with; as many as fill every line for the largest batch."""

INDEXES = {
    "priority": "dibs_tasks_by_priority",
    "priority_lifo": "dibs_tasks_by_priority",
    "priority_asc": "dibs_tasks_by_priority",
    "fifo": "dibs_tasks_by_age",
    "lifo": "dibs_tasks_by_age",
    "random": "dibs_tasks_by_random",
    "weighted": "dibs_tasks_by_weight",
}

FILTERS: list[dict[str, Any]] = [
    {},
    {"queues": ["mail"]},
    {"types": ["rare"]},
    {"queues": ["default", "media"], "types": ["type-1"]},
    {"types": ["rare", "nobody-enqueues-this"]},
    {"queues": ["mail"], "types": ["type-1", "rare"]},
    {"max_attempts_remaining": 1},
    {"types": ["nobody-enqueues-this"]},
]
FEW_ATTEMPTS: dict[str, Any] = {"max_attempts_remaining": 2}
"""A filter that few tasks pass. An index has the tasks by their attempts left, though not in random order."""

RARE_ATTEMPTS: list[dict[str, Any]] = [
    {"queues": ["mail"], "types": ["type-1", "type-2"], "max_attempts_remaining": 2},
]
"""Filters that few tasks pass, and that no index has: a claim may read all tasks before it finds them."""

COUNTS = (1, 100)

JIT_ABOVE_COST = 100_000
"""What PostgreSQL expects to cost more is compiled first where the server can do so, for a second or so each time."""


# Claims


@pytest.mark.parametrize("planned", ["custom", "generic"])
@pytest.mark.parametrize("order", Order)
def test_a_claim_on_postgres_touches_few_rows_of_a_million(big_postgres: Big, order: str, planned: str) -> None:
    big_postgres.vacuum()
    for filters in filters_of(order):
        for count in COUNTS:
            works = explained_on_postgres(big_postgres, planned, order, count, filters)
            assert_bounded(works, 4 * (8 * 2 * count + SCANNED), (order, planned, filters, count))
            [claimed] = [work for work in works if work.name == "claim"][:1]
            assert claimed.uses(first_index(order, filters)), (filters, count, claimed)


@pytest.mark.parametrize("planned", ["custom", "generic"])
@pytest.mark.parametrize("order", Order)
def test_a_claim_by_rare_attempts_left_on_postgres_reads_each_task_a_few_times_at_most(
    big_postgres: Big, order: str, planned: str
) -> None:
    big_postgres.vacuum()
    for filters in RARE_ATTEMPTS:
        works = explained_on_postgres(big_postgres, planned, order, 1, filters)
        assert_bounded(works, 7 * ROWS, (order, planned, filters))


def explained_on_postgres(database: Big, planned: str, order: str, count: int, filters: dict[str, Any]) -> list[Work]:
    with database.connect(planned) as connection:
        return explain_postgres(connection, claim(database.store, order, count, filters))


def assert_bounded(works: list[Work], bound: int, what: object) -> None:
    """No statement reads a whole table, or more rows than allowed."""
    for work in works:
        allowed = 3 * SWEEP_BATCH if work.name in ("promote", "recover", "expire") else bound
        print(what, work.name, f"{work.rows:.0f} rows, {work.pages} pages, cost {work.plan['Total Cost']:.0f}")
        assert work.scanned == set(), (what, work)
        assert work.rows <= allowed, (what, work)
        assert work.plan["Total Cost"] < JIT_ABOVE_COST, (what, work)
        assert work.pages <= 30 * allowed, (what, work)  # a task that is promoted enters every index of streams


def first_index(order: str, filters: dict[str, Any]) -> str:
    """The index that the first statement of a claim on PostgreSQL must read: that of the store, or that of the only
    type or queue."""
    if len(filters) == 1 and len(filters.get("types", ())) == 1:
        return stream_index(TYPE, order)
    if len(filters) == 1 and len(filters.get("queues", ())) == 1:
        return stream_index(QUEUE, order)
    return INDEXES[order]


def filters_of(order: str) -> list[dict[str, Any]]:
    """The filters whose claims in this order read a bounded number of tasks."""
    return FILTERS if order in RANDOM_ORDERS else [*FILTERS, FEW_ATTEMPTS]


@pytest.mark.parametrize("order", Order)
def test_a_claim_on_sqlite_takes_no_more_steps_with_a_million_rows(
    big_sqlite: Big, small_sqlite: Big, order: str
) -> None:
    for filters in filters_of(order):
        for count in COUNTS:
            few, many = (
                explained_on_sqlite(database, claim(database.store, order, count, filters))
                for database in (small_sqlite, big_sqlite)
            )
            print(order, filters, count, f"{steps(few)} steps, {steps(many)} in a million")
            assert_no_scan(many)
            assert steps(many) <= 1.5 * steps(few) + 500, (filters, count)
            first = next(work for work in many if work.name in ("scan", "scan_random"))
            assert INDEXES[order] in " ".join(first.plan), (filters, count, first)


def claim(store: Store, order: str, count: int, filters: dict[str, Any]) -> Operation[Any]:
    return store.queue.claim(ClaimRequest(worker_id="worker-1", order=order, count=count, **filters))


# The other operations


def held(shape: Shape) -> list[ClaimRef]:
    return [ClaimRef(task_id, 1, "worker-1") for task_id in shape.claimed[:100]]


def stale(shape: Shape) -> list[ClaimRef]:
    return [ClaimRef(task_id, 0, "worker-1") for task_id in shape.claimed[:100]]


def only(name: str, **params: Any) -> Operation[Any]:
    """An operation of one statement, which the store runs only where it is needed."""

    def steps() -> Statements[Any]:
        return (yield Statement(name, params))

    return Operation(name, steps)


def search_operation(shape: Any) -> Operation[Any]:
    """The look for a hundred keys, most of them taken."""
    asked = [{"key": f"key-{n}", "queue": "default", "request": f"r-{n}"} for n in shape.finished[:100]]

    def steps() -> Statements[Any]:
        yield Statement("find_ended_keys", rows=asked)
        return (yield Statement("find_keys", rows=asked))

    return Operation("find_keys", steps)


def replacing(shape: Any) -> Operation[Any]:
    """New content for a hundred waiting tasks."""
    content = {"detail": "{}", "type_version": None, "params": "{}", "priority": 0, "delay": 60_000_000, "run_at": None}
    unique = {"max_delay": None, "key_content": "other", "request": None, "trace": None, "tags": None}
    unique |= dict.fromkeys(("expires_at", "expires_in", "limits", "group_key", "backlog"))
    rows = [{"id": task_id, "from_state": "pending", **content, **unique} for task_id in shape.pending[-100:]]

    def steps() -> Statements[Any]:
        return (yield Statement("replace", rows=rows, change=True))

    return Operation("replace", steps)


def drawing(store: Any) -> Operation[Any]:
    """Store random-order numbers; that the tasks have numbers already changes nothing in the plan."""

    def steps() -> Statements[Any]:
        yield Statement("end_random_orders", {"unused": 0})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(claim_operations, "NUMBER_FOR", 0.0)  # one chunk
            return (yield from store.queue.number_random_order("random").begin())

    return Operation("draw", steps)


def pruning(store: Any, *rules: tuple[RetentionTarget, float | None]) -> Operation[Any]:
    """A batch of pruning under these rules; by default everything is kept for ever."""
    forever = [(RetentionTarget(records=records), None) for records in ("completed", "failed", "cancelled")]

    def steps() -> Statements[Any]:
        for target, keep in (*forever, *rules):
            yield from store.retention.set_retention(target, keep).begin()
        return (yield from store.upkeep.prune().begin())

    return Operation("prune", steps, mode=Mode.TRANSACTION)


def old_workflows() -> Operation[Any]:
    """The oldest workflows of a name, as pruning finds them; those of the test end in the future."""
    given = {"state": "completed", "name": "flow-1", "queues": '["default"]', "kept": -FUTURE * 2}

    def steps() -> Statements[Any]:
        return (yield Statement("old_workflows", given, words=limited(SWEEP_BATCH)))

    return Operation("old_workflows", steps)


def pausing(store: Any) -> Operation[Any]:
    """Park the first tasks of a type, and bring them back."""

    def steps() -> Statements[Any]:
        yield from store.registry.pause_type("type-1").begin()
        yield from store.registry.resume_type("type-1").begin()

    return Operation("pause_type", steps, mode=Mode.TRANSACTION)


def hours(count: int) -> datetime:
    """The time this number of hours after the creation of the first task."""
    return from_micros(START + count * 3_600_000_000)


def rule(**target: str) -> RetentionTarget:
    return RetentionTarget(records="completed", **target)


FAILED = Failed(Failure("Boom", "as planned"))
ASKED = {"worker_id": "worker-1", "incarnation": None, "request": "r-1"}
NEXT = ClaimRequest(worker_id="worker-1", queues=["mail"], types=["type-1"], count=10, order="fifo")
KEYED = [NewTask("type-1", key=f"new-{n}", queue="mail") for n in range(100)]
UNIQUE = [
    NewTask("type-1", key=f"new-{n}", queue="mail", key_scope="until_started", request=f"r-{n}") for n in range(50)
] + [NewTask("type-1", key=f"timed-{n}", queue="mail", key_for=60) for n in range(50)]

OPERATIONS: dict[str, tuple[int, Callable[[Any, Shape], Operation[Any]]]] = {
    "enqueue with keys": (100, lambda store, shape: store.queue.enqueue(KEYED)),
    "enqueue unique tasks": (100, lambda store, shape: store.queue.enqueue(UNIQUE)),
    "replace": (100, lambda store, shape: replacing(shape)),
    "end keys": (100, lambda store, shape: only("end_keys", ids=list(shape.pending[:100]))),
    "take back a key": (1, lambda store, shape: only("take_back_key", id=shape.pending[-1])),
    "note pruned keys": (
        100,
        lambda store, shape: only("note_pruned_keys", ids=list(shape.pending[:100]), state="failed"),
    ),
    "find keys": (100, lambda store, shape: search_operation(shape)),
    "complete": (100, lambda store, shape: store.queue.finish([(ref, Completed(1)) for ref in held(shape)])),
    "fail": (100, lambda store, shape: store.queue.finish([(ref, FAILED) for ref in held(shape)])),
    "release": (100, lambda store, shape: store.queue.finish([(ref, Released()) for ref in held(shape)])),
    "stop": (100, lambda store, shape: store.queue.finish([(ref, Cancelled()) for ref in held(shape)])),
    "refuse": (100, lambda store, shape: store.queue.finish([(ref, Completed(1)) for ref in stale(shape)])),
    "renew": (100, lambda store, shape: store.queue.renew(held(shape), 60_000_000)),
    "progress": (100, lambda store, shape: store.queue.progress([(ref, 50, "half") for ref in held(shape)])),
    "start": (100, lambda store, shape: store.queue.start(held(shape))),
    "standing": (100, lambda store, shape: store.queue.claim_status(held(shape))),
    "next due": (2, lambda store, shape: store.upkeep.next_due()),
    "claim by id": (
        1,
        lambda store, shape: store.queue.claim_by_id(shape.pending[-1], ClaimRequest(worker_id="worker-1")),
    ),
    "change": (
        1,
        lambda store, shape: store.tasks.change(shape.pending[-1], TaskChange(queue="elsewhere", priority=9)),
    ),
    "change many": (
        100,
        lambda store, shape: store.tasks.change_many(shape.pending[-100:], TaskChange(queue="elsewhere", delay=60)),
    ),
    "cancel": (1, lambda store, shape: store.tasks.cancel(shape.pending[-1])),
    "retry": (1, lambda store, shape: store.tasks.retry(shape.finished.stop - 10)),
    "redrive": (100, lambda store, shape: store.tasks.redrive_some(DeadFilter(), 100)),
    "promote": (BATCH, lambda store, shape: store.upkeep.promote()),
    "recover": (BATCH, lambda store, shape: store.upkeep.recover()),
    "expire": (BATCH, lambda store, shape: store.upkeep.expire_tasks()),
    "pause and resume a type": (3000, lambda store, shape: pausing(store)),
    "pauses to park": (10, lambda store, shape: store.upkeep.pauses_to_park()),
    "prune": (BATCH, lambda store, shape: store.upkeep.prune()),
    "prune with other defaults": (BATCH, lambda store, shape: pruning(store, (rule(), 0.0))),
    "prune nothing": (BATCH, lambda store, shape: pruning(store)),
    "find workflows to prune": (SWEEP_BATCH, lambda store, shape: old_workflows()),
    "prune history": (BATCH, lambda store, shape: store.upkeep.prune_history()),
    "get": (1, lambda store, shape: store.tasks.get(shape.finished[-1])),
    "get many": (100, lambda store, shape: only("get", ids=list(shape.finished[:100]))),
    "history": (1, lambda store, shape: store.history.task_history(shape.finished[-1])),
    "a page of history": (1000, lambda store, shape: store.history.history_after(5000, 1000)),
    "a page of tasks": (100, lambda store, shape: store.tasks.list_tasks(TaskFilter())),
    "a page of events": (2000, lambda store, shape: store.history.events_page(5000, 1000)),
    "a page of a queue's events": (10_000, lambda store, shape: store.history.events_page(5000, 1000, ["mail"])),
    "whose queues": (100, lambda store, shape: store.tasks.queues_of(shape.finished[:100])),
    "a claim asked for again": (1, lambda store, shape: only("claims_of_request", **ASKED)),
    "a search without conditions": (50, lambda store, shape: store.tasks.search(TaskSearch())),
    "a search by id": (1, lambda store, shape: store.tasks.search(TaskSearch(id=shape.finished[0]))),
    "a search by key": (1, lambda store, shape: store.tasks.search(TaskSearch(key=f"key-{shape.finished[5]}"))),
    "a search by state": (SEARCH_SPAN, lambda store, shape: store.tasks.search(TaskSearch(state="completed"))),
    "a search in a queue and type": (
        FEW,
        lambda store, shape: store.tasks.search(TaskSearch(state="pending", queue="mail", type="rare")),
    ),
    "a search by type": (SEARCH_SPAN, lambda store, shape: store.tasks.search(TaskSearch(type="rare"))),
    "a search by queues": (
        SEARCH_SPAN,
        lambda store, shape: store.tasks.search(TaskSearch(queues=["nobody"], worker="worker-9")),
    ),
    "a search for text": (SEARCH_SPAN, lambda store, shape: store.tasks.search(TaskSearch(text="nowhere"))),
    "a search from the middle": (
        SEARCH_SPAN,
        lambda store, shape: store.tasks.search(TaskSearch(text="x", cursor=FEW)),
    ),
    "a search by time": (
        SEARCH_SPAN,
        lambda store, shape: store.tasks.search(TaskSearch(since=hours(1), until=hours(2))),
    ),
    "a search in the past": (SEARCH_SPAN, lambda store, shape: store.tasks.search(TaskSearch(until=hours(0)))),
    "cancel many": (100, lambda store, shape: store.tasks.cancel_many(shape.pending[-100:])),
    "retry many": (100, lambda store, shape: store.tasks.retry_many(shape.finished[-100:])),
    "a page of moves": (2000, lambda store, shape: store.statistics.changes_since([HistoryPosition(5000)], 1000)),
    "latencies": (1000, lambda store, shape: store.statistics.latencies()),
    "latencies of a queue": (10_000, lambda store, shape: store.statistics.latencies(["nobody"])),
    "the newest history": (10, lambda store, shape: store.history.latest_history(shape.finished[-1], 10)),
    "the outline of a workflow": (WIDE, lambda store, shape: store.workflows.outline(shape.flows[-1])),
    "the states of steps": (WIDE, lambda store, shape: store.workflows.step_states(shape.flows[-1], shape.wide[-1])),
    "some steps": (100, lambda store, shape: store.workflows.step_details(shape.wide[:100])),
    "what steps said": (100, lambda store, shape: store.workflows.step_errors(shape.wide[:100])),
    "attempts to finalize": (10, lambda store, shape: store.finalization.latest_attempts(shape.flows[-1], 10)),
    "workflows": (200, lambda store, shape: store.workflows.find_workflows(WorkflowFilter(limit=50), 200)),
    "workflows of a name": (
        200,
        lambda store, shape: store.workflows.find_workflows(WorkflowFilter(name="nobody"), 200),
    ),
    "workflows in a state that none is in": (
        200,
        lambda store, shape: store.workflows.find_workflows(WorkflowFilter(state="finalizing"), 200),
    ),
    "workflows in a rare state": (
        20,
        lambda store, shape: store.workflows.find_workflows(WorkflowFilter(state="cancelled"), 200),
    ),
    "workflows in a state that many are in": (
        FEW_WORKFLOWS,
        lambda store, shape: store.workflows.find_workflows(WorkflowFilter(state="completed"), 200),
    ),
    "a session": (1, lambda store, shape: store.keys.get_session("digest")),
    "a sample": (1, lambda store, shape: store.statistics.save_sample(60_000_000, "{}")),
    "draw": (CHUNK, lambda store, shape: drawing(store)),
    "exchange": (
        SCANNED,
        lambda store, shape: store.queue.exchange([(ref, Completed(1)) for ref in held(shape)], NEXT),
    ),
}
"""name -> (how many rows it is about, the operation)"""


@pytest.mark.parametrize("planned", ["custom", "generic"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_postgres_touches_only_the_rows_it_needs(big_postgres: Big, name: str, planned: str) -> None:
    size, make = OPERATIONS[name]
    with big_postgres.connect(planned) as connection:
        works = explain_postgres(connection, make(big_postgres.store, big_postgres.shape))
    assert works
    for work in works:
        print(planned, work.name, f"{work.rows:.0f} rows, {work.pages} pages")
        if work.name != "claim_indexes":  # reads the catalog, once a second at most: as many rows as there are indexes
            assert work.scanned == set(), work
            assert work.rows <= 3 * size, work
            assert work.pages <= 90 * size, work


def test_the_newest_history_entry_is_found_at_the_end_of_its_index(big_postgres: Big, big_sqlite: Big) -> None:
    with big_postgres.connect("generic") as connection:
        [work] = explain_postgres(connection, big_postgres.store.history.last_entry())
    assert work.uses("dibs_history_pkey")
    assert (work.rows, work.scanned) == (1, set())  # not its pages: what other tests took back is at that end
    assert steps(explained_on_sqlite(big_sqlite, big_sqlite.store.history.last_entry())) <= 100


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_on_sqlite_takes_no_more_steps_with_a_million_rows(
    big_sqlite: Big, small_sqlite: Big, name: str
) -> None:
    _, make = OPERATIONS[name]
    few, many = (
        explained_on_sqlite(database, make(database.store, database.shape)) for database in (small_sqlite, big_sqlite)
    )
    print(f"{steps(few)} steps, {steps(many)} in a million")
    assert_no_scan(many)
    assert steps(many) <= 1.5 * steps(few) + 500


# Pruning by rules for types and queues


def pruned_from(store: Any, shape: Shape, at: float, *rules: tuple[RetentionTarget, float | None]) -> Operation[Any]:
    """A batch of pruning under these rules, from this part of the finished tasks on; by default everything is kept."""

    def steps() -> Statements[Any]:
        yield from pruning(store, *rules).begin()
        rules_set = yield from read_rules()
        entry = START + shape.finished.start + int(at * len(shape.finished))
        position = PrunePosition(rules_set.checksum, {"completed": entry})
        pruned = yield from store.upkeep.prune(after=position).begin()
        assert pruned.next is not None
        return pruned

    return Operation("prune", steps, mode=Mode.TRANSACTION)


WALKS: dict[str, Callable[[Any, Shape], Operation[Any]]] = {
    "a type that is not there": lambda store, shape: pruned_from(store, shape, 0.0, (rule(type="none"), 0.0)),
    "a type, near the end": lambda store, shape: pruned_from(store, shape, 0.8, (rule(type="type-1"), 0.0)),
    "a queue, from the middle": lambda store, shape: pruned_from(store, shape, 0.5, (rule(queue="mail"), 0.0)),
    "all but a large queue": lambda store, shape: pruned_from(
        store, shape, 0.2, (rule(), 0.0), (rule(queue="default"), None)
    ),
    "all but a workflow": lambda store, shape: pruned_from(
        store, shape, 0.0, (rule(), 0.0), (rule(workflow="flow-1"), None)
    ),
}


@pytest.mark.parametrize("planned", ["custom", "generic"])
@pytest.mark.parametrize("name", WALKS)
def test_pruning_by_rules_on_postgres_reads_a_bounded_range(big_postgres: Big, name: str, planned: str) -> None:
    with big_postgres.connect(planned) as connection:
        works = explain_postgres(connection, WALKS[name](big_postgres.store, big_postgres.shape))
    assert "prune_walked" in {work.name for work in works}
    for work in works:
        print(planned, work.name, f"{work.rows:.0f} rows, {work.pages} pages")
        assert work.scanned <= {"dibs_retention"}, work
        assert work.rows <= 3 * STRETCH, work
        assert work.pages <= 60 * STRETCH, work


@pytest.mark.parametrize("name", WALKS)
def test_pruning_by_rules_on_sqlite_takes_no_more_steps_with_a_million_rows(
    big_sqlite: Big, small_sqlite: Big, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_operations, "STRETCH", 500)  # fewer than the small database has
    few, many = (
        explained_on_sqlite(database, WALKS[name](database.store, database.shape))
        for database in (small_sqlite, big_sqlite)
    )
    print(f"{steps(few)} steps, {steps(many)} in a million")
    assert_no_scan(many)
    assert "prune_walked" in {work.name for work in many}
    assert steps(many) <= 1.5 * steps(few) + 500


def explained_on_sqlite(database: Big, operation: Operation[Any]) -> list[Work]:
    random.seed(1)  # the same random points in both databases
    with closing(connect(Path(sqlite_path(database.url)))) as connection:
        connection.execute("PRAGMA busy_timeout = 60000")
        return explain_sqlite(connection, operation, clock())


def assert_no_scan(works: list[Work]) -> None:
    for work in works:
        scans = [line for line in work.plan if line.startswith("SCAN dibs_tasks")]
        assert work.name in BOUNDED or not scans, work
        assert all(" USING INDEX dibs_tasks_" in line for line in scans), work
        assert work.name in COUNTED or not any("TEMP B-TREE" in line for line in work.plan), work


BOUNDED = {"scan", "scan_random", "beyond_bound", "beyond_numbers", "next_level", "few_tasks", "redraw", "has_limited"}
"""Statements that read a partial index from its beginning, up to a bound; `has_limited` reads one entry."""

COUNTED = {"moves", "outline", "outline_edges", "step_states", "list_workflows"}
"""Statements that group or sort no more rows than their limit lets through, or a workflow has."""


def steps(works: list[Work]) -> int:
    return int(sum(work.rows for work in works))


# Plans that PostgreSQL made before there was anything to plan for


SWEEP = 2 * (WAITING + SWEEP_BATCH)
"""What a sweep may read before the first ANALYZE, when PostgreSQL reads all that is due and sorts it."""

WARM: dict[str, tuple[int, Callable[[dibs.Dibs, Shape], Any]]] = {
    # First, since it would read past the entries of what the sweeps of the claims have moved.
    "next-due": (10, lambda app, shape: app._store.run(app._store.upkeep.next_due())),
    "claim-one": (3_000 + SWEEP, lambda app, shape: app.claim("worker-1")),
    "claim-a-hundred": (12_000 + SWEEP, lambda app, shape: app.claim_many("worker-1", 100)),
    "claim-a-rare-one": (4_000 + SWEEP, lambda app, shape: app.claim("worker-1", types=["rare"])),
    "claim-by-id": (50, lambda app, shape: app.claim_by_id(shape.pending[-1], "worker-1")),
    "complete": (1000, lambda app, shape: app.finish([(ref, Completed(1)) for ref in held(shape)])),
    "renew": (1000, lambda app, shape: app.renew_many(held(shape))),
    "standing": (1000, lambda app, shape: app._store.run(app._store.queue.claim_status(held(shape)))),
    "promote": (SWEEP, lambda app, shape: app.promote()),
    "recover": (SWEEP, lambda app, shape: app.recover()),
    "expire": (SWEEP, lambda app, shape: app._store.run(app._store.upkeep.expire_tasks())),
    "get": (50, lambda app, shape: app.get(shape.finished[-1])),
}
"""name -> (rows and index entries that may be read, the verb)"""


@pytest.mark.parametrize("analyzed", [False, True], ids=["never_analyzed", "analyzed_while_empty"])
def test_workers_that_waited_at_an_empty_postgres_read_few_rows_when_it_fills(
    postgres_server: str, postgres_template: str, analyzed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.store.postgres.store.PLANS_KEPT_FOR", 0.2)  # less than the filling takes
    shape = Shape(30_000)
    url = postgres.clone(postgres_server, postgres_template)
    Big(url, shape).create_stream_indexes()
    apps = {name: dibs.Dibs(f"{url}&options=-c%20statement_timeout%3D3s&application_name={name}") for name in WARM}
    read: dict[str, int] = {}
    with psycopg.connect(url, autocommit=True) as watcher:
        for table in ("dibs_tasks", "dibs_history"):  # it would mend the plans, a minute later
            watcher.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
        if analyzed:
            watcher.execute("VACUUM (ANALYZE) dibs_tasks, dibs_history")
        for name, app in apps.items():
            for _ in range(15):  # five before it is prepared, five that are planned each time, then one plan for all
                attempt(WARM[name][1], app, shape)
        with watcher.transaction():
            for statement in shape.inserts(SERIES):
                watcher.execute(statement.encode())
        for name, app in apps.items():
            before = rows_read(watcher)
            attempt(WARM[name][1], app, shape)
            app.close()
            until(lambda name=name: is_gone(watcher, name))
            read[name] = rows_read(watcher) - before
    postgres.drop(postgres_server, url)
    print(read)
    assert {name: rows for name, rows in read.items() if rows > WARM[name][0]} == {}


def attempt(verb: Callable[[dibs.Dibs, Shape], Any], app: dibs.Dibs, shape: Shape) -> None:
    """A verb that finds nothing may say so; one that is stopped after three seconds has read enough to be noticed."""
    with suppress(dibs.TaskNotFound, dibs.StoreBusy):
        verb(app, shape)


def rows_read(watcher: psycopg.Connection[Any]) -> int:
    """Rows read by scans of the tables and entries read in their indexes, by sessions that have ended."""
    row = watcher.execute(
        "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN ('dibs_tasks', 'dibs_history'))"
        " + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname IN ('dibs_tasks', 'dibs_history'))"
    ).fetchone()
    assert row is not None
    return int(row[0])


def is_gone(watcher: psycopg.Connection[Any], name: str) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    return watcher.execute(query, [name]).fetchone() == (0,)


# The databases


@dataclass
class Big:
    """A database with many rows."""

    url: str
    shape: Shape
    all_lines: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def store(self) -> Any:
        """A store that has not swept yet, and knows the indexes of streams: its first claim sweeps."""
        store: Any = open_store(self.url)
        store.run(Operation("look", store._operations.claims._dialect.indexes.look, mode=Mode.READ))
        return store

    def create_stream_indexes(self) -> None:
        """Create all indexes of streams, as claims do that need them."""
        store: Any = open_store(self.url)
        for name in STREAM_INDEXES:
            store.run(store.queue.provide_index(name))
        store.maintain()
        store.close()

    def lines(
        self, queues: list[str] | None = None, types: list[str] | None = None, max_attempts_remaining: int = 1
    ) -> int:
        """How many lines pass the filters."""
        return sum(
            (queues is None or queue in queues) and (types is None or kind in types) and left >= max_attempts_remaining
            for queue, kind, left in self.all_lines
        )

    def vacuum(self) -> None:
        """Clear away what the tests before have written and undone: a claim reads past dead entries of an index."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("VACUUM (INDEX_CLEANUP ON) dibs_tasks")

    @contextmanager
    def connect(self, planned: str) -> Iterator[psycopg.Connection[Any]]:
        """A connection whose plans are made for the values at hand (custom), or for any (generic)."""
        options = f"-c plan_cache_mode=force_{planned}_plan"
        with psycopg.connect(self.url, autocommit=True, options=options) as connection:
            connection.execute("SELECT pg_advisory_lock(1)")  # what other test processes lock would be passed over
            yield connection


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test run have."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def big_sqlite(shared_folder: Path) -> Iterator[Big]:
    """A SQLite file with a million pending and a million finished tasks."""
    path = shared_folder / "million.db"
    big = Big(f"sqlite:///{path}", Shape(ROWS))

    def make() -> None:
        million.fill_sqlite(path, ROWS)
        big.create_stream_indexes()

    with million.shared(shared_folder, "sqlite", make, lambda: remove(path)):
        yield big


@pytest.fixture(scope="session")
def small_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Big:
    """A SQLite file with a few of the same."""
    path = tmp_path_factory.mktemp("small") / "small.db"
    million.fill_sqlite(path, FEW)
    big = Big(f"sqlite:///{path}", Shape(FEW))
    big.create_stream_indexes()
    return big


@pytest.fixture(scope="session")
def big_postgres(shared_folder: Path, postgres_server: str) -> Iterator[Big]:
    """A PostgreSQL database with a million pending and a million finished tasks."""
    name = f"dibs_million_{zlib.crc32(str(shared_folder).encode())}"
    url = postgres.database_url(postgres_server, name)

    def make() -> None:
        with psycopg.connect(postgres_server, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        dibs.Dibs(url).migrate()
        million.fill_postgres(url, ROWS)
        Big(url, Shape(ROWS)).create_stream_indexes()

    with million.shared(shared_folder, "postgres", make, lambda: postgres.drop(postgres_server, url)):
        query = "SELECT DISTINCT queue, type, attempts_left FROM dibs_tasks WHERE state = 'pending'"
        with psycopg.connect(url, autocommit=True) as connection:
            lines = connection.execute(query).fetchall()
        yield Big(url, Shape(ROWS), lines)


def remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
