"""Workflows as the dashboard shows them: the same steps, read in bounded batches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dibs import InvalidValue, NewTask
from dibs.model.workflow import FoundWorkflows, StepDetails, SubWorkflowProgress, WorkflowFilter, WorkflowOutline
from dibs.store.operations.workflow_views import EDGES
from tests.helpers.clients import run
from tests.helpers.workflows import DIAMOND, by_name, complete, fail, finalize, inner, start, step, sub, task_of

pytestmark = pytest.mark.database("only the dashboard asks for outlines, and its server has a database")


def outline(app: Any, workflow_id: int, *limit: int) -> WorkflowOutline:
    return run(app, app._store.workflows.outline(workflow_id, *limit))


def find(app: Any, span: int, **which: Any) -> FoundWorkflows:
    return run(app, app._store.workflows.find_workflows(WorkflowFilter(**which), span))


def test_an_outline_has_the_immutable_fields_of_the_steps(app: Any) -> None:
    flow = start(app, *DIAMOND, sub("inner", step("one"), after=["merge"]), finalizer=NewTask("report"))
    seen, steps = outline(app, flow), app.steps(flow)
    assert seen.whole
    assert list(seen.ids) == [each.task_id for each in steps]
    assert list(seen.names) == [each.name for each in steps]
    assert list(seen.kinds) == [each.kind for each in steps]
    assert list(seen.types) == [each.type for each in steps]
    assert [[seen.ids[place] for place in parents] for parents in seen.parents] == [each.after for each in steps]
    complete(app, flow, "fetch")
    fail(app, flow, "left")
    assert outline(app, flow) == seen


def test_an_outline_has_no_more_steps_than_its_limit_and_reports_that_some_are_missing(app: Any) -> None:
    flow = start(app, *DIAMOND)
    seen = outline(app, flow, 3)
    assert (list(seen.names), seen.whole) == (["fetch", "left", "right"], False)
    assert outline(app, flow, 4).whole
    assert list(map(list, seen.parents)) == [[], [0], [0]]


def test_an_outline_has_no_more_dependencies_than_its_limit(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EDGES > 10_000
    monkeypatch.setattr("dibs.store.operations.workflow_views.EDGES", 3)
    seen = outline(app, start(app, *DIAMOND))
    assert (len(seen.ids), sum(map(len, seen.parents)), seen.whole) == (4, 3, False)


def test_step_states_groups_steps_by_state_policy_and_result(app: Any) -> None:
    flow = start(app, step("fetch"), step("left"), step("ignored", on_failure="ignore"), step("later", "fetch"))
    complete(app, flow, "fetch")
    fail(app, flow, "ignored")
    steps = by_name(app, flow)
    told = run(app, app._store.workflows.step_states(flow, steps["later"].task_id))
    each = {(alike.state, alike.on_failure, alike.passed): sorted(alike.ids) for alike in told}
    assert each == {
        ("completed", "fail", True): [steps["fetch"].task_id],
        ("failed", "ignore", True): [steps["ignored"].task_id],
        ("pending", "fail", None): sorted([steps["left"].task_id, steps["later"].task_id]),
    }
    some = run(app, app._store.workflows.step_states(flow, steps["left"].task_id))
    assert sorted(task_id for alike in some for task_id in alike.ids) == [
        steps[name].task_id for name in ("fetch", "left")
    ]
    assert run(app, app._store.workflows.step_states(7, 10**9)) == []


def test_step_details_returns_steps_and_the_progress_of_sub_workflows(app: Any) -> None:
    flow = start(app, *DIAMOND, sub("inner", step("one"), step("two")))
    complete(app, flow, "fetch")
    complete(app, inner(app, flow, "inner"), "one")
    wanted = [by_name(app, flow)[name] for name in ("fetch", "merge", "inner")]
    seen = run(app, app._store.workflows.step_details([*(each.task_id for each in wanted), 10**9]))
    assert seen.steps == {each.task_id: msgspec.structs.replace(each, after=[]) for each in wanted}
    assert seen.inside == {wanted[2].task_id: SubWorkflowProgress(steps=2, ended=1)}
    assert run(app, app._store.workflows.step_details([])) == StepDetails({}, {})


def test_an_unknown_workflow_has_no_outline(app: Any) -> None:
    assert outline(app, 7) == WorkflowOutline((), (), (), (), (), True)
    with pytest.raises(InvalidValue):
        outline(app, 7, 0)


def test_step_errors_returns_the_beginning_of_each_error(app: Any) -> None:
    flow = start(app, step("short"), step("long"), step("well"), on_failure="continue")
    fail(app, flow, "short", "no such page")
    fail(app, flow, "long", "x" * 100_000)
    complete(app, flow, "well")
    ids = {name: task_of(app, flow, name) for name in ("short", "long", "well")}
    said = run(app, app._store.workflows.step_errors([*ids.values(), 10**9]))
    assert said.keys() == {ids["short"], ids["long"]}
    assert said[ids["short"]].endswith(": no such page")
    assert len(said[ids["long"]]) == 200
    assert run(app, app._store.workflows.step_errors([])) == {}


def test_finalization_attempts_are_listed_newest_first_up_to_a_limit(app: Any) -> None:
    flow = start(app, step("one"))
    complete(app, flow, "one")
    for number in range(5):
        app.claim_finalization(flow, f"processor-{number}")
    newest = run(app, app._store.finalization.latest_attempts(flow, 3))
    assert newest == app.finalization_attempts(flow)[::-1][:3]
    assert [each.processor for each in newest] == ["processor-4", "processor-3", "processor-2"]


def test_workflows_are_searched_in_bounded_ranges(app: Any) -> None:
    """One call reads `span` workflows, the next continues where it ended."""
    rare = start(app, step("one"), name="rare")
    often = [start(app, step("one"), name="often") for _ in range(5)]
    assert find(app, 4, name="rare") == FoundWorkflows([], often[1])
    found = find(app, 4, name="rare", cursor=often[1])
    assert ([each.id for each in found.workflows], found.cursor) == ([rare], None)
    page = find(app, 100, limit=2)
    assert ([each.id for each in page.workflows], page.cursor) == ([often[4], often[3]], often[3])
    assert find(app, 100, cursor=rare) == FoundWorkflows([], None)


def test_workflows_in_a_rare_state_are_found_in_one_call(app: Any) -> None:
    rare = start(app, step("one"))
    fail(app, rare, "one")
    finalize(app, rare)
    for _ in range(4):
        app.cancel_workflow(start(app, step("one")))
    running = [start(app, step("one")) for _ in range(3)]
    assert [each.id for each in find(app, 1, state="failed").workflows] == [rare]
    assert find(app, 1, state="failed", cursor=rare) == FoundWorkflows([], None)
    page = find(app, 1, state="running", limit=2)
    assert ([each.id for each in page.workflows], page.cursor) == ([running[2], running[1]], running[1])
    assert [each.id for each in find(app, 1, state="running", cursor=page.cursor).workflows] == [running[0]]


def test_workflows_in_a_frequent_state_are_searched_in_bounded_ranges(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.store.operations.workflow_views.FEW", 2)
    ids = [start(app, step("one")) for _ in range(3)]
    page = find(app, 2, state="running")
    assert ([each.id for each in page.workflows], page.cursor) == ([ids[2], ids[1]], ids[1])


def test_workflows_are_found_by_state_and_within_queues(app: Any) -> None:
    ended = start(app, step("one"))
    complete(app, ended, "one")
    finalize(app, ended)
    foreign = start(app, step("two", queue="other"))
    running = start(app, step("two"), sub("inner", step("three")))
    assert [each.id for each in find(app, 100, state="completed").workflows] == [ended]
    assert [each.id for each in find(app, 100, state="running").workflows] == [running, foreign]
    assert [each.id for each in find(app, 100, only=["default"]).workflows] == [running, ended]
