"""A step that was not started by its expiry counts as failed for its workflow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dibs import NewStep, NewTask, NewWorkflow, State
from tests.helpers.clients import Clock
from tests.helpers.tasks import moment
from tests.helpers.workflows import (
    claim,
    complete,
    due,
    finalize,
    finalize_due,
    start,
    state,
    states,
    step,
    sub,
    task_of,
)


def expire(app: Any, clock: Clock, seconds: float = 10) -> int:
    clock.advance(seconds)
    expired: int = app.upkeep().expired
    return expired


def test_an_expired_step_fails_its_workflow_which_names_it(app: Any, clock: Clock) -> None:
    order = start(app, step("a", expires_in=10), step("b", "a"), step("later", delay=60))
    assert expire(app, clock) == 1
    assert states(app, order) == {"a": "cancelled", "b": "cancelled", "later": "cancelled"}
    workflow = app.get_workflow(order)
    assert (workflow.state, workflow.error.type) == ("failed", "StepFailed")
    assert (f"task {task_of(app, order, 'a')}" in workflow.error.message, "TaskExpired" in workflow.error.message) == (
        True,
        True,
    )
    assert app.get(task_of(app, order, "a")).expired
    assert not app.get(task_of(app, order, "b")).expired
    assert "expired" in str(app.explain(task_of(app, order, "b")))


@pytest.mark.parametrize(
    ("policy", "ended", "whole"),
    [
        ("fail", {"a": "cancelled", "b": "cancelled", "c": "cancelled"}, "failed"),
        ("continue", {"a": "cancelled", "b": "cancelled", "c": "completed"}, "failed"),
        ("ignore", {"a": "cancelled", "b": "completed", "c": "completed"}, "completed"),
    ],
)
def test_the_failure_policy_applies_to_an_expired_step(
    app: Any, clock: Clock, policy: str, ended: dict[str, str], whole: str
) -> None:
    order = start(app, step("a", expires_in=10, on_failure=policy), step("b", "a"), step("c"))
    assert expire(app, clock) == 1
    for name in ("c", "b"):
        if states(app, order)[name] == "pending":
            complete(app, order, name)
    finalize_due(app)
    assert (states(app, order), state(app, order)) == (ended, whole)


def test_the_seconds_of_a_step_count_from_the_end_of_its_parents(app: Any, clock: Clock) -> None:
    order = start(app, step("a"), step("b", "a", expires_in=10, delay=5))
    assert expire(app, clock, 3600) == 0
    complete(app, order, "a")
    assert app.get(task_of(app, order, "b")).expires_at == moment(clock) + timedelta(seconds=10)
    clock.advance(9)
    app.upkeep()
    assert states(app, order)["b"] == "pending"
    assert expire(app, clock, 1) == 1
    assert state(app, order) == "failed"


def test_a_blocked_step_expires_at_its_time(app: Any, clock: Clock) -> None:
    order = start(
        app, step("a"), step("b", "a", expires_at=moment(clock) + timedelta(seconds=10)), on_failure="continue"
    )
    assert expire(app, clock) == 1
    assert states(app, order) == {"a": "pending", "b": "cancelled"}
    complete(app, order, "a")
    assert finalize(app, order).state == "failed"


def test_a_step_of_a_sub_workflow_that_has_not_begun_expires_at_its_time(app: Any, clock: Clock) -> None:
    late = step("late", expires_at=moment(clock) + timedelta(seconds=10), on_failure="ignore")
    order = start(app, step("a"), sub("inner", late, step("last", "late"), after=["a"]))
    assert expire(app, clock) == 1
    complete(app, order, "a")
    assert app.claim("worker-1").task.type == "last"


def test_a_step_that_was_started_in_time_does_not_expire(app: Any, clock: Clock) -> None:
    order = start(app, step("a", expires_in=10))
    held = claim(app, order, "a")
    assert expire(app, clock) == 0
    assert app.complete(held).state is State.COMPLETED
    assert due(app) == [order]


def test_the_expiry_of_a_step_in_seconds_begins_again_when_its_workflow_is_retried(app: Any, clock: Clock) -> None:
    order = start(
        app,
        step("a", expires_in=10),
        step("b", expires_at=moment(clock) + timedelta(seconds=10)),
        on_failure="continue",
    )
    assert expire(app, clock) == 2
    app.retry_workflow(order)
    again, free = (app.get(task_of(app, order, name)) for name in "ab")
    assert (again.state, again.expires_at) == (State.PENDING, moment(clock) + timedelta(seconds=10))
    assert (free.state, free.expires_at) == (State.PENDING, None)
    assert expire(app, clock) == 1
    complete(app, order, "b")
    assert state(app, order) in ("running", "failed")


def test_a_finalizer_that_was_not_started_in_time_fails_its_workflow(app: Any, clock: Clock) -> None:
    last = NewTask("last", expires_in=10)
    order = app.start_workflow(
        NewWorkflow(name="order", steps=[NewStep(name="a", task=NewTask("a"))], finalizer=last)
    ).id
    complete(app, order, "a")
    finalize_due(app)
    assert state(app, order) == "finalizing"
    assert expire(app, clock) == 1
    workflow = app.get_workflow(order)
    assert (workflow.state, workflow.error.type) == ("failed", "TaskExpired")


def test_two_workflows_with_the_same_key_and_another_expiry_differ(app: Any) -> None:
    from dibs import KeyConflict

    start(app, step("a", expires_in=10), key="one")
    with pytest.raises(KeyConflict):
        start(app, step("a", expires_in=11), key="one")
