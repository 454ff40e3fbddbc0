"""Worker records: which workers are active, stale or gone, and which tasks each holds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dibs
from dibs import NewTask, WorkerInfo, WorkerState
from tests.helpers.clients import Clock
from tests.helpers.tasks import moment

STALE_AFTER = 300.0


def known(app: Any) -> dict[tuple[str, str], WorkerInfo]:
    return {(worker.id, worker.incarnation): worker for worker in app.workers()}


def test_a_new_store_has_no_workers(app: Any) -> None:
    assert app.workers() == []


def test_a_heartbeat_registers_the_worker(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1", incarnation="a1", queues=["slow"], types=["resize", "crop"], metadata={"host": "h1"})
    [worker] = app.workers()
    assert (worker.id, worker.incarnation, worker.state) == ("worker-1", "a1", WorkerState.ACTIVE)
    assert (worker.queues, worker.types, worker.metadata) == (["slow"], ["resize", "crop"], {"host": "h1"})
    assert (worker.started_at, worker.heartbeat_at, worker.stopped_at) == (moment(clock), moment(clock), None)
    assert worker.holds == []


def test_a_heartbeat_needs_no_metadata(app: Any) -> None:
    app.heartbeat("worker-1")
    [worker] = app.workers()
    assert (worker.incarnation, worker.queues, worker.types, worker.metadata) == ("", None, None, {})


def test_the_next_heartbeat_updates_the_record(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1", queues=["slow"], metadata={"load": 1})
    started = moment(clock)
    clock.advance(30)
    app.heartbeat("worker-1", types=["resize"], metadata={"load": 2})
    [worker] = app.workers()
    assert (worker.started_at, worker.heartbeat_at) == (started, moment(clock))
    assert (worker.queues, worker.types, worker.metadata) == (None, ["resize"], {"load": 2})


def test_a_worker_is_stale_once_a_newer_incarnation_started_until_its_next_heartbeat(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1", incarnation="killed")
    clock.advance(1)
    app.heartbeat("worker-1", incarnation="new")
    app.heartbeat("worker-2", incarnation="other")
    assert {each.incarnation: str(each.state) for each in app.workers()} == {
        "killed": "stale", "new": "active", "other": "active"
    }  # fmt: skip
    clock.advance(1)
    app.heartbeat("worker-1", incarnation="killed")
    assert {str(each.state) for each in app.workers()} == {"active"}


def test_a_worker_is_stale_after_five_minutes_without_heartbeat_and_active_after_the_next(
    app: Any, clock: Clock
) -> None:
    app.heartbeat("worker-1")
    clock.advance(STALE_AFTER - 0.000001)
    assert app.workers()[0].state is WorkerState.ACTIVE
    clock.advance(0.000001)
    assert app.workers()[0].state is WorkerState.STALE
    app.heartbeat("worker-1")
    assert app.workers()[0].state is WorkerState.ACTIVE


def test_a_worker_that_leaves_is_gone(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1")
    clock.advance(10)
    app.heartbeat("worker-1", leaving=True)
    [worker] = app.workers()
    assert (worker.state, worker.stopped_at) == (WorkerState.GONE, moment(clock))


def test_a_worker_that_left_stays_gone(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1", leaving=True)
    clock.advance(STALE_AFTER)
    assert app.workers()[0].state is WorkerState.GONE


def test_a_worker_that_left_and_returned_is_active(app: Any) -> None:
    app.heartbeat("worker-1", leaving=True)
    app.heartbeat("worker-1")
    [worker] = app.workers()
    assert (worker.state, worker.stopped_at) == (WorkerState.ACTIVE, None)


def test_a_reused_worker_id_keeps_the_records_of_both_incarnations(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1", incarnation="old", metadata={"pid": 1})
    clock.advance(STALE_AFTER)
    app.heartbeat("worker-1", incarnation="new", metadata={"pid": 2})
    workers = known(app)
    assert workers["worker-1", "old"].state is WorkerState.STALE
    assert workers["worker-1", "new"].state is WorkerState.ACTIVE
    assert [worker.metadata for worker in workers.values()] == [{"pid": 1}, {"pid": 2}]


def test_workers_are_listed_in_the_order_they_started(app: Any, clock: Clock) -> None:
    for name in ("zoe", "adam", "mia"):
        app.heartbeat(name)
        clock.advance(1)
    app.heartbeat("zoe")
    assert [worker.id for worker in app.workers()] == ["zoe", "adam", "mia"]


# What each holds


def test_a_worker_holds_the_tasks_it_claimed_until_they_are_finished(app: Any) -> None:
    app.heartbeat("worker-1", incarnation="a1")
    app.enqueue_many([NewTask("resize") for _ in range(3)])
    first, *rest = app.claim_many("worker-1", 3, incarnation="a1")
    assert app.workers()[0].holds == [first.task_id, *(claim.task_id for claim in rest)]
    app.complete(first)
    assert app.workers()[0].holds == [claim.task_id for claim in rest]


def test_each_incarnation_holds_its_own_tasks(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(2)])
    held = {}
    for incarnation in ("old", "new"):
        app.heartbeat("worker-1", incarnation=incarnation)
        held[incarnation] = app.claim("worker-1", incarnation=incarnation).task_id
        clock.advance(1)
    workers = known(app)
    assert {key: workers["worker-1", key].holds for key in held} == {key: [held[key]] for key in held}


@pytest.mark.parametrize("incarnations", [("a", "b"), ("b", "a")])
def test_a_claim_without_an_incarnation_belongs_to_the_newest_incarnation(
    app: Any, clock: Clock, incarnations: tuple[str, str]
) -> None:
    for incarnation in incarnations:
        app.heartbeat("worker-1", incarnation=incarnation)
        clock.advance(1)
    old, new = incarnations
    task = app.enqueue("resize")
    app.claim("worker-1")
    app.heartbeat("worker-1", incarnation=old)
    workers = known(app)
    assert (workers["worker-1", old].holds, workers["worker-1", new].holds) == ([], [task.id])


def test_a_worker_holds_a_task_that_it_claimed_by_id(app: Any) -> None:
    app.heartbeat("worker-1")
    task = app.enqueue("resize")
    app.claim_by_id(task.id, "worker-1")
    assert app.workers()[0].holds == [task.id]


def test_workers_do_not_hold_each_others_tasks(app: Any) -> None:
    app.heartbeat("worker-1")
    app.heartbeat("worker-2")
    task = app.enqueue("resize")
    app.claim("worker-2")
    assert {key[0]: worker.holds for key, worker in known(app).items()} == {"worker-1": [], "worker-2": [task.id]}


def test_a_recovered_task_is_no_longer_held(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1")
    app.enqueue("resize")
    app.claim("worker-1")
    clock.advance(60)
    app.recover()
    assert app.workers()[0].holds == []


def test_a_worker_that_left_with_a_claimed_task_still_shows_the_task(app: Any) -> None:
    app.heartbeat("worker-1")
    task = app.enqueue("resize")
    app.claim("worker-1")
    app.heartbeat("worker-1", leaving=True)
    assert app.workers()[0].holds == [task.id]


def test_a_claim_without_a_heartbeat_registers_no_worker(app: Any) -> None:
    app.enqueue("resize")
    app.claim("worker-1")
    assert app.workers() == []


# What each serves


@pytest.mark.parametrize(
    ("queues", "types", "serves"),
    [
        (None, None, True),
        (["slow"], None, True),
        (["fast", "slow"], ["resize"], True),
        (["fast"], None, False),
        (None, ["crop"], False),
        (["slow"], ["crop"], False),
    ],
)
def test_a_worker_record_lists_the_queues_and_types_it_serves(
    app: Any, queues: list[str] | None, types: list[str] | None, serves: bool
) -> None:
    app.heartbeat("worker-1", queues=queues, types=types)
    task = app.enqueue("resize", queue="slow")
    assert app.workers()[0].serves(task) is serves
    assert (app.claim("worker-1", queues=queues, types=types) is not None) is serves


# Heartbeats at once, and bad ones


def test_concurrent_heartbeats_of_one_worker_create_one_record(app: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: app.heartbeat("worker-1", metadata={"n": n}), range(16)))
    assert len(app.workers()) == 1


def test_a_malformed_worker_id_is_refused(app: Any) -> None:
    for name in ("", "a b", "a/b", "ü", "x" * 256, None, 7, "a\n"):
        with pytest.raises(dibs.InvalidValue):
            app.heartbeat(name)
    assert app.workers() == []


def test_metadata_that_is_not_json_is_refused(app: Any) -> None:
    for metadata in ({"x": float("nan")}, {"x": {1}}, {1: 2}, {"x": "\x00"}):
        with pytest.raises(dibs.InvalidValue):
            app.heartbeat("worker-1", metadata=metadata)
    assert app.workers() == []


def test_metadata_is_returned_as_it_was_sent(app: Any) -> None:
    metadata = {"host": "größe", "pid": 2**40, "tags": ["a", None, 1.5], "nested": {"deep": True}}
    app.heartbeat("worker-1", metadata=metadata)
    assert app.workers()[0].metadata == metadata


def test_heartbeats_write_no_history(app: Any) -> None:
    app.heartbeat("worker-1")
    assert app.all_history() == []
