"""Failures: each policy has its effect, no step begins after the end, and a retry continues from the failure."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs import Completed, NewTask, State
from tests.helpers.clients import Clock
from tests.helpers.retention import keep
from tests.helpers.tasks import events, moment
from tests.helpers.workflows import (
    BROKEN,
    DIAMOND,
    WORKER,
    by_name,
    claim,
    complete,
    drive,
    due,
    fail,
    finalize,
    start,
    state,
    states,
    step,
    task_of,
)

CHAIN = (step("a"), step("b", "a"), step("c", "b"))


# The three policies


def test_a_failure_in_the_middle_fails_the_workflow_and_begins_nothing_more(app: Any) -> None:
    order = start(app, *CHAIN, step("apart"), step("later", delay=60))
    complete(app, order, "a")
    fail(app, order, "b")
    ended = {"a": "completed", "b": "failed", "c": "cancelled", "apart": "cancelled", "later": "cancelled"}
    assert states(app, order) == ended
    workflow = app.get_workflow(order)
    assert (workflow.state, workflow.stopping, workflow.failures, due(app)) == ("running", "failed", 4, [order])
    assert finalize(app, order).action == "fail_workflow"
    failed = app.get_workflow(order)
    assert (failed.state, failed.error.type) == ("failed", "StepFailed")
    assert failed.error.message == f"Step 'b' (task {task_of(app, order, 'b')}) failed: Error: broken"


def test_a_running_step_may_finish_when_another_step_fails(app: Any) -> None:
    order = start(app, step("a"), step("b"), step("c", "b"))
    held = claim(app, order, "b")
    fail(app, order, "a")
    assert (states(app, order)["b"], due(app)) == ("claimed", [])
    assert not app.get(held.task_id).cancel_requested
    assert app.complete(held).state is State.COMPLETED
    assert (states(app, order)["c"], due(app)) == ("cancelled", [order])
    assert finalize(app, order).state == "failed"


def test_with_policy_continue_steps_that_do_not_depend_on_the_failure_run(app: Any) -> None:
    order = start(app, *CHAIN, step("x"), step("y", "x"), on_failure="continue")
    assert drive(app, {"a": BROKEN}) == [["a", "x"], ["y"]]
    ended = {"a": "failed", "b": "cancelled", "c": "cancelled", "x": "completed", "y": "completed"}
    assert (states(app, order), state(app, order)) == (ended, "failed")


def test_with_policy_continue_steps_that_depend_on_the_failure_stay_blocked_until_the_end(app: Any) -> None:
    order = start(app, step("a"), step("b", "a"), step("x"), on_failure="continue")
    fail(app, order, "a")
    assert (states(app, order)["b"], app.get_workflow(order).stopping, due(app)) == ("blocked", None, [])
    complete(app, order, "x")
    assert (states(app, order)["b"], due(app)) == ("blocked", [order])


def test_with_policy_ignore_a_failed_step_counts_as_completed(app: Any) -> None:
    order = start(app, step("a", on_failure="ignore"), step("b", "a"))
    assert drive(app, {"a": BROKEN}) == [["a"], ["b"]]
    assert (states(app, order), state(app, order)) == ({"a": "failed", "b": "completed"}, "completed")
    assert by_name(app, order)["a"].passed is True


def test_the_children_of_an_ignored_failure_see_the_error(app: Any) -> None:
    order = start(app, step("a", on_failure="ignore"), step("x"), step("b", "a", "x"))
    fail(app, order, "a", "no luck")
    complete(app, order, "x", 7)
    [failed, done] = app.results(task_of(app, order, "b"))
    assert (failed.name, failed.state, failed.result, failed.error.message) == ("a", "failed", None, "no luck")
    assert (done.name, done.result, done.error) == ("x", 7, None)


def test_the_policy_of_a_step_precedes_that_of_its_workflow(app: Any) -> None:
    order = start(app, step("a"), step("b", "a"), step("c", on_failure="fail"), on_failure="ignore")
    fail(app, order, "a")
    assert states(app, order)["b"] == "pending"
    fail(app, order, "c")
    assert states(app, order)["b"] == "cancelled"


def test_the_first_failure_is_the_reason_of_the_failed_workflow(app: Any, clock: Clock) -> None:
    order = start(app, step("a"), step("b"), on_failure="continue")
    held = claim(app, order, "a")
    fail(app, order, "b", "the first")
    clock.advance(1)
    app.fail(held, "the second", permanent=True)
    finalize(app, order)
    assert "'b'" in app.get_workflow(order).error.message
    assert "the first" in app.get_workflow(order).error.message


# Attempts


def test_a_step_is_retried_before_it_fails(app: Any, clock: Clock) -> None:
    order = start(app, step("a", max_attempts=2), step("b", "a"))
    app.fail(claim(app, order, "a"), "not yet", retry_in=5)
    assert (states(app, order), due(app)) == ({"a": "scheduled", "b": "blocked"}, [])
    clock.advance(5)
    app.fail(app.claim(WORKER), "never")
    assert (states(app, order), due(app)) == ({"a": "failed", "b": "cancelled"}, [order])


def test_a_step_with_attempts_left_is_recovered_after_a_lost_lease(app: Any, clock: Clock) -> None:
    order = start(app, step("a", max_attempts=2), step("b", "a"))
    claim(app, order, "a")
    clock.advance(61)
    assert app.recover() == 1
    assert drive(app) == [["a"], ["b"]]
    assert state(app, order) == "completed"


def test_a_lost_lease_of_the_last_attempt_fails_the_workflow_at_the_next_upkeep(app: Any, clock: Clock) -> None:
    order = start(app, step("a", max_attempts=1), step("b", "a"), step("x", max_attempts=1, on_failure="ignore"))
    claim(app, order, "a")
    claim(app, order, "x")
    clock.advance(61)
    done = app.upkeep()
    assert (done.recovered, done.finalized) == (2, 1)
    assert (states(app, order), state(app, order)) == ({"a": "failed", "b": "cancelled", "x": "failed"}, "failed")
    assert "LeaseLost" in app.get_workflow(order).error.message


def test_a_claim_does_not_recover_a_step_on_its_last_attempt(app: Any, clock: Clock) -> None:
    order = start(app, step("a", max_attempts=1), step("b", "a"))
    held = claim(app, order, "a")
    clock.advance(61)
    assert app.claim("worker-2") is None
    assert states(app, order) == {
        "a": "claimed",
        "b": "blocked",
    }  # the workflow has not been advanced, so nothing is lost
    app.complete(held)
    assert states(app, order) == {"a": "completed", "b": "pending"}


def test_a_lost_lease_of_a_finalizer_fails_the_workflow(app: Any, clock: Clock) -> None:
    order = start(app, finalizer=NewTask("report", max_attempts=1))
    finalize(app, order)
    app.claim(WORKER)
    clock.advance(61)
    app.recover()
    assert (state(app, order), app.get_workflow(order).error.type) == ("failed", "LeaseLost")


def test_a_released_step_does_not_affect_its_workflow(app: Any) -> None:
    order = start(app, *CHAIN)
    app.release(claim(app, order, "a"))
    assert (states(app, order)["a"], app.get_workflow(order).active) == ("pending", 1)
    drive(app)
    assert state(app, order) == "completed"


# Cancelled steps


def test_a_cancelled_step_fails_its_workflow(app: Any) -> None:
    order = start(app, *CHAIN, step("apart"))
    app.cancel(task_of(app, order, "a"))
    assert set(states(app, order).values()) == {"cancelled"}
    finalize(app, order)
    message = f"Step 'a' (task {task_of(app, order, 'a')}) was cancelled."
    assert (state(app, order), app.get_workflow(order).error.message) == ("failed", message)


def test_a_blocked_step_can_be_cancelled(app: Any) -> None:
    order = start(app, step("a"), step("b", "a"), step("x"), on_failure="continue")
    assert app.cancel(task_of(app, order, "b")).state is State.CANCELLED
    assert drive(app) == [["a", "x"]]
    assert (states(app, order), state(app, order)) == ({"a": "completed", "b": "cancelled", "x": "completed"}, "failed")


def test_a_cancelled_step_whose_failure_is_ignored_does_not_block_its_children(app: Any) -> None:
    order = start(app, step("a", on_failure="ignore"), step("b", "a"))
    app.cancel(task_of(app, order, "a"))
    drive(app)
    assert (states(app, order), state(app, order)) == ({"a": "cancelled", "b": "completed"}, "completed")


def test_a_running_step_that_obeys_a_cancel_request_is_cancelled(app: Any) -> None:
    order = start(app, *CHAIN)
    held = claim(app, order, "a")
    app.cancel(held.task_id)
    app.finish([(held, dibs.Cancelled())])
    assert states(app, order) == {"a": "cancelled", "b": "cancelled", "c": "cancelled"}
    assert finalize(app, order).state == "failed"


# Finalizers


def test_the_finalizer_of_a_failed_workflow_does_not_run(app: Any) -> None:
    order = start(app, step("a"), finalizer=NewTask("report"))
    assert drive(app, {"a": BROKEN}) == [["a"]]
    assert (states(app, order), state(app, order)) == ({"a": "failed", "(finalizer)": "cancelled"}, "failed")


def test_a_finalizer_that_fails_for_good_fails_the_workflow(app: Any) -> None:
    order = start(app, step("a"), finalizer=NewTask("report"))
    drive(app, {"report": BROKEN})
    workflow = app.get_workflow(order)
    assert (workflow.state, workflow.error.type, workflow.error.message) == ("failed", "Error", "broken")
    assert workflow.failures == 0  # it is none of the steps


def test_a_finalizer_that_was_cancelled_before_its_turn_fails_the_workflow(app: Any) -> None:
    order = start(app, step("a"), finalizer=NewTask("report"))
    app.cancel(task_of(app, order, "(finalizer)"))
    assert states(app, order)["a"] == "pending"
    drive(app)
    assert (state(app, order), app.get_workflow(order).error.type) == ("failed", "FinalizerCancelled")


# Retrying a workflow


def test_a_retried_workflow_continues_from_the_failure(app: Any) -> None:
    order = start(app, *CHAIN, step("apart"))
    drive(app, {"b": BROKEN})
    workflow = app.retry_workflow(order)
    assert (workflow.state, workflow.stopping, workflow.error, workflow.finished_at) == ("running", None, None, None)
    assert (workflow.failures, workflow.ended, workflow.active) == (0, 2, 1)
    assert drive(app) == [["b"], ["c"]]
    assert (state(app, order), app.get_workflow(order).ended) == ("completed", 4)


def test_a_retried_step_has_all_its_attempts_and_no_backoff(app: Any) -> None:
    order = start(app, step("a", max_attempts=3, delay=600))
    app.retry(task_of(app, order, "a"))  # a scheduled step is sent on its way, like any task
    app.fail(app.claim(WORKER), "broken", permanent=True)
    finalize(app, order)
    app.retry_workflow(order)
    task = app.get(task_of(app, order, "a"))
    assert task.attempts == 0
    assert events(app, task.id)[-3:] == ["failed", "retried", "promoted"]


def test_a_workflow_can_fail_and_be_retried_twice(app: Any) -> None:
    order = start(app, *DIAMOND, finalizer=NewTask("report"))
    assert drive(app, {"right": BROKEN}) == [["fetch"], ["left", "right"]]
    app.retry_workflow(order)
    assert drive(app, {"right": BROKEN}) == [["right"]]
    app.retry_workflow(order)
    assert drive(app, {"merge": BROKEN}) == [["right"], ["merge"]]
    app.retry_workflow(order)
    assert drive(app) == [["merge"], ["report"]]
    assert (state(app, order), app.get_workflow(order).ended) == ("completed", 4)


def test_a_step_that_finished_while_the_workflow_was_failing_is_not_run_again(app: Any) -> None:
    order = start(app, *DIAMOND)
    complete(app, order, "fetch")
    held = claim(app, order, "left")
    fail(app, order, "right")
    app.complete(held, "late")
    finalize(app, order)
    app.retry_workflow(order)
    assert drive(app) == [["right"], ["merge"]]
    results = {each.name: each.result for each in app.results(task_of(app, order, "merge"))}
    assert results == {"left": "late", "right": "right"}


def test_a_workflow_whose_finalizer_failed_is_retried_from_its_finalizer(app: Any) -> None:
    order = start(app, step("a"), finalizer=NewTask("report"))
    drive(app, {"report": BROKEN})
    app.retry_workflow(order)
    assert (state(app, order), states(app, order)["(finalizer)"], due(app)) == ("running", "blocked", [order])
    assert drive(app) == [["report"]]
    assert state(app, order) == "completed"


def test_an_ignored_failure_is_not_run_again_by_a_retry(app: Any) -> None:
    order = start(app, step("a", on_failure="ignore"), step("b", "a"))
    drive(app, {"a": BROKEN, "b": BROKEN})
    app.retry_workflow(order)
    assert drive(app) == [["b"]]


def test_a_cancelled_workflow_can_be_retried(app: Any) -> None:
    order = start(app, *CHAIN)
    complete(app, order, "a")
    app.cancel_workflow(order)
    app.retry_workflow(order)
    assert drive(app) == [["b"], ["c"]]
    assert state(app, order) == "completed"


@pytest.mark.parametrize("outcome", [Completed(), None])
def test_only_a_failed_or_cancelled_workflow_can_be_retried(app: Any, outcome: Any) -> None:
    order = start(app, step("a"))
    if outcome is not None:
        drive(app)
    with pytest.raises(dibs.WrongWorkflowState) as refused:
        app.retry_workflow(order)
    there = "completed" if outcome else "running"
    assert (refused.value.workflow_id, refused.value.state) == (order, there)
    assert refused.value.message == f"Workflow {order} cannot be retried: it is {there}."


def test_a_workflow_that_is_still_stopping_cannot_be_retried_yet(app: Any) -> None:
    order = start(app, step("a"), step("b"))
    claim(app, order, "b")
    fail(app, order, "a")
    with pytest.raises(dibs.WrongWorkflowState, match="running, and stopping"):
        app.retry_workflow(order)


# Retrying one step


def test_retrying_a_step_of_an_ended_workflow_retries_the_workflow(app: Any) -> None:
    order = start(app, *CHAIN)
    drive(app, {"b": BROKEN})
    assert app.retry(task_of(app, order, "b")).state is State.PENDING
    assert drive(app) == [["b"], ["c"]]
    assert state(app, order) == "completed"


def test_retrying_a_cancelled_step_of_an_ended_workflow_blocks_the_step_until_its_parents_are_done(app: Any) -> None:
    order = start(app, *CHAIN)
    drive(app, {"b": BROKEN})
    assert app.retry(task_of(app, order, "c")).state is State.BLOCKED
    assert drive(app) == [["b"], ["c"]]


def test_with_policy_continue_a_failed_step_can_be_retried_while_other_steps_run(app: Any) -> None:
    order = start(app, *CHAIN, step("x"), on_failure="continue")
    fail(app, order, "a")
    assert app.retry(task_of(app, order, "a")).state is State.PENDING
    assert (app.get_workflow(order).failures, app.get_workflow(order).active) == (0, 2)
    drive(app)
    assert (state(app, order), set(states(app, order).values())) == ("completed", {"completed"})


def test_a_step_whose_failure_was_ignored_cannot_be_retried(app: Any) -> None:
    order = start(app, step("a", on_failure="ignore"), step("b", "a"))
    fail(app, order, "a")
    with pytest.raises(dibs.WrongState, match="its failure was ignored and its workflow continued"):
        app.retry(task_of(app, order, "a"))


def test_a_step_of_a_workflow_that_is_stopping_cannot_be_retried(app: Any) -> None:
    order = start(app, step("a"), step("b"))
    claim(app, order, "b")
    fail(app, order, "a")
    with pytest.raises(dibs.WrongState, match="its workflow is stopping"):
        app.retry(task_of(app, order, "a"))


def test_a_step_that_waits_cannot_be_retried(app: Any) -> None:
    order = start(app, *CHAIN)
    for name in ("a", "b"):
        with pytest.raises(dibs.WrongState):
            app.retry(task_of(app, order, name))


# The dead letter


def test_redriving_the_dead_letter_retries_the_workflows_of_its_steps(app: Any) -> None:
    app.enqueue("plain")
    orders = [start(app, *CHAIN) for _ in range(3)]
    drive(app, {"b": BROKEN, "plain": BROKEN})
    assert app.redrive() == 4
    assert drive(app) == [["b", "b", "b", "plain"], ["c", "c", "c"]]
    assert [state(app, order) for order in orders] == ["completed"] * 3


def test_redriving_by_type_retries_the_workflows_that_a_step_of_the_type_failed(app: Any) -> None:
    first, second = start(app, step("a"), name="first"), start(app, step("b"), name="second")
    drive(app, {"a": BROKEN, "b": BROKEN})
    assert app.redrive(type="b") == 1
    assert (state(app, first), state(app, second)) == ("failed", "running")


def test_redriving_skips_ignored_failures_and_reaches_the_tasks_behind_them(app: Any) -> None:
    ignored = [step(str(n), on_failure="ignore") for n in range(501)]
    done = start(app, *ignored)
    drive(app, {str(n): BROKEN for n in range(501)})
    failed = start(app, step("a"))
    drive(app, {"a": BROKEN})
    assert app.redrive() == 1
    assert (state(app, done), state(app, failed)) == ("completed", "running")


# Deadlines


def test_a_workflow_past_its_deadline_is_stopped_and_fails(app: Any, clock: Clock) -> None:
    order = start(app, *CHAIN, deadline=30)
    complete(app, order, "a")
    held = claim(app, order, "b")
    clock.advance(30)
    done = app.upkeep()
    assert (done.workflows_expired, done.finalized, app.get_workflow(order).stopping) == (1, 0, "deadline")
    assert app.get(held.task_id).cancel_requested
    app.finish([(held, dibs.Cancelled())])
    assert app.upkeep().finalized == 1
    workflow = app.get_workflow(order)
    assert (workflow.state, workflow.error.type) == ("failed", "DeadlineExceeded")
    assert states(app, order) == {"a": "completed", "b": "cancelled", "c": "cancelled"}


def test_a_workflow_is_not_stopped_before_its_deadline(app: Any, clock: Clock) -> None:
    order = start(app, *CHAIN, deadline=60)
    clock.advance(59)
    assert (app.upkeep().workflows_expired, states(app, order)["a"]) == (0, "pending")


def test_a_deadline_can_be_a_time(app: Any, clock: Clock) -> None:
    at = moment(clock)
    clock.advance(-60)
    order = start(app, *CHAIN, deadline=at)
    assert app.get_workflow(order).deadline == at
    clock.advance(60)
    done = app.upkeep()
    assert (done.workflows_expired, done.finalized, state(app, order)) == (1, 1, "failed")


def test_an_ended_workflow_has_no_deadline_to_miss(app: Any, clock: Clock) -> None:
    order = start(app, step("a"), deadline=60)
    drive(app)
    clock.advance(61)
    assert (app.upkeep().workflows_expired, state(app, order)) == (0, "completed")


def test_a_retry_restarts_the_time_until_the_deadline(app: Any, clock: Clock) -> None:
    order = start(app, step("a"), deadline=60)
    clock.advance(61)
    app.upkeep()
    workflow = app.retry_workflow(order)
    assert (workflow.deadline - moment(clock)).total_seconds() == 60
    clock.advance(59)
    assert app.upkeep().workflows_expired == 0
    drive(app)
    assert state(app, order) == "completed"


def test_a_retry_after_a_deadline_at_a_past_time_has_no_deadline(app: Any, clock: Clock) -> None:
    at = moment(clock)
    clock.advance(-60)
    order = start(app, step("a"), deadline=at)
    clock.advance(61)
    app.upkeep()
    assert app.retry_workflow(order).deadline is None
    assert app.upkeep().workflows_expired == 0


# Cancelling a workflow


def test_a_workflow_with_nothing_running_is_cancelled_at_once(app: Any) -> None:
    order = start(app, *CHAIN, step("later", delay=60), finalizer=NewTask("report"))
    complete(app, order, "a")
    workflow = app.cancel_workflow(order)
    assert (workflow.state, workflow.error, due(app)) == ("cancelled", None, [])
    assert set(states(app, order).values()) == {"completed", "cancelled"}
    assert app.claim(WORKER) is None


def test_the_running_steps_of_a_cancelled_workflow_get_a_cancel_request(app: Any) -> None:
    order = start(app, *CHAIN)
    held = claim(app, order, "a")
    workflow = app.cancel_workflow(order)
    assert (workflow.state, workflow.stopping) == ("running", "cancelled")
    assert app.renew(held).cancel_requested
    app.finish([(held, dibs.Cancelled())])
    assert finalize(app, order).state == "cancelled"


def test_a_running_step_may_still_complete_and_its_workflow_is_cancelled(app: Any) -> None:
    order = start(app, *CHAIN)
    held = claim(app, order, "a")
    app.cancel_workflow(order)
    app.complete(held)
    assert finalize(app, order).state == "cancelled"
    assert states(app, order) == {"a": "completed", "b": "cancelled", "c": "cancelled"}


def test_cancelling_a_workflow_twice_changes_nothing_and_ended_steps_stay(app: Any) -> None:
    order = start(app, *CHAIN)
    first = app.cancel_workflow(order)
    assert app.cancel_workflow(order) == first
    done = start(app, step("x"))
    drive(app)
    with pytest.raises(dibs.WrongWorkflowState, match=f"Workflow {done} cannot be cancelled: it is completed"):
        app.cancel_workflow(done)


def test_running_steps_of_a_failing_workflow_can_get_a_cancel_request(app: Any) -> None:
    order = start(app, step("a"), step("b"))
    held = claim(app, order, "b")
    fail(app, order, "a")
    assert app.cancel_workflow(order).stopping == "cancelled"
    assert app.renew(held).cancel_requested
    app.finish([(held, dibs.Cancelled())])
    assert finalize(app, order).state == "cancelled"


@pytest.mark.parametrize("running", [False, True])
def test_a_workflow_is_cancelled_in_its_finalizer(app: Any, running: bool) -> None:
    order = start(app, step("a"), finalizer=NewTask("report"))
    complete(app, order, "a")
    finalize(app, order)
    held = app.claim(WORKER) if running else None
    workflow = app.cancel_workflow(order)
    if held is not None:
        assert workflow.state == "finalizing"
        app.finish([(held, dibs.Cancelled())])
    assert (state(app, order), states(app, order)["(finalizer)"]) == ("cancelled", "cancelled")


# Pruning


def test_a_workflow_is_pruned_with_all_its_records_after_its_retention(app: Any, clock: Clock) -> None:
    order = start(app, *DIAMOND, finalizer=NewTask("report"), key="order-7")
    drive(app)
    clock.advance(3600)
    keep(app, completed=3601)
    assert app.prune() == 0
    keep(app, completed=3600)
    assert app.prune() >= 5
    assert (app.get_workflow(order), app.list_tasks(), app.finalization_attempts(order)) == (None, [], [])
    assert not app.start_workflow(dibs.NewWorkflow(name="other", key="order-7")).deduplicated


def test_the_steps_of_a_running_workflow_are_kept_however_old_they_are(app: Any, clock: Clock) -> None:
    order = start(app, *DIAMOND)
    complete(app, order, "fetch", "kept")
    clock.advance(10**6)
    keep(app, completed=0, failed=0, cancelled=0)
    assert app.prune() == 0
    assert app.results(task_of(app, order, "left"))[0].result == "kept"


def test_failed_and_cancelled_workflows_have_their_own_retention(app: Any) -> None:
    failed, cancelled = start(app, step("a")), start(app, step("b"), step("c", "b"))
    app.cancel_workflow(cancelled)
    drive(app, {"a": BROKEN})
    keep(app, cancelled=0)
    app.prune()
    assert (app.get_workflow(cancelled), state(app, failed)) == (None, "failed")
    keep(app, failed=0)
    app.prune()
    assert (app.get_workflow(failed), app.list_tasks()) == (None, [])


def test_one_upkeep_prunes_many_small_workflows(app: Any) -> None:
    for _ in range(30):
        start(app, step("a"))
    start(app)
    drive(app)
    keep(app, completed=0)
    app.upkeep()
    assert (app.list_workflows(), app.list_tasks()) == ([], [])


def test_a_large_workflow_is_pruned_in_batches(app: Any) -> None:
    start(app, *(step(str(n)) for n in range(1200)))
    start(app, step("a"))
    drive(app)
    keep(app, completed=0)
    app.upkeep()
    assert (app.list_workflows(), app.list_tasks()) == ([], [])
