"""A workflow is written and checked in memory: a graph that could not run to its end never reaches a store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import dibs
from dibs import AsyncDibs, Dibs, Failure, InvalidGraph, InvalidValue, NewWorkflow, Results, State, StepResult
from dibs.json_values import MAX_NAME
from dibs.model.workflow import NewStep
from dibs.workflow.async_flow import AsyncFlow
from dibs.workflow.builder import Flow, StepRef

app = Dibs("sqlite:///nowhere.db")  # never opened


@app.task
def fetch(url: str) -> None: ...


@app.task(queue="slow", max_attempts=7)
def render(ctx: dibs.Context, page: int = 0) -> None: ...


@app.task
def notify(name: str, after: str = "") -> None: ...


@pytest.fixture
def stored() -> list[NewWorkflow]:
    """What reached the store."""
    return []


@pytest.fixture
def flow(stored: list[NewWorkflow]) -> Flow:
    """A flow whose store is a list."""
    return Flow(NewWorkflow(name="order", key="order-7"), stored.append)


def shape(new: NewWorkflow) -> dict[str, list[str]]:
    return {step.name: list(step.after) for step in new.steps}


def test_steps_are_named_by_their_type_and_then_numbered(flow: Flow) -> None:
    flow.options(name="render-3").step(render)
    assert [flow.step(render, page=n).name for n in range(4)] == ["render", "render-2", "render-4", "render-5"]
    assert flow.step("render").name == "render-6"


def test_a_number_fits_into_the_longest_allowed_name(flow: Flow) -> None:
    longest = "x" * MAX_NAME
    assert [flow.step(longest).name for _ in range(3)] == [longest, f"{longest[:-2]}-2", f"{longest[:-2]}-3"]


def test_a_diamond_is_stored_as_it_was_written(flow: Flow, stored: list[NewWorkflow]) -> None:
    with flow:
        fetched = flow.step(fetch, "http://here")
        parts = [flow.step(render, after=fetched, page=n) for n in range(3)]
        flow.step("merge", after=parts, how="fast")
        flow.options(name="tell", on_failure="ignore").step(notify, "ops", after=["merge", fetched])
        flow.finalize(notify, name="all")
    [new] = stored
    assert (new.name, new.key, new.on_failure, new.deadline) == ("order", "order-7", "fail", None)
    assert shape(new) == {
        "fetch": [],
        "render": ["fetch"],
        "render-2": ["fetch"],
        "render-3": ["fetch"],
        "merge": ["render", "render-2", "render-3"],
        "tell": ["merge", "fetch"],
    }
    tasks = {step.name: step.task for step in new.steps if step.task is not None}
    assert tasks["fetch"].params == {"url": "http://here"}
    assert (tasks["render-2"].params, tasks["render-2"].queue, tasks["render-2"].max_attempts) == (
        {"page": 1},
        "slow",
        7,
    )
    assert (tasks["merge"].type, tasks["merge"].params) == ("merge", {"how": "fast"})
    assert {step.name: step.on_failure for step in new.steps if step.on_failure is not None} == {"tell": "ignore"}
    assert new.finalizer is not None
    assert (new.finalizer.type, new.finalizer.params) == ("notify", {"name": "all"})


def test_options_of_a_handler_apply_to_its_step(flow: Flow) -> None:
    flow.step(render.options(queue="quick", priority=3, delay=60), page=1)
    [step] = flow.new().steps
    assert step.task is not None
    assert (step.task.queue, step.task.priority, step.task.delay, step.task.max_attempts) == ("quick", 3, 60, 7)


def test_a_sub_flow_is_a_step_that_can_have_children(flow: Flow) -> None:
    fetched = flow.step(fetch, "x")
    with flow.workflow("pages", after=fetched, on_failure="continue", deadline=60) as pages:
        first = pages.step(render, page=1)
        pages.step(render, after=first, page=2)
        with pages.workflow("pages") as inner:
            inner.step(render)
        pages.finalize("bind")
    flow.step("merge", after=[pages, fetched])
    again = flow.options(on_failure="ignore").workflow("pages")
    again.step(render)
    new = flow.new()
    assert shape(new) == {"fetch": [], "pages": ["fetch"], "merge": ["pages", "fetch"], "pages-2": []}
    sub, other = new.steps[1], new.steps[3]
    assert sub.workflow is not None
    assert (sub.workflow.name, sub.workflow.on_failure, sub.workflow.deadline) == ("pages", "continue", 60)
    assert shape(sub.workflow) == {"render": [], "render-2": ["render"], "pages": []}
    assert sub.workflow.finalizer is not None
    assert (sub.on_failure, other.on_failure) == (None, "ignore")
    assert other.workflow is not None
    assert other.workflow.name == "pages"
    assert new.size == 9


def test_a_sub_flow_whose_block_raises_is_dropped(flow: Flow) -> None:
    pages = flow.workflow("pages")
    pages.step(render)
    with pytest.raises(ZeroDivisionError), pages:
        _ = 1 / 0
    flow.step(fetch, "x")
    assert shape(flow.new()) == {"fetch": []}
    flow.step(render, after=pages)
    with pytest.raises(InvalidGraph, match="'pages', which is not a step"):
        flow.new()


@pytest.mark.parametrize("after", ["nobody", ["fetch", "nobody"]])
def test_an_unknown_parent_is_refused_before_anything_is_stored(
    flow: Flow, stored: list[NewWorkflow], after: Any
) -> None:
    flow.step(fetch, "x")
    with pytest.raises(InvalidGraph, match="'render' is after 'nobody'"), flow:
        flow.step(render, after=after)
    assert stored == []


def test_a_cycle_is_refused_and_shown(flow: Flow, stored: list[NewWorkflow]) -> None:
    flow.step(fetch, "x", after="render")
    with pytest.raises(InvalidGraph, match="wait for each other: fetch → render → fetch"), flow:
        flow.step(render, after="fetch")
    assert stored == []


def test_a_step_name_must_be_unique(flow: Flow) -> None:
    flow.options(name="a").step(render)
    with pytest.raises(InvalidGraph, match="Two steps are named 'a'"):
        flow.options(name="a").step(fetch, "x")
    with pytest.raises(InvalidGraph, match="Two steps are named 'a'"):
        flow.options(name="a").workflow("pages")


def test_a_step_of_another_flow_is_refused_as_a_parent(flow: Flow) -> None:
    other = Flow(NewWorkflow(name="other"), print)
    foreign = other.step(fetch, "x")
    flow.step(fetch, "x")  # of the same name
    with pytest.raises(InvalidGraph, match="'fetch' belongs to another workflow"):
        flow.step(render, after=foreign)
    with flow.workflow("pages") as pages:
        inside = pages.step(render)
    with pytest.raises(InvalidGraph, match="belongs to another workflow"):
        flow.step(render, after=[inside])
    with pytest.raises(InvalidGraph, match="belongs to another workflow"):
        pages.step(render, after=pages)


@pytest.mark.parametrize("after", [5, render, [None], [["render"]]])
def test_a_value_that_is_not_a_step_is_refused_as_a_parent(flow: Flow, after: Any) -> None:
    with pytest.raises(InvalidValue, match="is not a step"):
        flow.step(render, after=after)


def test_a_parent_named_twice_is_refused(flow: Flow) -> None:
    fetched = flow.step(fetch, "x")
    with pytest.raises(InvalidGraph, match="twice"):
        flow.step(render, after=[fetched, "fetch"])


def test_wrong_arguments_are_refused_where_they_are_given(flow: Flow) -> None:
    with pytest.raises(InvalidValue, match="fetch: missing a required argument"):
        flow.step(fetch)
    with pytest.raises(InvalidValue, match="must be passed by name"):
        flow.step("fetch", "http://here")
    with pytest.raises(InvalidValue, match="neither a handler nor the name"):
        flow.step(print)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="'later' is not a valid on_failure"):
        flow.options(on_failure="later")
    with pytest.raises(InvalidValue, match="has a key"):
        flow.step(fetch.options(key="k"), "x")
    assert flow.new().steps == []


def test_a_parameter_with_the_name_after_is_passed_by_position(flow: Flow) -> None:
    flow.step(notify, "ops", "noon", after=flow.step(fetch, "x"))
    step = flow.new().steps[1]
    assert step.task is not None
    assert (step.task.params, step.after) == ({"name": "ops", "after": "noon"}, ["fetch"])


def test_a_second_finalizer_is_refused(flow: Flow) -> None:
    flow.finalize(fetch, "x")
    with pytest.raises(InvalidGraph, match="already has a finalizer: 'fetch'"):
        flow.finalize(render)


@pytest.mark.parametrize(
    ("options", "match"),
    [({"name": ""}, "name of a workflow"), ({"on_failure": "no"}, "on_failure"), ({"deadline": -1}, "deadline")],
)
def test_wrong_options_are_refused_before_the_block(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidValue, match=match):
        app.workflow(**{"name": "order", **options})


def test_nothing_is_stored_when_the_block_raises(flow: Flow, stored: list[NewWorkflow]) -> None:
    flow.step(fetch, "x")
    with pytest.raises(ZeroDivisionError), flow:
        _ = 1 / 0
    assert stored == []
    with pytest.raises(InvalidValue, match="'order' is not stored"):
        _ = flow.id


def test_a_stored_flow_takes_no_more_steps() -> None:
    flow = Flow(NewWorkflow(name="order"), lambda new: a_workflow())
    with flow, flow.workflow("pages") as pages:
        pages.step(render)
    assert (flow.id, flow.stored.name) == (7, "order")
    for more in (flow, pages):
        with pytest.raises(InvalidValue, match="workflow 7 is already stored"):
            more.step(render)
        with pytest.raises(InvalidValue, match="workflow 7 is already stored"):
            more.finalize(render)


def test_a_stored_flow_is_not_entered_again() -> None:
    async def start(new: NewWorkflow) -> Any:
        return a_workflow()

    async def main() -> None:
        async with AsyncFlow(NewWorkflow(name="order"), start) as flow:
            pass
        with pytest.raises(InvalidValue, match="workflow 7 is already stored"):
            async with flow:
                pass

    with Flow(NewWorkflow(name="order"), lambda new: a_workflow()) as flow:
        pass
    with pytest.raises(InvalidValue, match="workflow 7 is already stored"), flow:
        pass
    asyncio.run(main())


def test_an_async_flow_is_entered_with_async_with() -> None:
    async def main() -> None:
        stored: list[NewWorkflow] = []

        async def start(new: NewWorkflow) -> Any:
            stored.append(new)
            return a_workflow()

        async with AsyncFlow(NewWorkflow(name="order"), start) as flow:
            flow.step(fetch, "x")
            with flow.workflow("pages") as pages:
                pages.step(render)
        assert [shape(new) for new in stored] == [{"fetch": [], "pages": []}]
        assert flow.id == 7
        with pytest.raises(ZeroDivisionError):
            async with AsyncFlow(NewWorkflow(name="order"), start):
                _ = 1 / 0
        assert len(stored) == 1
        with (
            pytest.raises(InvalidValue, match="needs `async with`"),
            AsyncDibs("sqlite:///nowhere.db").workflow("order"),
        ):
            pass
        with pytest.raises(InvalidValue, match="needs `with`, not `async with`"):
            async with app.workflow("order"):
                pass

    asyncio.run(main())


def test_ten_thousand_steps_are_written_quickly(flow: Flow) -> None:
    last: StepRef | None = None
    for _ in range(10_000):
        last = flow.step(render, after=last)
    new = flow.new()
    assert (new.size, new.steps[-1].name, new.steps[-1].after) == (10_000, "render-10000", ["render-9999"])


def test_results_are_a_mapping_by_name_in_order() -> None:
    boom = Failure("ValueError", "boom")
    results = Results(
        [
            StepResult(1, "fetch", "fetch", State.COMPLETED, {"n": 1}),
            StepResult(3, "render", "render", State.COMPLETED, "one"),
            StepResult(2, "render-2", "render", State.FAILED, None, boom),
            StepResult(4, "render-3", "render", State.CANCELLED),
            StepResult(5, "nothing", "nothing", State.COMPLETED),
        ]
    )
    assert list(results) == ["fetch", "render", "render-2", "render-3", "nothing"]
    assert dict(results)["fetch"] == {"n": 1}
    assert (results["render-2"], results["nothing"], results.get("else")) == (None, None, None)
    assert results.of(render) == results.of("render") == ["one"]
    assert (results.of("nothing"), results.of("else")) == ([None], [])
    assert results.errors == {"render-2": boom, "render-3": Failure("Cancelled", "The step was cancelled.")}
    assert (len(results), len(Results()), dict(Results())) == (5, 0, {})


def test_the_result_of_a_step_that_is_not_a_parent_is_refused_with_the_names_of_the_parents() -> None:
    one = Results([StepResult(1, "fetch", "fetch", State.COMPLETED)])
    many = Results([StepResult(n, f"page-{n}", "page", State.COMPLETED) for n in range(11)])
    for results, said in ((one, "after 'fetch'. "), (many, "'page-9', …. "), (Results(), "after no step. ")):
        with pytest.raises(KeyError, match=f"not after 'far'.*{said}.*name it in `after`"):
            results["far"]
        assert ("far" in results, results.get("far", 5)) == (False, 5)


def test_a_new_step_needs_either_a_task_or_a_workflow() -> None:
    with pytest.raises(InvalidValue, match="either a task or a workflow"):
        NewStep(name="empty")


def a_workflow() -> Any:
    class Stored:
        id, name = 7, "order"

    return Stored()
