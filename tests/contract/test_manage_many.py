"""Cancel and retry many tasks in one transaction: each as by a single call; tasks that cannot be moved are left out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dibs import Completed, InvalidValue, NewTask, State
from dibs.observe.verify import verify
from tests.helpers.clients import Clock, run
from tests.helpers.tables import read
from tests.helpers.tasks import STATES, dead, events, moment, task_in
from tests.helpers.workflows import (
    DIAMOND,
    complete,
    due,
    fail,
    finalize,
    finalize_due,
    start,
    state,
    states,
    step,
    sub,
    task_of,
)

pytestmark = pytest.mark.database("only a server asks for these, and it has a database")


def cancel(app: Any, ids: Any, only: Any = None) -> int:
    moved: int = run(app, app._store.tasks.cancel_many(ids, only))
    return moved


def retry(app: Any, ids: Any, only: Any = None) -> int:
    moved: int = run(app, app._store.tasks.retry_many(ids, only))
    return moved


def states_of(app: Any, ids: list[int]) -> list[str]:
    return [app.get(task_id).state.value for task_id in ids]


# Cancel


def test_a_task_that_left_the_requested_state_is_left_alone(app: Any) -> None:
    ids = [task_in(app, each).id for each in STATES]
    before = dict(zip(ids, states_of(app, ids), strict=True))
    assert run(app, app._store.tasks.cancel_many(ids, state="pending")) == 1
    assert run(app, app._store.tasks.retry_many(ids, state="failed")) == 1
    after = dict(zip(ids, states_of(app, ids), strict=True))
    assert {before[each]: after[each] for each in ids if before[each] != after[each]} == {
        "pending": "cancelled",
        "failed": "pending",
    }
    assert not any(app.get(each).cancel_requested for each in ids if before[each] == "claimed")


def test_waiting_tasks_are_cancelled_running_ones_get_a_cancel_request_and_finished_ones_are_left_out(
    app: Any, clock: Clock
) -> None:
    tasks = {each: task_in(app, each) for each in STATES}
    assert cancel(app, [task.id for task in tasks.values()]) == 3
    for each in ("scheduled", "pending"):
        task = app.get(tasks[each].id)
        assert (task.state, task.finished_at, task.cancel_requested) == (State.CANCELLED, moment(clock), True)
        assert events(app, task.id) == ["enqueued", "cancelled"]
    running = app.get(tasks["claimed"].id)
    assert (running.state, running.cancel_requested) == (State.CLAIMED, True)
    assert events(app, running.id)[-1] == "cancel_requested"
    for each in ("completed", "failed", "cancelled"):
        assert app.get(tasks[each].id) == tasks[each]


def test_a_repeated_call_moves_nothing(app: Any, url: str) -> None:
    ids = [task_in(app, each).id for each in STATES]
    cancel(app, ids)
    before = read(url)
    assert cancel(app, ids) == 0
    assert read(url) == before


def test_the_history_has_the_signature_and_the_former_state(app: Any) -> None:
    task = app.enqueue("resize", delay=5)
    run(app, app._store.tasks.cancel_many([task.id]), by="key-7")
    entry = app.history(task.id)[-1]
    assert (entry.from_state, entry.to_state, entry.by) == (State.SCHEDULED, State.CANCELLED, "key-7")


# Retry


def test_failed_cancelled_and_scheduled_tasks_are_retried_with_all_their_attempts(app: Any, clock: Clock) -> None:
    tasks = {each: task_in(app, each) for each in STATES}
    clock.advance(10)
    assert retry(app, [task.id for task in tasks.values()]) == 3
    for each in ("failed", "cancelled", "scheduled"):
        task = app.get(tasks[each].id)
        assert (task.state, task.attempts, task.run_at) == (State.PENDING, 0, moment(clock))
        assert (task.finished_at, task.cancel_requested, task.token) == (None, False, tasks[each].token)
        assert (task.worker_id, task.claimed_at) == (None, None)
        assert events(app, task.id)[-1] == "retried"
    for each in ("pending", "claimed", "completed"):
        assert app.get(tasks[each].id) == tasks[each]
    assert len(app.claim_many("worker-2", 10)) == 4


def test_retried_tasks_can_be_claimed_in_every_order(app: Any) -> None:
    ids = dead(app, 3)
    retry(app, ids)
    for order in ("random", "weighted", "priority"):
        assert app.claim("worker-1", order=order).task_id in ids


# Which


def test_tasks_that_do_not_exist_and_repeated_ids_are_left_out(app: Any) -> None:
    task = app.enqueue("resize")
    assert cancel(app, [404, task.id, task.id, 2**63 - 1]) == 1
    assert retry(app, (task.id, 404)) == 1
    assert (cancel(app, []), retry(app, [])) == (0, 0)


def test_tasks_of_other_queues_are_left_out(app: Any) -> None:
    ours, theirs = (app.enqueue("resize", queue=queue).id for queue in ("mail", "media"))
    assert cancel(app, [ours, theirs], ["mail"]) == 1
    assert states_of(app, [ours, theirs]) == ["cancelled", "pending"]
    app.cancel(theirs)
    assert retry(app, [ours, theirs], ["media"]) == 1
    assert states_of(app, [ours, theirs]) == ["cancelled", "pending"]


def test_five_hundred_tasks_move_in_one_call_and_more_are_refused(app: Any) -> None:
    ids = [task.id for task in app.enqueue_many([NewTask("resize") for _ in range(501)])]
    for many in (app._store.tasks.cancel_many, app._store.tasks.retry_many):
        with pytest.raises(InvalidValue, match="501 tasks"):
            many(ids)
    assert cancel(app, ids[:500]) == 500
    assert retry(app, ids[:500]) == 500
    assert app.stats().depth == {"pending": 501}
    assert verify(app.all_history()).violations == []


@pytest.mark.parametrize("ids", [[-1], ["7"], [True], [2**63], [None]])
def test_malformed_ids_are_refused(app: Any, ids: Any) -> None:
    for many in (app._store.tasks.cancel_many, app._store.tasks.retry_many):
        with pytest.raises(InvalidValue):
            many(ids)


def test_waiting_claims_are_woken_only_if_a_task_moved(app: Any) -> None:
    for many in (app._store.tasks.cancel_many, app._store.tasks.retry_many):
        assert [many([1]).should_wake(moved) for moved in (0, 1)] == [False, True]


# Steps


def test_a_step_cancelled_in_a_batch_ends_its_workflow(app: Any) -> None:
    workflow_id = start(app, *DIAMOND)
    plain = app.enqueue("resize").id
    assert cancel(app, [plain, task_of(app, workflow_id, "fetch"), task_of(app, workflow_id, "merge")]) == 3
    assert set(states(app, workflow_id).values()) == {"cancelled"}
    finalize(app, workflow_id)
    assert state(app, workflow_id) == "failed"


def test_a_retried_step_continues_its_workflow(app: Any) -> None:
    workflow_id = start(app, *DIAMOND)
    fail(app, workflow_id, "fetch")
    finalize(app, workflow_id)
    assert state(app, workflow_id) == "failed"
    [plain] = dead(app, 1)
    assert retry(app, [plain, task_of(app, workflow_id, "fetch"), task_of(app, workflow_id, "left")]) == 3
    assert state(app, workflow_id) == "running"
    for name in ("fetch", "left", "right", "merge"):
        complete(app, workflow_id, name)
    finalize(app, workflow_id)
    assert state(app, workflow_id) == "completed"


def test_a_step_whose_failure_was_ignored_is_left_out(app: Any) -> None:
    workflow_id = start(app, step("fetch", on_failure="ignore"), step("left", "fetch"))
    fail(app, workflow_id, "fetch")
    assert retry(app, [task_of(app, workflow_id, "fetch")]) == 0
    assert states(app, workflow_id) == {"fetch": "failed", "left": "pending"}


def test_a_step_that_is_a_sub_workflow_is_left_out_and_other_steps_are_not(app: Any) -> None:
    workflow_id = start(app, sub("inner", step("a")))
    plain = app.enqueue("resize").id
    assert cancel(app, [task_of(app, workflow_id, "inner"), plain]) == 1
    assert states(app, workflow_id) == {"inner": "claimed"}


def test_a_step_whose_workflow_has_other_queues_is_not_retried_for_a_limited_caller(app: Any) -> None:
    workflow_id = start(app, step("a", queue="mail"), step("b", "a", queue="media"))
    fail(app, workflow_id, "a")
    finalize(app, workflow_id)
    failed = task_of(app, workflow_id, "a")
    assert retry(app, [failed], ["mail"]) == 0
    assert retry(app, [failed], ["mail", "media"]) == 1


# Many at once


@pytest.mark.timeout(120)
def test_concurrent_cancels_and_retries_of_the_same_tasks_keep_the_store_consistent(
    url: str, open_app: Callable[..., Any]
) -> None:
    apps = [open_app(url) for _ in range(4)]
    plain = [task.id for task in apps[0].enqueue_many([NewTask("resize") for _ in range(30)])]
    flows = [start(apps[0], *DIAMOND, name=f"flow-{n}") for n in range(5)]
    ids = plain + [each.task_id for flow in flows for each in apps[0].steps(flow)]
    with ThreadPoolExecutor(len(apps)) as threads:
        list(threads.map(lambda number: play(apps[number], number, ids), range(len(apps))))
    assert verify(apps[0].all_history(), tasks=apps[0].list_tasks(limit=1000)).violations == []
    assert sum(apps[0].stats().depth.values()) == len(ids)
    finalize_due(apps[0])
    assert due(apps[0]) == []


def play(app: Any, number: int, ids: list[int]) -> None:
    """Cancel, retry, and complete what there is, by turns."""
    for turn in range(6):
        chosen = ids[number % 3 :: 2] if turn % 2 else ids[:: -1 - number % 2]
        (cancel if (turn + number) % 2 else retry)(app, chosen)
        app.finish([(claim, Completed()) for claim in app.claim_many(f"worker-{number}", 5)])
