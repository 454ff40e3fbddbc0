"""Changes of steps that have not started: what a step may change depends on what its workflow relies on."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import AlreadyStarted, Completed, State, TaskChange, WrongState
from tests.helpers.clients import Clock
from tests.helpers.workflows import DIAMOND, start, states, step, sub, task_of


def claim_and_complete(app: Any, name: str) -> None:
    app.complete(app.claim("worker-1", types=[name]))


def test_a_blocked_step_has_another_priority_params_and_tags_and_stays_blocked(app: Any) -> None:
    flow = start(app, *DIAMOND)
    merge = task_of(app, flow, "merge")
    changed = app.change(merge, priority=7, params={"a": 1}, tags=["x"])
    assert (changed.state, changed.priority, changed.params, changed.tags) == (State.BLOCKED, 7, {"a": 1}, ["x"])
    for name in ("fetch", "left", "right"):
        claim_and_complete(app, name)
    assert app.claim("worker-1", types=["merge"]).task.params == {"a": 1}
    assert [entry.event for entry in app.history(merge)] == ["enqueued", "changed", "promoted", "claimed"]


def test_the_due_time_of_a_blocked_step_is_fixed(app: Any) -> None:
    flow = start(app, *DIAMOND)
    merge = app.get(task_of(app, flow, "merge"))
    with pytest.raises(WrongState, match="cannot have another due time: it is blocked"):
        app.change(merge.id, delay=5, priority=7)
    assert app.get(merge.id) == merge


def test_a_step_that_waits_for_nothing_is_delayed_and_its_workflow_completes(app: Any, clock: Clock) -> None:
    flow = start(app, step("fetch"))
    assert app.change(task_of(app, flow, "fetch"), delay=60).state is State.SCHEDULED
    assert app.claim("worker-1") is None
    clock.advance(60)
    claim_and_complete(app, "fetch")
    app.upkeep()
    assert app.get_workflow(flow).state == "completed"


@pytest.mark.parametrize("name", ["fetch", "merge"])
def test_a_step_keeps_its_queue(app: Any, name: str) -> None:
    flow = start(app, *DIAMOND)
    before = app.get(task_of(app, flow, name))
    with pytest.raises(WrongState, match=f"cannot move to another queue: it is a step of workflow {flow}"):
        app.change(before.id, queue="mail")
    assert app.change(before.id, queue=before.queue) == before


def test_a_step_that_represents_a_workflow_is_not_changed(app: Any) -> None:
    flow = start(app, step("first"), sub("inner", step("deep"), after=["first"]))
    before = app.get(task_of(app, flow, "inner"))
    with pytest.raises(WrongState, match="it represents a workflow"):
        app.change(before.id, priority=3)
    assert app.get(before.id) == before


def test_a_claimed_step_is_not_changed(app: Any) -> None:
    flow = start(app, *DIAMOND)
    claim = app.claim("worker-1")
    with pytest.raises(AlreadyStarted):
        app.change(claim.task_id, params={"a": 1})
    [done] = app.finish([(claim, Completed())])
    assert done.state is State.COMPLETED
    assert states(app, flow)["left"] == "pending"


def test_many_steps_are_changed_as_far_as_each_allows(app: Any) -> None:
    start(app, *DIAMOND)
    assert app.change_matching(TaskChange(priority=3), state="blocked") == 3
    assert app.change_matching(TaskChange(priority=4, delay=5), queue="default") == 1
    assert app.change_matching(TaskChange(queue="mail"), queue="default") == 0
