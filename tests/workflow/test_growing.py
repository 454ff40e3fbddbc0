"""Added steps: a step adds steps in the transaction that completes it, once, and its children wait for those too."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs import ClaimRef, Completed, Finished, NewStep, NewTask, NewWorkflow, State
from dibs.json_values import MAX_NAME
from dibs.store.operations import graph
from tests.helpers import tables
from tests.helpers.clients import Clock
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
    inner,
    start,
    state,
    states,
    step,
    sub,
    task_of,
)

PAGES = (step("page-1"), step("page-2"))


# Dynamic fan-out


def test_the_children_of_a_step_wait_for_the_steps_that_it_adds(app: Any) -> None:
    order = start(app, step("split"), step("join", "split"))
    complete(app, order, "split", steps=PAGES)
    assert states(app, order) == {
        "split": "completed",
        "join": "blocked",
        "split/page-1": "pending",
        "split/page-2": "pending",
    }
    complete(app, order, "split/page-1", 1)
    assert states(app, order)["join"] == "blocked"
    complete(app, order, "split/page-2", 2)
    assert states(app, order)["join"] == "pending"
    results = app.results(task_of(app, order, "join"))
    assert [(each.name, each.result) for each in results] == [("split", None), ("split/page-1", 1), ("split/page-2", 2)]
    drive(app)
    assert (state(app, order), app.get_workflow(order).steps) == ("completed", 4)


def test_a_step_without_children_can_add_steps(app: Any) -> None:
    order = start(app, step("split"))
    complete(app, order, "split", steps=PAGES)
    assert due(app) == []
    assert drive(app) == [["page-1", "page-2"]]
    assert state(app, order) == "completed"


def test_added_steps_may_depend_on_each_other_and_children_wait_for_the_last_of_them(app: Any) -> None:
    order = start(app, step("split"), step("join", "split"))
    added = [step("a"), step("b", "a"), step("c", "a")]
    complete(app, order, "split", steps=added)
    steps = by_name(app, order)
    assert steps["join"].after == [steps[name].task_id for name in ("split", "split/b", "split/c")]
    assert drive(app) == [["a"], ["b", "c"], ["join"]]
    assert state(app, order) == "completed"


def test_an_added_step_may_depend_on_an_existing_step(app: Any) -> None:
    order = start(app, step("split"), step("other"), step("done"), step("join", "split"))
    complete(app, order, "done", "before")
    complete(app, order, "split", steps=[step("a", "other", "done")])
    assert states(app, order)["split/a"] == "blocked"
    complete(app, order, "other", "now")
    assert [each.result for each in app.results(task_of(app, order, "split/a"))] == ["now", "before"]
    assert drive(app) == [["a"], ["join"]]
    assert state(app, order) == "completed"


def test_an_added_step_may_depend_on_the_step_that_adds_it_and_read_its_result(app: Any) -> None:
    order = start(app, step("split"), step("join", "split"))
    complete(app, order, "split", 7, steps=[step("a", "split"), step("b", "a", "split")])
    assert [each.result for each in app.results(task_of(app, order, "split/a"))] == [7]
    assert drive(app) == [["a"], ["b"], ["join"]]
    assert state(app, order) == "completed"


def test_an_added_step_can_add_steps_in_turn(app: Any) -> None:
    order = start(app, step("split"), step("join", "split"))
    complete(app, order, "split", steps=[step("part")])
    complete(app, order, "split/part", steps=[step("part")])
    assert states(app, order)["join"] == "blocked"
    assert drive(app) == [["part"], ["join"]]
    assert "split/part/part" in states(app, order)


# A step that adds steps of its own type


def test_a_step_may_add_a_step_with_its_own_name(app: Any) -> None:
    order = start(app, step("crawl"), step("join", "crawl"))
    complete(app, order, "crawl", 7, steps=[step("crawl"), step("crawl-2"), step("sum", "crawl", "crawl-2")])
    steps = by_name(app, order)
    assert list(steps) == ["crawl", "join", "crawl/crawl", "crawl/crawl-2", "crawl/sum"]
    assert steps["crawl/crawl"].after == steps["crawl/crawl-2"].after == [steps["crawl"].task_id]
    assert steps["crawl/sum"].after == [steps["crawl/crawl"].task_id, steps["crawl/crawl-2"].task_id]
    assert [each.result for each in app.results(steps["crawl/crawl"].task_id)] == [7]
    assert drive(app) == [["crawl", "crawl-2"], ["sum"], ["join"]]
    assert state(app, order) == "completed"


def test_an_added_step_whose_parent_has_its_own_name_depends_on_the_step_that_adds_it(app: Any) -> None:
    order = start(app, step("crawl"), step("join", "crawl"))
    complete(app, order, "crawl", 7, steps=[step("crawl", "crawl"), step("next", "crawl")])
    steps = by_name(app, order)
    assert steps["crawl/crawl"].after == [steps["crawl"].task_id]
    assert steps["crawl/next"].after == [steps["crawl/crawl"].task_id]
    assert drive(app) == [["crawl"], ["next"], ["join"]]
    assert state(app, order) == "completed"


def test_a_sub_workflow_may_have_the_name_of_the_step_that_adds_it(app: Any) -> None:
    order = start(app, step("pages"), step("join", "pages"))
    complete(app, order, "pages", steps=[sub("pages", step("pages"))])
    complete(app, inner(app, order, "pages/pages"), "pages", steps=[step("pages")])
    assert drive(app) == [["pages"], ["join"]]
    assert state(app, order) == "completed"


@pytest.mark.parametrize("name", ["crawl", "c" * MAX_NAME], ids=["short", "as long as a name may be"])
def test_a_step_may_add_itself_to_any_depth(app: Any, name: str) -> None:
    order = start(app, step(name), step("join", name))
    for _ in range(70):
        held = app.claim(WORKER)
        assert held.task.type == name
        app.complete(held, held.task_id, steps=[step(name), NewStep(name=name[:-2] + "-2", task=NewTask("leaf"))])
        app.complete(app.claim(WORKER, types=["leaf"]))
    assert app.complete(app.claim(WORKER)).state is State.COMPLETED
    assert drive(app) == [["join"]]
    assert state(app, order) == "completed"
    names = [each.name for each in app.steps(order)]
    assert (len(set(names)), max(map(len, names)) <= MAX_NAME) == (2 + 140, True)


def test_a_name_that_is_in_use_is_made_unique(app: Any) -> None:
    order = start(app, step("split"), step("split/part"), step("join", "split"))
    adding = task_of(app, order, "split")
    complete(app, order, "split", steps=[step("part"), step("sum", "part")])
    steps = by_name(app, order)
    assert list(steps) == ["split", "split/part", "join", f"#{adding}/part", "split/sum"]
    assert steps["split/sum"].after == [steps[f"#{adding}/part"].task_id]
    drive(app)
    assert state(app, order) == "completed"


def test_a_generated_name_that_is_in_use_is_made_unique_as_well(app: Any) -> None:
    made = "#1/part"  # the first task of a new database is task 1
    order = start(app, step("split"), step("split/part"), step(made))
    complete(app, order, "split", steps=[step("part")])
    assert list(states(app, order)) == ["split", "split/part", made, f"{made}-2"]


def test_a_repeated_outcome_adds_no_step_and_changes_no_name(app: Any, url: str) -> None:
    order = start(app, step("crawl"))
    held = claim(app, order, "crawl")
    added = [step("crawl"), step("crawl-2")]
    app.complete(held, steps=added)
    before = tables.read(url)
    assert app.complete(held, steps=added).repeated
    assert tables.read(url) == before


def test_two_steps_may_add_steps_with_the_same_name(app: Any) -> None:
    order = start(app, step("a"), step("b"), step("join", "a", "b"))
    claims = app.claim_many(WORKER, 2)
    assert all(
        isinstance(answer, Finished) for answer in app.finish([(held, Completed(steps=PAGES)) for held in claims])
    )
    assert drive(app) == [["page-1", "page-1", "page-2", "page-2"], ["join"]]
    assert state(app, order) == "completed"


def test_a_step_can_add_a_thousand_steps(app: Any) -> None:
    order = start(app, step("split"), step("join", "split"))
    complete(app, order, "split", steps=[NewStep(name=str(n), task=NewTask("page")) for n in range(1000)])
    assert [len(some) for some in drive(app)] == [1000, 1]
    assert state(app, order) == "completed"


def test_the_queues_of_added_steps_become_queues_of_the_workflow(app: Any) -> None:
    order = start(app, step("split"))
    complete(app, order, "split", steps=[step("a", queue="pages")])
    assert app.get_workflow(order).queues == ["default", "pages"]


def test_an_added_step_has_the_policy_of_the_workflow_by_default(app: Any) -> None:
    order = start(app, step("split"), on_failure="continue")
    complete(app, order, "split", steps=[step("a"), step("b", on_failure="ignore")])
    policies = {name: each.on_failure.value for name, each in by_name(app, order).items()}
    assert policies == {"split": "continue", "split/a": "continue", "split/b": "ignore"}


def test_a_sub_workflow_can_be_added(app: Any) -> None:
    order = start(app, step("split"), step("join", "split"))
    complete(app, order, "split", steps=[sub("pages", *PAGES)])
    assert drive(app) == [["page-1", "page-2"], ["join"]]
    assert app.get_workflow(inner(app, order, "split/pages")).root_id == order
    assert state(app, order) == "completed"


def test_the_failure_of_an_added_step_fails_the_workflow_and_a_retry_continues_from_it(app: Any) -> None:
    order = start(app, step("split"), step("join", "split"))
    complete(app, order, "split", steps=PAGES)
    drive(app, {"page-1": BROKEN})
    assert state(app, order) == "failed"
    app.retry_workflow(order)
    assert drive(app) == [["page-1"], ["join"]]
    assert state(app, order) == "completed"


# Once


def test_a_stale_token_adds_nothing(app: Any, url: str, clock: Clock) -> None:
    order = start(app, step("split"), step("join", "split"))
    stale = claim(app, order, "split")
    clock.advance(61)
    app.recover()
    claim(app, order, "split", WORKER)
    before = tables.read(url)
    with pytest.raises(dibs.ClaimLost):
        app.complete(stale, steps=PAGES)
    with pytest.raises(dibs.ClaimLost):  # also where what it wants to add is wrong
        app.complete(stale, steps=[step("a", "nobody")])
    assert tables.read(url) == before


def test_an_outcome_sent_twice_adds_its_steps_once(app: Any, url: str) -> None:
    order = start(app, step("split"), step("join", "split"))
    held = claim(app, order, "split")
    assert not app.complete(held, steps=PAGES).repeated
    before = tables.read(url)
    again = app.complete(held, steps=PAGES)
    assert (again.state, again.repeated) == (State.COMPLETED, True)
    assert tables.read(url) == before


def test_a_failed_attempt_adds_nothing(app: Any) -> None:
    order = start(app, step("split"), step("join", "split"))
    app.fail(claim(app, order, "split"), "not yet", retry_in=0)
    assert list(states(app, order)) == ["split", "join"]


def test_a_task_without_a_workflow_cannot_add_steps(app: Any, url: str) -> None:
    held = app.claim_by_id(app.enqueue("plain").id, WORKER)
    before = tables.read(url)
    for ref in (held, ClaimRef(held.task_id, held.token, held.worker_id)):
        with pytest.raises(dibs.InvalidValue, match="is not a step of a workflow"):
            app.complete(ref, steps=PAGES)
    assert tables.read(url) == before


def test_a_finalizer_cannot_add_steps(app: Any) -> None:
    order = start(app, step("a"), finalizer=NewTask("report"))
    complete(app, order, "a")
    finalize(app, order)
    held = app.claim(WORKER)
    with pytest.raises(dibs.InvalidValue, match="finalizer"):
        app.complete(held, steps=PAGES)
    app.complete(held)
    assert (state(app, order), len(app.steps(order))) == ("completed", 2)


# Refused


WRONG = {
    "after 'nobody'": [step("a"), step("b", "nobody")],
    "wait for each other": [step("a", "b"), step("b", "a")],
    "same name": [step("a"), step("a")],
    "has a parent that itself waits": [step("a", "join")],
    "itself waits for task": [step("a"), step("b", "a", "last")],
}


@pytest.mark.parametrize("message", list(WRONG))
def test_an_outcome_whose_steps_could_not_run_to_their_end_is_refused_alone(app: Any, url: str, message: str) -> None:
    order = start(app, step("split"), step("other"), step("join", "split"), step("last", "join"))
    held = claim(app, order, "split")
    before = tables.read(url)
    with pytest.raises(dibs.InvalidGraph, match=message):
        app.complete(held, steps=WRONG[message])
    assert tables.read(url) == before
    neighbour = claim(app, order, "other")
    refused, done = app.finish([(held, Completed(steps=WRONG[message])), (neighbour, Completed(7))])
    assert isinstance(refused, dibs.InvalidGraph)
    assert (done.state, app.get(neighbour.task_id).result) == (State.COMPLETED, 7)
    assert app.complete(held).state is State.COMPLETED  # its claim is still its own
    drive(app)
    assert state(app, order) == "completed"


def test_an_outcome_that_adds_steps_with_invalid_params_is_refused(app: Any) -> None:
    app.register_type("ship", {"type": "object", "required": ["order"]})
    order = start(app, step("split"))
    held = claim(app, order, "split")
    with pytest.raises(dibs.SchemaViolation):
        app.complete(held, steps=[step("ship")])
    with pytest.raises(dibs.InvalidValue):
        app.complete(held, steps=[step("a", params={"n": float("nan")})])
    assert states(app, order) == {"split": "claimed"}


def test_two_outcomes_of_one_batch_that_add_the_same_name_get_two_names(app: Any) -> None:
    order = start(app, step("a"), step("a/b"), step("c"))
    claims = [claim(app, order, name) for name in ("a", "a/b", "c")]
    added = [[step("b/x")], [step("x")], []]
    answers = app.finish([(held, Completed(steps=steps)) for held, steps in zip(claims, added, strict=True)])
    assert [each.state for each in answers] == [State.COMPLETED] * 3
    assert list(states(app, order)) == ["a", "a/b", "c", "a/b/x", f"#{claims[1].task_id}/x"]


# In a workflow that is stopping


def test_steps_added_to_a_stopping_workflow_do_not_run(app: Any) -> None:
    order = start(app, step("split"), step("join", "split"), step("broken"))
    held = claim(app, order, "split")
    fail(app, order, "broken")
    app.complete(held, steps=[*PAGES, sub("inside", step("x")), step("after", "page-1")])
    assert app.claim(WORKER) is None
    drive(app)
    assert state(app, order) == "failed"
    app.retry_workflow(order)
    assert drive(app) == [["broken", "page-1", "page-2", "x"], ["after"], ["join"]]
    assert state(app, order) == "completed"


# From outside


def test_steps_can_be_added_by_a_call_under_the_given_names(app: Any) -> None:
    order = start(app, step("a"), step("z"))
    complete(app, order, "a", "done")
    workflow = app.add_steps(order, [step("b", "a", "z"), step("c", "b"), step("d", queue="other")])
    assert (workflow.steps, workflow.active, workflow.queues) == (5, 2, ["default", "other"])
    assert states(app, order) == {"a": "completed", "z": "pending", "b": "blocked", "c": "blocked", "d": "pending"}
    assert drive(app) == [["d", "z"], ["b"], ["c"]]
    assert state(app, order) == "completed"


def test_a_step_added_with_a_completed_parent_runs_at_once(app: Any) -> None:
    order = start(app, step("a"), step("z"))
    complete(app, order, "a", 7)
    app.add_steps(order, [step("b", "a")])
    assert states(app, order)["b"] == "pending"
    assert app.results(task_of(app, order, "b"))[0].result == 7


def test_steps_added_to_a_workflow_that_is_due_for_finalization_run_before_it_is_finalized(app: Any) -> None:
    order = start(app, step("a"))
    complete(app, order, "a")
    assert due(app) == [order]
    app.add_steps(order, [step("b")])
    assert due(app) == []
    assert finalize(app, order).action == "recheck_later"
    drive(app)
    assert (states(app, order), state(app, order)) == ({"a": "completed", "b": "completed"}, "completed")


def test_steps_can_be_added_to_a_sub_workflow_before_it_begins(app: Any) -> None:
    order = start(app, step("a"), sub("pages", step("x"), after=["a"]))
    app.add_steps(inner(app, order, "pages"), [step("y"), step("z", "x")])
    assert drive(app) == [["a"], ["x", "y"], ["z"]]
    assert state(app, order) == "completed"


OUTSIDE = {
    "after 'nobody'": [step("b", "nobody")],
    "Two steps are named 'a'": [step("b"), step("a")],
    "wait for each other": [step("b", "c"), step("c", "b")],
}


@pytest.mark.parametrize("message", list(OUTSIDE))
def test_steps_that_cannot_be_added_leave_the_workflow_unchanged(app: Any, url: str, message: str) -> None:
    order = start(app, step("a"))
    before = tables.read(url)
    with pytest.raises(dibs.InvalidGraph, match=message):
        app.add_steps(order, OUTSIDE[message])
    assert tables.read(url) == before


def test_steps_can_be_added_only_to_a_running_workflow(app: Any) -> None:
    with pytest.raises(dibs.WorkflowNotFound):
        app.add_steps(404, [step("b")])
    done = start(app, step("a"))
    drive(app)
    with pytest.raises(dibs.WrongWorkflowState, match="cannot get more steps: it is completed"):
        app.add_steps(done, [step("b")])
    stopping = start(app, step("a"), step("b"))
    claim(app, stopping, "b")
    fail(app, stopping, "a")
    with pytest.raises(dibs.WrongWorkflowState, match="running, and stopping"):
        app.add_steps(stopping, [step("c")])
    finalizing = app.start_workflow(NewWorkflow(name="x", finalizer=NewTask("report"))).id
    finalize(app, finalizing)
    with pytest.raises(dibs.WrongWorkflowState, match="it is finalizing"):
        app.add_steps(finalizing, [step("c")])


@pytest.mark.database("the bound is read in the process that holds the store")
def test_a_workflow_cannot_grow_beyond_the_limit_of_steps(app: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    order = start(app, step("split"), step("join", "split"))
    monkeypatch.setattr(graph, "MAX_STEPS", 3)
    before = tables.read(url)
    with pytest.raises(dibs.InvalidValue, match="more than 3 steps"):
        app.add_steps(order, PAGES)
    assert tables.read(url) == before
    held = claim(app, order, "split")
    [answer] = app.finish([(held, Completed(steps=PAGES))])
    assert isinstance(answer, dibs.InvalidValue)
    app.add_steps(order, PAGES[:1])
