"""Sub-workflows: a step that is a whole workflow begins, fails, stops and is retried with the outer workflow."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs import NewTask, State
from dibs.observe.verify import verify
from tests.helpers.clients import Clock
from tests.helpers.retention import keep
from tests.helpers.tasks import events, moment
from tests.helpers.workflows import (
    BROKEN,
    WORKER,
    by_name,
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

PAGES = sub("pages", step("p"), step("q", "p"), after=["a"])
AROUND = (step("a"), PAGES, step("z", "pages"))


# Nesting


def test_a_sub_workflow_begins_with_its_step_and_the_step_ends_with_it(app: Any) -> None:
    order = start(app, *AROUND)
    pages = inner(app, order, "pages")
    assert (states(app, order), states(app, pages)) == (
        {"a": "pending", "pages": "blocked", "z": "blocked"},
        {"p": "blocked", "q": "blocked"},
    )
    complete(app, order, "a")
    assert (states(app, order)["pages"], states(app, pages)) == ("claimed", {"p": "pending", "q": "blocked"})
    complete(app, pages, "p")
    complete(app, pages, "q")
    assert (due(app), states(app, order)["z"]) == ([pages], "blocked")
    done = finalize(app, pages)
    assert (done.state, list(done.due)) == ("completed", [])
    assert states(app, order) == {"a": "completed", "pages": "completed", "z": "pending"}
    drive(app)
    assert state(app, order) == "completed"


def test_a_sub_workflow_has_a_reference_to_its_outer_workflow(app: Any) -> None:
    order = start(app, sub("one", sub("two", step("x"))))
    one = inner(app, order, "one")
    two = app.get_workflow(inner(app, one, "two"))
    assert (two.name, two.root_id, two.step_of) == ("two", order, task_of(app, one, "two"))
    gate = by_name(app, order)["one"]
    assert (gate.kind, gate.type, gate.workflow_id, gate.worker_id) == (
        "workflow",
        "dibs.workflow",
        one,
        f"workflow-{one}",
    )
    assert [each.id for each in app.list_workflows()] == [order]


def test_the_step_of_a_sub_workflow_is_never_claimed(app: Any, clock: Clock) -> None:
    order = start(app, sub("pages", step("p")))
    assert [held.task.type for held in app.claim_many(WORKER, 10)] == ["p"]
    with pytest.raises(dibs.AlreadyClaimed):
        claim(app, order, "pages")
    clock.advance(10**6)
    app.upkeep()
    assert states(app, order)["pages"] == "claimed"  # it has no lease to lose


def test_nested_workflows_end_from_the_inside_out(app: Any) -> None:
    nested = sub("three", step("x"))
    for name in ("two", "one"):
        nested = sub(name, nested, step(f"after-{name}", nested.name))
    order = start(app, nested, step("z", "one"))
    assert drive(app) == [["x"], ["after-two"], ["after-one"], ["z"]]
    assert state(app, order) == "completed"


def test_finalizing_the_inner_workflow_reports_that_the_outer_is_due(app: Any, engine: str) -> None:
    order = start(app, sub("pages", step("p")))
    complete(app, inner(app, order, "pages"), "p")
    done = finalize(app, inner(app, order, "pages"))
    if not engine.startswith("http"):
        assert list(done.due) == [order]
    assert due(app) == [order]


# Results


def test_the_result_of_a_sub_workflow_is_the_results_of_its_last_steps_by_name(app: Any) -> None:
    order = start(app, sub("pages", step("p"), step("q", "p"), step("r")), step("z", "pages"))
    pages = inner(app, order, "pages")
    complete(app, pages, "p", "unseen")
    complete(app, pages, "q", {"n": 1})
    complete(app, pages, "r")
    finalize(app, pages)
    [result] = app.results(task_of(app, order, "z"))
    assert (result.name, result.type, result.result) == ("pages", "dibs.workflow", {"q": {"n": 1}, "r": None})


def test_the_result_of_a_sub_workflow_with_a_finalizer_is_the_finalizers(app: Any) -> None:
    order = start(app, sub("pages", step("p"), finalizer=NewTask("report")), step("z", "pages"))
    assert drive(app) == [["p"], ["report"], ["z"]]
    assert app.results(task_of(app, order, "z"))[0].result == "report"
    assert state(app, order) == "completed"


# Empty ones


def test_an_empty_sub_workflow_is_completed_when_it_begins(app: Any) -> None:
    order = start(app, step("a"), sub("nothing", after=["a"]), step("z", "nothing"))
    complete(app, order, "a")
    finalize_due(app)
    assert app.results(task_of(app, order, "z"))[0].result == {}
    assert drive(app) == [["z"]]
    assert state(app, order) == "completed"


def test_an_empty_sub_workflow_is_not_completed_before_it_begins(app: Any) -> None:
    order = start(app, step("a"), sub("nothing", after=["a"]), step("z", "nothing"))
    assert due(app) == []
    app.upkeep()
    assert state(app, inner(app, order, "nothing")) == "running"
    drive(app)
    assert (state(app, order), states(app, order)["z"]) == ("completed", "completed")


def test_a_workflow_that_contains_only_an_empty_sub_workflow_is_completed(app: Any) -> None:
    order = start(app, sub("nothing", sub("nothing")))
    drive(app)
    assert state(app, order) == "completed"


def test_a_sub_workflow_that_has_not_begun_is_not_due_for_finalization(app: Any) -> None:
    order = start(app, *AROUND)
    app.upkeep()
    assert (due(app), app.finalization_attempts(inner(app, order, "pages"))) == ([], [])


def test_a_finalization_claim_cannot_end_a_sub_workflow_before_its_turn(app: Any) -> None:
    order = start(app, step("a"), sub("nothing", after=["a"]), step("z", "nothing"))
    done = finalize(app, inner(app, order, "nothing"))
    assert (done.action, done.state, states(app, order)["nothing"]) == ("recheck_later", "running", "blocked")
    drive(app)
    assert (state(app, order), states(app, order)["z"]) == ("completed", "completed")


# Failure


def test_a_failure_inside_fails_the_step_and_the_workflow_around_it(app: Any) -> None:
    order = start(app, *AROUND)
    drive(app, {"p": BROKEN})
    pages = inner(app, order, "pages")
    assert states(app, pages) == {"p": "failed", "q": "cancelled"}
    assert states(app, order) == {"a": "completed", "pages": "failed", "z": "cancelled"}
    assert (state(app, pages), state(app, order)) == ("failed", "failed")
    assert "Step 'pages'" in app.get_workflow(order).error.message
    assert "broken" in app.get_workflow(order).error.message


def test_the_failure_of_a_sub_workflow_can_be_ignored(app: Any) -> None:
    order = start(app, sub("pages", step("p"), policy="ignore"), step("z", "pages"))
    drive(app, {"p": BROKEN})
    [result] = app.results(task_of(app, order, "z"))
    assert (result.state, result.result, result.error.type) == ("failed", None, "StepFailed")
    assert (state(app, inner(app, order, "pages")), state(app, order)) == ("failed", "completed")


def test_a_running_sub_workflow_may_finish_when_a_sibling_step_fails(app: Any) -> None:
    order = start(app, sub("pages", step("p"), step("q", "p")), step("b"))
    pages = inner(app, order, "pages")
    fail(app, order, "b")
    assert (due(app), states(app, pages)) == ([], {"p": "pending", "q": "blocked"})
    assert drive(app) == [["p"], ["q"]]
    assert (state(app, pages), state(app, order)) == ("completed", "failed")


def test_a_sub_workflow_that_never_began_is_cancelled_with_its_outer_workflow(app: Any) -> None:
    inside = sub("pages", step("p"), sub("deep", step("d")), finalizer=NewTask("report"), after=["a"])
    order = start(app, step("a"), inside)
    pages = inner(app, order, "pages")
    deep = inner(app, pages, "deep")
    drive(app, {"a": BROKEN})
    assert [state(app, each) for each in (order, pages, deep)] == ["failed", "cancelled", "cancelled"]
    assert {*states(app, pages).values(), *states(app, deep).values()} == {"cancelled"}
    app.retry_workflow(order)
    assert drive(app) == [["a"], ["d", "p"], ["report"]]
    assert [state(app, each) for each in (order, pages, deep)] == ["completed"] * 3


def test_with_policy_continue_a_sub_workflow_behind_a_failure_is_cancelled_at_the_end(app: Any) -> None:
    order = start(app, step("a"), sub("pages", step("p"), after=["a"]), step("x"), on_failure="continue")
    drive(app, {"a": BROKEN})
    assert (state(app, order), state(app, inner(app, order, "pages"))) == ("failed", "cancelled")


# Retry


def test_a_retry_of_the_outer_workflow_continues_from_the_failure_inside(app: Any) -> None:
    order = start(app, *AROUND, finalizer=NewTask("report"))
    drive(app, {"q": BROKEN})
    app.retry_workflow(order)
    assert drive(app) == [["q"], ["z"], ["report"]]
    assert (state(app, order), state(app, inner(app, order, "pages"))) == ("completed", "completed")


def test_a_retry_can_fail_again_inside_and_be_retried_again(app: Any) -> None:
    order = start(app, sub("one", sub("two", step("x"), step("y", "x"))), step("z", "one"))
    for broken, ran in (("x", ["x"]), ("x", ["x"]), ("y", ["x", "y"])):
        assert sorted(each for some in drive(app, {broken: BROKEN}) for each in some) == ran
        assert state(app, order) == "failed"
        app.retry_workflow(order)
    assert drive(app) == [["y"], ["z"]]
    assert state(app, order) == "completed"


def test_a_completed_sub_workflow_is_not_run_again(app: Any) -> None:
    order = start(app, *AROUND)
    drive(app, {"z": BROKEN})
    app.retry_workflow(order)
    assert drive(app) == [["z"]]


def test_a_sub_workflow_is_not_retried_on_its_own(app: Any) -> None:
    order = start(app, *AROUND)
    drive(app, {"p": BROKEN})
    with pytest.raises(dibs.WrongWorkflowState, match="on its own") as refused:
        app.retry_workflow(inner(app, order, "pages"))
    assert f"Retry workflow {order}" in str(refused.value)


def test_retrying_a_step_inside_an_ended_sub_workflow_retries_the_outer_workflow(app: Any) -> None:
    order = start(app, *AROUND)
    drive(app, {"p": BROKEN})
    assert app.retry(task_of(app, inner(app, order, "pages"), "p")).state is State.PENDING
    assert (state(app, order), states(app, order)["pages"]) == ("running", "claimed")
    assert drive(app) == [["p"], ["q"], ["z"]]
    assert state(app, order) == "completed"


def test_retrying_a_step_inside_while_the_outer_workflow_runs_retries_the_sub_workflow(app: Any) -> None:
    order = start(app, sub("pages", step("p"), step("q", "p")), step("x"), on_failure="continue")
    pages = inner(app, order, "pages")
    fail(app, pages, "p")
    finalize(app, pages)
    assert states(app, order) == {"pages": "failed", "x": "pending"}
    app.retry(task_of(app, pages, "p"))
    assert states(app, order)["pages"] == "claimed"
    assert drive(app) == [["p", "x"], ["q"]]
    assert (state(app, pages), state(app, order)) == ("completed", "completed")


def test_a_step_inside_a_sub_workflow_whose_failure_was_ignored_cannot_be_retried(app: Any) -> None:
    order = start(app, sub("pages", step("p"), policy="ignore"), step("z", "pages"))
    pages = inner(app, order, "pages")
    fail(app, pages, "p")
    finalize(app, pages)
    with pytest.raises(dibs.WrongState, match="continued"):
        app.retry(task_of(app, pages, "p"))
    assert (state(app, pages), states(app, pages)) == ("failed", {"p": "failed"})


def test_redriving_the_dead_letter_retries_steps_inside_sub_workflows(app: Any) -> None:
    order = start(app, *AROUND)
    drive(app, {"p": BROKEN})
    assert app.redrive() >= 1
    assert drive(app) == [["p"], ["q"], ["z"]]
    assert state(app, order) == "completed"


# Cancel


def test_cancelling_the_outer_workflow_cancels_the_inner(app: Any) -> None:
    order = start(app, sub("pages", step("p"), step("q", "p")), step("z", "pages"))
    pages = inner(app, order, "pages")
    held = claim(app, pages, "p")
    assert app.cancel_workflow(order).state == "running"
    assert app.get(held.task_id).cancel_requested
    app.finish([(held, dibs.Cancelled())])
    finalize_due(app)
    assert (state(app, pages), state(app, order)) == ("cancelled", "cancelled")


def test_cancelling_the_outer_workflow_while_nothing_runs_inside_ends_both(app: Any) -> None:
    order = start(app, sub("pages", step("p")), step("z", "pages"))
    app.cancel_workflow(order)
    finalize_due(app)
    assert (state(app, inner(app, order, "pages")), state(app, order)) == ("cancelled", "cancelled")
    assert app.claim(WORKER) is None


def test_cancelling_the_inner_workflow_fails_its_step(app: Any) -> None:
    order = start(app, sub("pages", step("p")), step("z", "pages"))
    assert app.cancel_workflow(inner(app, order, "pages")).state == "cancelled"
    assert states(app, order) == {"pages": "cancelled", "z": "cancelled"}
    finalize_due(app)
    assert state(app, order) == "failed"


@pytest.mark.parametrize("policy", ["fail", "continue", "ignore"])
def test_cancelling_a_sub_workflow_that_never_began_cancels_its_step(app: Any, policy: str) -> None:
    order = start(app, step("a"), sub("pages", step("p"), after=["a"], policy=policy), step("z", "pages"))
    pages = inner(app, order, "pages")
    assert app.cancel_workflow(pages).state == "cancelled"
    assert states(app, order)["pages"] == "cancelled"
    drive(app)
    assert state(app, order) == ("completed" if policy == "ignore" else "failed")
    assert states(app, pages) == {"p": "cancelled"}


def test_a_step_after_a_sub_workflow_that_is_cancelled_early_still_waits_for_its_own_workflow(app: Any) -> None:
    outer = sub("outer", sub("inner", step("x"), policy="ignore"), step("y", "inner"), after=["a"])
    order = start(app, step("a"), outer)
    pages = inner(app, order, "outer")
    app.cancel_workflow(inner(app, pages, "inner"))
    assert states(app, pages) == {"inner": "cancelled", "y": "blocked"}
    assert drive(app) == [["a"], ["y"]]
    assert state(app, order) == "completed"


@pytest.mark.parametrize("policy", ["fail", "continue", "ignore"])
def test_cancelling_the_step_of_a_sub_workflow_that_never_began_cancels_the_workflow(app: Any, policy: str) -> None:
    order = start(app, step("a"), sub("pages", step("p"), after=["a"], policy=policy), step("z", "pages"))
    pages = inner(app, order, "pages")
    app.cancel(task_of(app, order, "pages"))
    assert (state(app, pages), states(app, pages)) == ("cancelled", {"p": "cancelled"})
    drive(app)
    assert state(app, order) == ("completed" if policy == "ignore" else "failed")


def test_the_step_of_a_running_sub_workflow_can_only_be_cancelled_by_its_workflow(app: Any) -> None:
    order = start(app, sub("pages", step("p")))
    with pytest.raises(dibs.WrongState, match="it represents a workflow"):
        app.cancel(task_of(app, order, "pages"))


# Deadlines


def test_the_deadline_of_a_sub_workflow_counts_from_its_beginning(app: Any, clock: Clock) -> None:
    order = start(app, step("a"), sub("pages", step("p"), after=["a"], deadline=60, policy="ignore"))
    pages = inner(app, order, "pages")
    clock.advance(3600)
    assert app.upkeep().expired == 0
    complete(app, order, "a")
    assert (app.get_workflow(pages).deadline - moment(clock)).total_seconds() == 60
    clock.advance(60)
    app.upkeep()
    assert (app.get_workflow(pages).error.type, state(app, order)) == ("DeadlineExceeded", "completed")


def test_a_sub_workflow_whose_deadline_is_past_fails_when_it_begins(app: Any, clock: Clock) -> None:
    at = moment(clock)
    clock.advance(-60)
    order = start(app, step("a"), sub("pages", step("p"), after=["a"], deadline=at))
    clock.advance(60)
    app.upkeep()
    assert states(app, order) == {"a": "pending", "pages": "blocked"}
    drive(app)
    assert (states(app, order)["pages"], state(app, order)) == ("failed", "failed")


def test_the_deadline_of_the_outer_workflow_stops_the_inner(app: Any, clock: Clock) -> None:
    order = start(app, sub("pages", step("p")), deadline=60)
    clock.advance(60)
    app.upkeep()
    assert (state(app, inner(app, order, "pages")), state(app, order)) == ("cancelled", "failed")


# Upkeep and history


def test_one_upkeep_finalizes_nested_workflows_from_the_inside_out(app: Any) -> None:
    order = start(app, sub("one", sub("two", step("x"))))
    app.complete(app.claim(WORKER))
    assert app.upkeep().finalized == 3
    assert state(app, order) == "completed"


def test_a_workflow_is_pruned_together_with_its_sub_workflows(app: Any) -> None:
    order = start(app, *AROUND)
    drive(app)
    keep(app, completed=0)
    app.prune()
    assert (app.get_workflow(order), app.list_tasks()) == (None, [])


def test_the_step_of_a_sub_workflow_has_a_complete_history(app: Any) -> None:
    order = start(app, *AROUND)
    drive(app, {"p": BROKEN})
    app.retry_workflow(order)
    drive(app)
    assert events(app, task_of(app, order, "pages")) == [
        "enqueued", "promoted", "claimed", "failed", "retried", "promoted", "claimed", "completed"
    ]  # fmt: skip
    report = verify(app.all_history(), tasks=app.list_tasks(limit=1000))
    assert report.ok, str(report)
