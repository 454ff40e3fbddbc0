"""Traces: a task and a step keep the trace that they were enqueued with, through every claim and retry."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs import NewStep, NewTask, NewWorkflow

pytestmark = pytest.mark.database("how a trace travels over HTTP is tested with the server")

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_task_keeps_its_trace(app: Any) -> None:
    traced, plain = app.enqueue_many([NewTask("resize", trace=TRACE, key="a"), NewTask("resize")])
    assert (traced.trace, plain.trace) == (TRACE, None)
    assert [task.trace for task in app.list_tasks()] == [None, TRACE]
    claim = app.claim("worker-1")
    assert claim.task.trace == TRACE
    app.fail(claim, "broken", permanent=True)
    app.retry(claim.task_id)
    assert app.claim("worker-2").task.trace == TRACE


def test_an_enqueue_that_is_repeated_under_another_trace_is_the_same_task(app: Any) -> None:
    app.enqueue_many([NewTask("resize", key="a", trace=TRACE)])
    [again] = app.enqueue_many([NewTask("resize", key="a", trace=TRACE.replace("b7", "c8"))])
    assert (again.deduplicated, again.trace) == (True, TRACE)


def test_a_step_keeps_its_trace_and_the_key_of_its_workflow_does_not_depend_on_it(app: Any) -> None:
    def order(trace: str | None) -> NewWorkflow:
        step = NewStep(name="fetch", task=NewTask("fetch", trace=trace))
        return NewWorkflow(name="order", steps=[step], key="order-7")

    workflow = app.start_workflow(order(TRACE))
    assert app.claim("worker-1").task.trace == TRACE
    assert app.start_workflow(order(None)).id == workflow.id


@pytest.mark.parametrize("trace", ["", "a", TRACE.upper(), TRACE + "\n", 7, "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
def test_what_is_no_trace_is_refused(trace: Any) -> None:
    with pytest.raises(dibs.InvalidValue):
        NewTask("resize", trace=trace)
