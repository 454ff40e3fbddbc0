"""A task has the trace context of its enqueue, on every engine and over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import InvalidValue, NewStep, NewTask, NewWorkflow

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00"


def test_a_claimed_task_has_the_trace_of_its_enqueue(app: Any) -> None:
    stored = app.enqueue_many([NewTask("a", trace=TRACE), NewTask("a")])
    assert [task.trace for task in stored] == [TRACE, None]
    claims = app.claim_many("w", 2)
    assert {claim.task_id: claim.task.trace for claim in claims} == {stored[0].id: TRACE, stored[1].id: None}
    assert app.get(stored[0].id).trace == TRACE


def test_every_attempt_has_the_same_trace(app: Any, clock: Any) -> None:
    app.enqueue_many([NewTask("a", trace=TRACE)])
    app.fail(app.claim("w"), "boom", retry_in=1)
    clock.advance(2)
    again = app.claim("w")
    assert (again.attempt, again.task.trace) == (2, TRACE)


def test_a_trace_is_not_part_of_the_content_of_an_idempotency_key(app: Any) -> None:
    first = app.enqueue_many([NewTask("a", key="k", trace=TRACE)])[0]
    again = app.enqueue_many([NewTask("a", key="k", trace=OTHER)])[0]
    assert (again.id, again.deduplicated, again.trace) == (first.id, True, TRACE)


def test_the_steps_of_a_workflow_and_its_finalizer_have_a_trace(app: Any) -> None:
    inner = NewWorkflow(name="inner", steps=[NewStep(name="b", task=NewTask("b", trace=TRACE))])
    steps = [NewStep(name="a", task=NewTask("a", trace=OTHER)), NewStep(name="in", workflow=inner)]
    new = NewWorkflow(name="outer", key="k", steps=steps, finalizer=NewTask("end", trace=TRACE))
    started = app.start_workflow(new)
    app.add_steps(started.id, [NewStep(name="c", task=NewTask("c", trace=OTHER))])
    tasks = {task.type: task.trace for task in app.list_tasks()}
    assert {name: tasks[name] for name in ("a", "b", "c", "end")} == {"a": OTHER, "b": TRACE, "c": OTHER, "end": TRACE}


def test_steps_that_a_step_adds_have_a_trace(app: Any) -> None:
    app.start_workflow(NewWorkflow(name="flow", steps=[NewStep(name="a", task=NewTask("a"))]))
    app.complete(app.claim("w"), steps=[NewStep(name="b", task=NewTask("b", trace=TRACE))])
    assert app.claim("w").task.trace == TRACE


@pytest.mark.parametrize(
    "trace",
    [
        "",
        7,
        TRACE.upper(),
        TRACE + "\n",
        TRACE + "-x",
        "01" + TRACE[2:],
        "ff" + TRACE[2:],
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        TRACE.replace("-", "_"),
        "<script>",
    ],
)
def test_a_malformed_traceparent_is_refused(trace: Any) -> None:
    with pytest.raises(InvalidValue, match="not a valid traceparent"):
        NewTask("a", trace=trace)
