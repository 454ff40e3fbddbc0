"""Promise 1, acknowledged means stored: a task that enqueue returned is in the store with all its options."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import dibs
from dibs import Backoff, Event, NewTask, State, Task
from dibs.model.checks import from_micros
from tests.helpers import tables
from tests.helpers.clients import Clock
from tests.helpers.retention import NOTHING, keep
from tests.helpers.tasks import events, moment

INDIA = timezone(timedelta(hours=5, minutes=30))
BEGINNING, END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


# What is stored


def test_a_new_task_is_pending_with_the_defaults(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize")
    assert task == Task(
        id=task.id,
        type="resize",
        queue="default",
        state=State.PENDING,
        params={},
        priority=0,
        attempts=0,
        max_attempts=3,
        token=0,
        created_at=moment(clock),
        run_at=moment(clock),
    )


def test_enqueue_returns_the_task_as_it_is_stored(app: Any, clock: Clock) -> None:
    task = app.enqueue(
        "resize",
        {"image": 7, "sizes": [1, 2.5, None, {"deep": True}]},
        queue="images",
        priority=-5,
        max_attempts=7,
        delay=12.345678,
        timeout=1.5,
        key="image-7",
    )
    assert app.get(task.id) == task
    assert (task.type, task.queue, task.priority, task.max_attempts) == ("resize", "images", -5, 7)
    assert task.params == {"image": 7, "sizes": [1, 2.5, None, {"deep": True}]}
    assert (task.timeout, task.key, task.deduplicated) == (1.5, "image-7", False)
    assert task.run_at == moment(clock) + timedelta(seconds=12.345678)


def test_the_claimed_task_has_the_params_and_options_that_were_enqueued(app: Any) -> None:
    task = app.enqueue("resize", {"image": 7}, queue="images", priority=9, max_attempts=2, timeout=0.25, key="image-7")
    claimed = app.claim("worker-1").task
    shown = ("id", "type", "queue", "params", "priority", "max_attempts", "timeout", "key", "created_at", "run_at")
    assert [getattr(claimed, name) for name in shown] == [getattr(task, name) for name in shown]


def test_the_largest_options_are_stored(app: Any) -> None:
    high = app.enqueue("resize", priority=2**31 - 1, max_attempts=1_000_000, timeout=100 * 365 * 24 * 3600)
    low = app.enqueue("resize", priority=-(2**31) + 1, max_attempts=1, timeout=0.001)
    assert app.get(high.id) == high
    assert app.get(low.id) == low
    assert [task.id for task in app.peek(2)] == [high.id, low.id]


def test_the_priority_decides_which_task_is_claimed_first(app: Any) -> None:
    low, high, middle = (app.enqueue("resize", priority=priority) for priority in (-1, 5, 0))
    assert [claim.task_id for claim in app.claim_many("worker-1", 3)] == [high.id, middle.id, low.id]


def test_max_attempts_decides_when_a_task_is_given_up(app: Any) -> None:
    app.enqueue("resize", max_attempts=2)
    states = [app.fail(app.claim("worker-1"), "no", retry_in=0).state for _ in range(2)]
    assert states == [State.PENDING, State.FAILED]


def test_the_backoff_decides_when_a_task_is_tried_again(app: Any, clock: Clock) -> None:
    app.enqueue("resize", backoff=Backoff(base=100, cap=100))
    again = app.fail(app.claim("worker-1"), "no").run_at
    assert timedelta(seconds=90) <= again - moment(clock) <= timedelta(seconds=110)


def test_changing_the_params_afterwards_does_not_change_the_task(app: Any) -> None:
    params = {"images": [7]}
    task = app.enqueue("resize", params)
    params["images"].append(8)
    assert task.params == {"images": [7]}
    assert app.get(task.id).params == {"images": [7]}


def test_the_history_begins_with_the_enqueue_and_its_signature(app: Any, clock: Clock) -> None:
    waiting = app.signed("alice").enqueue("resize")
    later = app.enqueue("resize", delay=5)
    first, second = app.history(waiting.id)[0], app.history(later.id)[0]
    assert (first.event, first.from_state, first.to_state) == (Event.ENQUEUED, None, State.PENDING)
    assert (first.token, first.worker_id, first.by, first.at) == (0, None, "alice", moment(clock))
    assert (second.event, second.to_state, second.by) == (Event.ENQUEUED, State.SCHEDULED, None)


def test_an_option_that_does_not_exist_is_refused(app: Any, url: str) -> None:
    with pytest.raises(TypeError, match="prio"):
        app.enqueue("resize", prio=3)
    assert app.list_tasks() == []


# Durable


def test_a_second_client_sees_the_task_and_can_claim_it(
    app: Any, url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    task = app.enqueue("resize", {"image": 7}, key="image-7")
    other = open_app(url, clock=clock)
    assert other.get(task.id) == task
    assert other.claim("worker-1").task_id == task.id


def test_a_task_outlives_the_client_that_enqueued_it(
    app: Any, url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    task = app.enqueue("resize", {"image": 7})
    app.close()
    assert open_app(url, clock=clock).get(task.id) == task


ENQUEUE_FOR_EVER = """
import dibs, itertools, sys
app = dibs.Dibs(sys.argv[1])
for n in itertools.count():
    tasks = app.enqueue_many([dibs.NewTask("resize", {"n": n, "part": part}) for part in range(3)])
    print(*[task.id for task in tasks], flush=True)
"""
ENQUEUE_FOR_EVER_ASYNC = """
import asyncio, dibs, itertools, sys
async def main():
    app = dibs.AsyncDibs(sys.argv[1])
    for n in itertools.count():
        tasks = await app.enqueue_many([dibs.NewTask("resize", {"n": n, "part": part}) for part in range(3)])
        print(*[task.id for task in tasks], flush=True)
asyncio.run(main())
"""


def test_what_was_acknowledged_survives_a_kill_of_its_process(
    url: str, mode: str, open_app: Callable[..., Any]
) -> None:
    program = ENQUEUE_FOR_EVER if mode == "sync" else ENQUEUE_FOR_EVER_ASYNC
    with subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(20)]
        process.kill()
        lines += process.stdout.readlines()
    batches = [[int(task_id) for task_id in line.split()] for line in lines if line.endswith("\n")]
    app = open_app(url)
    stored = [[app.get(task_id) for task_id in batch] for batch in batches]
    assert [[task.params for task in batch] for batch in stored] == [
        [{"n": n, "part": part} for part in range(3)] for n in range(len(batches))
    ]
    assert app.stats().depth["pending"] % 3 == 0, "a batch was stored in part"


# Many at once


def test_a_batch_is_stored_and_returned_in_its_order(app: Any) -> None:
    tasks = app.enqueue_many([NewTask("resize", {"n": n}, priority=n % 3) for n in range(1000)])
    assert [task.params["n"] for task in tasks] == list(range(1000))
    ids = [task.id for task in tasks]
    assert ids == sorted(set(ids))
    assert app.list_tasks(limit=1000) == tasks[::-1]
    assert [claim.task_id for claim in app.claim_many("worker-1", 1000, order="fifo")] == ids


def test_a_batch_mixes_keys_delays_queues_and_options(app: Any) -> None:
    tasks = app.enqueue_many(
        [
            NewTask("z", key="z"),
            NewTask("plain"),
            NewTask("a", {"n": 1}, key="a", delay=5),
            NewTask("far", queue="images", priority=3, timeout=9),
        ]
    )
    assert [task.type for task in tasks] == ["z", "plain", "a", "far"]
    assert [app.get(task.id) for task in tasks] == tasks
    assert [task.state for task in tasks] == [State.PENDING, State.PENDING, State.SCHEDULED, State.PENDING]


def test_an_empty_batch_stores_nothing(app: Any) -> None:
    assert app.enqueue_many([]) == []
    assert app.all_history() == []


def test_a_batch_may_be_any_iterable(app: Any) -> None:
    assert [task.params for task in app.enqueue_many(NewTask("resize", {"n": n}) for n in range(3))] == [
        {"n": 0},
        {"n": 1},
        {"n": 2},
    ]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_batch_with_one_bad_task_stores_none(app: Any, url: str, key: str | None) -> None:
    app.enqueue("before")
    before = tables.read(url)
    with pytest.raises(dibs.InvalidValue):
        app.enqueue_many([NewTask("resize"), NewTask("resize", key=key), NewTask("resize", {"bad": float("nan")})])
    assert tables.read(url) == before


def test_concurrent_enqueues_are_all_stored_under_different_ids(
    url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        tasks = list(pool.map(lambda n: apps[n % 2].enqueue("resize", {"n": n}), range(80)))
    assert len({task.id for task in tasks}) == 80
    assert {task.id: task.params["n"] for task in apps[0].list_tasks()} == {task.id: n for n, task in enumerate(tasks)}


# Registered types


def test_the_defaults_of_the_type_are_filled_in_and_the_version_of_the_type_is_stored(app: Any) -> None:
    app.register_type("resize", defaults={"width": 800, "format": "png"})
    task = app.enqueue("resize", {"image": 7, "width": 100})
    assert app.get(task.id) == task
    assert task.params == {"image": 7, "width": 100, "format": "png"}
    assert task.type_version == 1


def test_params_that_do_not_fit_the_schema_of_their_type_are_refused(app: Any) -> None:
    app.register_type("resize", {"type": "object", "properties": {"image": {"type": "integer"}}})
    with pytest.raises(dibs.SchemaViolation, match=r"params/image of 'resize' \(version 1\)"):
        app.enqueue_many([NewTask("resize", {"image": 7}), NewTask("resize", {"image": "seven"})])
    assert app.list_tasks() == []


# Later


def test_a_delayed_task_is_promoted_when_it_is_due_and_not_before(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", delay=10)
    assert (task.state, task.run_at) == (State.SCHEDULED, moment(clock) + timedelta(seconds=10))
    clock.advance(9.999999)
    assert (app.promote(), app.claim("worker-1")) == (0, None)
    clock.advance(0.000001)
    assert app.promote() == 1
    assert app.get(task.id).state is State.PENDING
    assert events(app, task.id) == ["enqueued", "promoted"]


def test_a_task_with_run_at_is_promoted_when_it_is_due_and_not_before(app: Any, clock: Clock) -> None:
    due = moment(clock) + timedelta(days=3, microseconds=7)
    task = app.enqueue("resize", run_at=due)
    assert (task.state, task.run_at) == (State.SCHEDULED, due)
    clock.now += 3 * 24 * 3600 * 1_000_000 + 6
    assert app.upkeep().promoted == 0
    clock.now += 1
    assert app.upkeep().promoted == 1
    assert app.get(task.id).state is State.PENDING


def test_a_claim_finds_a_due_task_without_any_upkeep(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", delay=10)
    assert app.claim("worker-1") is None
    clock.advance(10)
    assert app.claim("worker-1").task_id == task.id


def test_a_task_that_is_not_due_cannot_be_claimed_by_its_id(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", delay=10)
    with pytest.raises(dibs.NotClaimable, match="it is scheduled"):
        app.claim_by_id(task.id, "worker-1")
    clock.advance(10)
    assert app.claim_by_id(task.id, "worker-1").token == 1


def test_a_task_whose_time_is_past_is_pending_at_once(app: Any, clock: Clock) -> None:
    past = moment(clock) - timedelta(days=1000)
    tasks = [
        app.enqueue("resize", run_at=past),
        app.enqueue("resize", run_at=moment(clock)),
        app.enqueue("resize", delay=0),
    ]
    assert [task.state for task in tasks] == [State.PENDING] * 3
    assert [task.run_at for task in tasks] == [past, moment(clock), moment(clock)]
    assert [app.get(task.id) for task in tasks] == tasks


def test_a_microsecond_in_the_future_is_the_future(app: Any, clock: Clock) -> None:
    assert app.enqueue("resize", delay=0.000001).state is State.SCHEDULED
    assert app.enqueue("resize", run_at=moment(clock) + timedelta(microseconds=1)).state is State.SCHEDULED


def test_run_at_may_be_in_any_time_zone(app: Any, clock: Clock) -> None:
    due = moment(clock) + timedelta(hours=1)
    task = app.enqueue("resize", run_at=due.astimezone(INDIA))
    assert app.get(task.id).run_at == due
    assert app.get(task.id).run_at.utcoffset() == timedelta(0)
    clock.advance(3600)
    assert app.promote() == 1


def test_times_have_microseconds(app: Any, clock: Clock) -> None:
    clock.now = clock.now // 1_000_000 * 1_000_000 + 123_457
    task = app.enqueue("resize", delay=0.000011)
    assert task.created_at == from_micros(clock.now)
    assert (task.created_at.microsecond, task.run_at.microsecond) == (123_457, 123_468)
    assert app.get(task.id) == task


def test_without_a_clock_option_the_time_is_that_of_the_database(url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)
    before = datetime.now(UTC)
    tasks = [app.enqueue("resize") for _ in range(5)]
    assert all(before <= task.created_at <= datetime.now(UTC) for task in tasks)
    assert any(task.created_at.microsecond % 1000 for task in tasks)


@pytest.mark.parametrize("edge", [BEGINNING, END])
def test_the_first_and_the_last_time_of_the_calendar_can_be_stored(app: Any, edge: datetime) -> None:
    task = app.enqueue("resize", run_at=edge)
    assert app.get(task.id) == task
    assert task.run_at == edge


@pytest.mark.parametrize(("edge", "hours"), [(BEGINNING, 14), (END, -12)])
def test_a_time_beyond_the_calendar_is_refused_and_leaves_the_store_usable(
    app: Any, edge: datetime, hours: int
) -> None:
    with pytest.raises(dibs.InvalidValue, match="run_at"):
        app.enqueue("resize", run_at=edge.replace(tzinfo=timezone(timedelta(hours=hours))))
    task = app.enqueue("resize")
    assert app.list_tasks() == [task]
    assert app.claim("worker-1").task_id == task.id


# Ids


def test_the_id_of_a_pruned_task_is_not_used_again(
    app: Any, url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    ids = [task.id for task in app.enqueue_many([NewTask("resize") for _ in range(3)])]
    for claim in app.claim_many("worker-1", 3):
        app.complete(claim)
    keep(app, **NOTHING)
    app.prune()
    assert app.list_tasks() == []
    app.close()
    assert open_app(url, clock=clock).enqueue("resize").id > max(ids)


def test_ids_grow_also_where_a_batch_was_refused(app: Any) -> None:
    first = app.enqueue("resize", key="k")
    with pytest.raises(dibs.KeyConflict):
        app.enqueue_many([NewTask("resize"), NewTask("other", key="k")])
    assert app.enqueue("resize").id > first.id
