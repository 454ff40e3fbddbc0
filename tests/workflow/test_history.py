"""The history of steps is complete and checked by the rules of tasks; explain states why a step does not run."""

from __future__ import annotations

from typing import Any

import dibs
from dibs import NewTask
from dibs.observe.verify import verify
from tests.helpers.clients import Clock
from tests.helpers.retention import keep
from tests.helpers.workflows import (
    BROKEN,
    DIAMOND,
    WORKER,
    claim,
    complete,
    drive,
    fail,
    inner,
    start,
    step,
    sub,
    task_of,
)


def assert_sound(app: Any) -> None:
    report = verify(app.all_history(), tasks=app.list_tasks(limit=1000))
    assert report.ok, str(report)


# The checker accepts what workflows do


def test_the_history_of_a_completed_workflow_breaks_no_rule(app: Any) -> None:
    start(app, *DIAMOND, sub("pages", step("p"), after=["fetch"]), finalizer=NewTask("report"))
    drive(app)
    assert_sound(app)


def test_the_history_of_failures_and_retries_breaks_no_rule(app: Any) -> None:
    order = start(app, *DIAMOND, sub("pages", step("p"), step("q", "p"), after=["left"]), finalizer=NewTask("report"))
    for broken in ("fetch", "p", "q", "report"):
        drive(app, {broken: BROKEN})
        assert_sound(app)
        app.retry_workflow(order)
    drive(app)
    assert_sound(app)


def test_the_history_of_growth_delays_and_lost_leases_breaks_no_rule(app: Any, clock: Clock) -> None:
    order = start(app, step("split", delay=5), step("join", "split", delay=5, max_attempts=2), on_failure="continue")
    clock.advance(5)
    app.promote()
    complete(app, order, "split", steps=[step("a"), step("b", "a")])
    drive(app)
    clock.advance(5)
    app.claim(WORKER)
    clock.advance(61)
    app.claim(WORKER)
    clock.advance(61)
    app.upkeep()
    assert_sound(app)


def test_the_history_of_cancelling_and_pruning_breaks_no_rule(app: Any) -> None:
    order = start(app, *DIAMOND, sub("pages", step("p")), finalizer=NewTask("report"))
    held = claim(app, order, "fetch")
    app.cancel_workflow(order)
    app.finish([(held, dibs.Cancelled())])
    drive(app)
    assert_sound(app)
    keep(app, cancelled=0)
    app.prune()
    assert app.list_tasks() == []
    assert_sound(app)


def test_the_history_records_that_the_workflow_cancelled_a_step(app: Any) -> None:
    order = start(app, *DIAMOND)
    fail(app, order, "fetch")
    last = app.history(task_of(app, order, "merge"))[-1]
    assert (last.event, last.from_state, last.to_state, last.detail) == (
        "cancelled",
        "blocked",
        "cancelled",
        {"by": "workflow"},
    )


# Why it does not run


def why(app: Any, workflow_id: int, name: str) -> list[tuple[str, str]]:
    reasons = app.explain(task_of(app, workflow_id, name)).reasons
    return [(each.code, each.message) for each in reasons]


def test_explain_names_the_parents_that_a_blocked_step_waits_for(app: Any) -> None:
    order = start(app, *DIAMOND)
    complete(app, order, "fetch")
    complete(app, order, "left")
    right = task_of(app, order, "right")
    assert why(app, order, "merge") == [("blocked", f"It waits for step 'right' (task {right}), which is pending.")]


def test_explain_names_the_failure_that_blocks_a_step(app: Any) -> None:
    order = start(app, step("a"), step("b", "a"), step("c"), on_failure="continue")
    fail(app, order, "a")
    a = task_of(app, order, "a")
    assert why(app, order, "b") == [("blocked", f"It waits for step 'a' (task {a}), which is failed.")]


def test_explain_reports_that_a_finalizer_waits_for_all_steps(app: Any) -> None:
    order = start(app, step("a"), finalizer=NewTask("report"))
    message = f"It is the finalizer of workflow {order}: it runs when all steps are done."
    assert why(app, order, "(finalizer)") == [("blocked", message)]


def test_explain_reports_that_a_step_waits_for_its_sub_workflow_to_begin(app: Any) -> None:
    order = start(app, step("a"), sub("pages", step("p"), after=["a"]))
    pages = inner(app, order, "pages")
    message = f"It is a step of workflow {pages}, which has not begun."
    assert why(app, pages, "p") == [("blocked", message)]
    complete(app, order, "a")
    running = f"It is running: it represents a workflow (workflow-{pages})."
    assert why(app, order, "pages") == [("claimed", running)]
