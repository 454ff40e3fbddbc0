"""A finalizer runs after success, after a failure or always; its workflow reaches its final state once in any case."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs import InvalidGraph, InvalidValue, NewTask, WorkflowFailed, WrongState, WrongWorkflowState
from dibs.model.execution import Execution
from tests.helpers.clients import AsyncAsSync, Clock, run
from tests.helpers.each import for_each
from tests.helpers.workflows import (
    BROKEN,
    claim,
    complete,
    drive,
    due,
    fail,
    finalize,
    finalize_due,
    inner,
    start,
    state,
    states,
    step,
    sub,
    task_of,
)

END = "(finalizer)"


def begin(app: Any, *steps: Any, when: str, **about: Any) -> int:
    """A new workflow with a finalizer of the type "end"."""
    return start(app, *steps, finalizer=NewTask("end", max_attempts=1), finalize_when=when, **about)


def execution(app: Any, workflow_id: int) -> Execution:
    """What the finalizer of the workflow is given."""
    return run(app, app._store.workflows.execution(app.get_workflow(workflow_id).finalizer_id))


def events(app: Any, task_id: int) -> list[str]:
    return [entry.event.value for entry in app.history(task_id)]


# Which ends


@pytest.mark.parametrize("when", ["success", "failure", "always"])
@pytest.mark.parametrize("ends", ["completed", "failed", "continued", "cancelled", "expired"])
def test_the_finalizer_runs_after_the_ends_that_it_names(app: Any, clock: Clock, when: str, ends: str) -> None:
    policy = "continue" if ends == "continued" else "fail"
    order = begin(app, step("a"), step("b", "a"), when=when, on_failure=policy, deadline=60)
    if ends == "cancelled":
        complete(app, order, "a")
        app.cancel_workflow(order)
    elif ends == "expired":
        clock.advance(61)
        app.upkeep()
    drive(app, {"a": BROKEN} if ends in {"failed", "continued"} else {})
    final = {"continued": "failed", "expired": "failed"}.get(ends, ends)
    assert state(app, order) == final
    runs = when == "always" or (when == "success") == (ends == "completed")
    assert states(app, order)[END] == ("completed" if runs else "cancelled")
    error = app.get_workflow(order).error
    assert (error is None) == (final != "failed")
    assert due(app) == []


def test_the_workflow_is_finalizing_with_its_error_until_the_finalizer_has_ended(app: Any) -> None:
    order = begin(app, step("a"), when="failure")
    fail(app, order, "a")
    assert finalize(app, order).action.value == "fail_workflow"
    workflow = app.get_workflow(order)
    assert (workflow.state.value, workflow.error.type, workflow.finished) == ("finalizing", "StepFailed", False)
    assert app.claim_finalization(order, "p2").reason.value == "already_claimed"
    complete(app, order, END)
    workflow = app.get_workflow(order)
    assert (workflow.state.value, workflow.error.type, workflow.finished) == ("failed", "StepFailed", True)


def test_a_finalizer_that_fails_after_a_failure_leaves_the_error_of_the_workflow(app: Any) -> None:
    order = begin(app, step("a"), when="always")
    fail(app, order, "a")
    finalize(app, order)
    fail(app, order, END, "could not clean up")
    assert "broken" in app.get_workflow(order).error.message
    assert [task.type for task in app.list_dead()] == ["end", "a"]


def test_a_finalizer_for_failures_that_fails_leaves_a_cancelled_workflow_cancelled(app: Any) -> None:
    order = begin(app, step("a"), when="failure")
    app.cancel_workflow(order)
    fail(app, order, END)
    assert state(app, order) == "cancelled"


def test_the_finalizer_of_a_cancelled_workflow_without_running_steps_begins_at_once(app: Any) -> None:
    order = begin(app, step("a"), when="always")
    assert app.cancel_workflow(order).state.value == "finalizing"
    complete(app, order, END)
    assert state(app, order) == "cancelled"


def test_a_finalizer_waits_for_the_steps_that_are_asked_to_stop(app: Any) -> None:
    order = begin(app, step("a"), when="failure")
    held = claim(app, order, "a")
    app.cancel_workflow(order)
    assert states(app, order)[END] == "blocked"
    app.finish([(held, dibs.Cancelled())])
    finalize_due(app)
    assert states(app, order) == {"a": "cancelled", END: "pending"}


def test_a_workflow_without_steps_can_have_a_finalizer_for_failures(app: Any) -> None:
    order = begin(app, when="failure")
    finalize_due(app)
    assert (state(app, order), states(app, order)) == ("completed", {END: "cancelled"})


# While the finalizer runs


def test_a_cancellation_or_deadline_does_not_stop_a_finalizer_that_runs_after_failures_too(
    app: Any, clock: Clock
) -> None:
    order = begin(app, step("a"), when="always", deadline=60)
    complete(app, order, "a")
    finalize(app, order)
    held = claim(app, order, END)
    with pytest.raises(WrongWorkflowState, match="cannot be cancelled") as refused:
        app.cancel_workflow(order)
    assert f"cancel task {held.task_id}" in refused.value.hint
    clock.advance(59)
    app.renew(held)
    clock.advance(2)
    app.upkeep()
    assert not app.get(held.task_id).cancel_requested
    app.complete(held)
    assert state(app, order) == "completed"


def test_cancelling_the_finalizer_ends_the_workflow_as_its_steps_did(app: Any) -> None:
    failed = begin(app, step("a"), when="failure")
    app.cancel(task_of(app, failed, END))
    fail(app, failed, "a")
    finalize_due(app)
    assert (state(app, failed), app.get_workflow(failed).error.type) == ("failed", "StepFailed")

    running = begin(app, step("a"), when="failure")
    fail(app, running, "a")
    finalize(app, running)
    app.cancel(task_of(app, running, END))
    assert (state(app, running), app.get_workflow(running).error.type) == ("failed", "StepFailed")

    unneeded = begin(app, step("a"), when="failure")
    app.cancel(task_of(app, unneeded, END))
    complete(app, unneeded, "a")
    finalize_due(app)
    assert state(app, unneeded) == "completed"


def test_a_step_cannot_be_retried_while_the_finalizer_runs(app: Any) -> None:
    order = begin(app, step("a"), step("b"), when="failure", on_failure="continue")
    fail(app, order, "a")
    complete(app, order, "b")
    finalize(app, order)
    with pytest.raises(WrongState, match="stopping"):
        app.retry(task_of(app, order, "a"))
    with pytest.raises(WrongWorkflowState):
        app.retry_workflow(order)
    complete(app, order, END)
    assert app.retry(task_of(app, order, "a")).state.value == "pending"


# Retry


@pytest.mark.parametrize("when", ["failure", "always"])
def test_a_retried_workflow_has_another_finalizer_for_its_next_end(app: Any, when: str) -> None:
    order = begin(app, step("a"), when=when)
    fail(app, order, "a")
    finalize_due(app)
    complete(app, order, END, "first")
    first = app.get_workflow(order).finalizer_id
    app.retry_workflow(order)
    second = app.get_workflow(order).finalizer_id
    assert first != second
    assert (app.get(first).state.value, app.get(first).result) == ("completed", "first")
    old, new = app.get(first), app.get(second)
    assert (old.type, old.queue, old.max_attempts, old.params) == (new.type, new.queue, new.max_attempts, new.params)
    assert states(app, order) == {"a": "pending", f"(finalizer, task {first})": "completed", END: "blocked"}
    drive(app)
    assert state(app, order) == "completed"
    assert app.get(second).state.value == ("completed" if when == "always" else "cancelled")
    assert execution(app, order).completed == ["a"]


def test_a_finalizer_that_did_not_run_or_failed_is_the_same_task_after_a_retry(app: Any) -> None:
    skipped = begin(app, step("a"), when="success")
    fail(app, skipped, "a")
    finalize_due(app)
    failed = begin(app, step("a"), when="failure")
    fail(app, failed, "a")
    finalize_due(app)
    fail(app, failed, END)
    for order in (skipped, failed):
        before = app.get_workflow(order).finalizer_id
        app.retry_workflow(order)
        assert app.get_workflow(order).finalizer_id == before
        assert app.get(before).state.value == "blocked"


def test_retrying_a_failed_step_renews_the_finalizer_of_its_workflow_too(app: Any) -> None:
    order = begin(app, step("a"), when="always")
    fail(app, order, "a")
    finalize_due(app)
    complete(app, order, END)
    app.retry(task_of(app, order, "a"))
    drive(app)
    assert state(app, order) == "completed"
    assert list(states(app, order).values()) == ["completed"] * 3


# Sub-workflows


def test_a_sub_workflow_runs_its_finalizer_when_the_outer_workflow_is_cancelled(app: Any) -> None:
    order = start(app, sub("in", step("a"), finalizer=NewTask("end"), finalize_when="always"), step("z"))
    held = claim(app, order, "z")
    inside = inner(app, order, "in")
    app.cancel_workflow(order)
    app.finish([(held, dibs.Cancelled())])
    finalize_due(app)
    assert (state(app, inside), state(app, order)) == ("finalizing", "running")
    complete(app, inside, END)
    finalize_due(app)
    assert (state(app, inside), state(app, order)) == ("cancelled", "cancelled")


def test_a_sub_workflow_that_never_began_has_no_finalizer_to_run(app: Any) -> None:
    order = start(app, step("a"), sub("in", step("b"), after=["a"], finalizer=NewTask("end"), finalize_when="always"))
    inside = inner(app, order, "in")
    fail(app, order, "a")
    finalize_due(app)
    assert (state(app, inside), states(app, inside)) == ("cancelled", {"b": "cancelled", END: "cancelled"})


def test_the_result_of_a_sub_workflow_whose_finalizer_did_not_run_is_that_of_its_last_steps(app: Any) -> None:
    order = start(app, sub("in", step("a"), finalizer=NewTask("end"), finalize_when="failure"))
    drive(app)
    assert app.get(task_of(app, order, "in")).result == {"a": "a"}


# What the finalizer reads


def test_the_finalizer_is_given_what_completed_and_what_failed(app: Any) -> None:
    order = begin(
        app,
        step("ok"),
        step("bad"),
        step("soft", on_failure="ignore"),
        step("held"),
        step("behind", "bad"),
        when="always",
        on_failure="continue",
    )
    complete(app, order, "ok")
    fail(app, order, "soft", "not needed")
    fail(app, order, "bad")
    held = claim(app, order, "held")
    app.cancel(held.task_id)
    app.finish([(held, dibs.Cancelled())])
    finalize_due(app)
    given = execution(app, order)
    assert (given.workflow_id, given.name, given.state.value) == (order, "order", "failed")
    assert given.completed == ["ok"]
    assert {name: error.message for name, error in given.failed.items()} == {"bad": "broken"}
    assert {name: error.message for name, error in given.ignored.items()} == {"soft": "not needed"}
    assert (given.cancelled, given.skipped) == (["held"], ["behind"])
    assert given.error is not None
    assert "bad" in given.error.message
    assert END not in [each.name for each in given.steps]


def test_only_a_step_has_an_execution(app: Any) -> None:
    task = app.enqueue("alone")
    with pytest.raises(WrongState, match="not a step"):
        run(app, app._store.workflows.execution(task.id))
    with pytest.raises(dibs.TaskNotFound):
        run(app, app._store.workflows.execution(10**9))


# Results


def test_the_result_of_a_workflow_is_that_of_its_finalizer_or_of_its_steps_by_name(app: Any) -> None:
    finalized = begin(app, step("a"), when="always")
    plain = start(app, step("a"), step("b", "a"), step("soft", on_failure="ignore"))
    unneeded = begin(app, step("a"), when="failure")
    drive(app, {"soft": BROKEN})
    assert app.workflow_result(finalized) == "end"
    assert app.workflow_result(plain) == {"a": "a", "b": "b", "soft": None}
    assert app.workflow_result(unneeded) == {"a": "a"}


def test_the_result_of_a_failed_workflow_is_an_error_that_names_what_failed(app: Any) -> None:
    order = begin(app, step("a"), step("b", "a"), when="always")
    drive(app, {"a": BROKEN})
    task_id = task_of(app, order, "a")
    message = rf"Workflow {order} \(order\) failed: step 'a' \(task {task_id}\): Error: broken"
    with pytest.raises(WorkflowFailed, match=message) as raised:
        app.workflow_result(order)
    assert raised.value.workflow_id == order
    assert list(raised.value.execution.failed) == ["a"]
    assert raised.value.execution.skipped == ["b"]
    cancelled = start(app, step("a"))
    app.cancel_workflow(cancelled)
    with pytest.raises(WorkflowFailed, match="was cancelled"):
        app.workflow_result(cancelled)
    with pytest.raises(dibs.WaitTimeout):
        app.workflow_result(start(app, step("a")), timeout=0.01)


def test_a_builder_sets_the_finalizer_waits_and_reads_the_result(app: Any) -> None:
    flow = build(app)
    drive(app)
    wait, result = flow.wait(5), flow.result(5)
    if isinstance(app, AsyncAsSync):
        wait, result = app.loop.run(wait), app.loop.run(result)
    assert (wait.state.value, wait.finalize_when.value, result) == ("completed", "always", "end")
    assert app.get_workflow(flow.id).finished


def build(app: Any) -> Any:
    """A stored workflow with a finalizer that always runs."""

    async def build_async() -> Any:
        async with app.app.workflow("w") as flow:
            flow.step("a")
            flow.finalize("end", when="always", to="ops")
        return flow

    if isinstance(app, AsyncAsSync):
        return app.loop.run(build_async())
    with app.workflow("w") as flow:
        flow.step("a")
        flow.finalize("end", when="always", to="ops")
    return flow


# Explained, and refused


def test_the_explanation_of_a_finalizer_says_when_it_runs_and_why_it_did_not(app: Any) -> None:
    order = begin(app, step("a"), when="failure")
    finalizer = task_of(app, order, END)
    assert "if the workflow fails or is cancelled" in app.explain(finalizer).reasons[0].message
    complete(app, order, "a")
    finalize_due(app)
    assert "runs only after a failure" in app.explain(finalizer).reasons[0].message
    assert events(app, finalizer) == ["enqueued", "cancelled"]
    failed = begin(app, step("a"), when="success")
    fail(app, failed, "a")
    finalize_due(app)
    assert "step 'a'" in app.explain(task_of(app, failed, END)).reasons[0].message


def test_the_time_of_the_finalizer_is_a_part_of_the_graph_of_a_key(app: Any) -> None:
    first = begin(app, step("a"), when="always", key="k")
    assert begin(app, step("a"), when="always", key="k") == first
    assert app.get_workflow(first).finalize_when.value == "always"
    with pytest.raises(dibs.KeyConflict):
        begin(app, step("a"), when="failure", key="k")


@for_each("when", ["never", "", None, 1])
def test_another_time_for_the_finalizer_is_refused(when: Any) -> None:
    with pytest.raises(InvalidValue, match="when"):
        dibs.NewWorkflow(name="w", finalize_when=when)


@for_each("name", ["(finalizer)", "(finalizer, task 7)", "(finalizer"])
def test_the_names_of_finalizers_are_reserved(name: str) -> None:
    with pytest.raises(InvalidGraph, match="reserved"):
        step(name)
