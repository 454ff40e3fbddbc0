"""The finalizer after a failure begins once and its workflow ends once, whatever ends at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import Any

import pytest

from dibs import FinalizationLost, NewTask, WrongWorkflowState
from tests.helpers.workflows import by_name, claim, complete, finalize_due, start, state, step, task_of

END = "(finalizer)"


def begin(app: Any, *steps: Any, **about: Any) -> int:
    """A new workflow with a finalizer that always runs."""
    return start(app, *steps, finalizer=NewTask("end", max_attempts=1), finalize_when="always", **about)


def events(app: Any, task_id: int) -> list[str]:
    return [entry.event.value for entry in app.history(task_id)]


@pytest.mark.own_connections
def test_the_last_steps_fail_at_once_and_one_finalizer_runs(url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)
    count = 4
    for _ in range(5):
        steps = [step(f"s{n}") for n in range(count)]
        order = begin(app, *steps, on_failure="continue")
        held = [claim(app, order, f"s{n}") for n in range(count)]
        together = Barrier(count)

        def end(n: int, order: int = order, held: Any = held, together: Barrier = together) -> None:
            together.wait()
            app.fail(held[n], "broken", permanent=True)
            answer = app.claim_finalization(order, f"p{n}")
            if answer.claimed:
                app.finalize(order, f"p{n}", answer.token)

        with ThreadPoolExecutor(count) as pool:
            list(pool.map(end, range(count)))
        finalize_due(app)
        finalizer = by_name(app, order)[END]
        assert events(app, finalizer.task_id) == ["enqueued", "promoted"]
        complete(app, order, END)
        assert state(app, order) == "failed"


@pytest.mark.own_connections
def test_a_cancellation_and_the_last_step_leave_one_end_and_one_finalizer(
    url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(url)
    for _ in range(8):
        order = begin(app, step("a"))
        held, together = claim(app, order, "a"), Barrier(2)

        def cancel(order: int = order, together: Barrier = together) -> None:
            together.wait()
            app.cancel_workflow(order)

        def last(order: int = order, held: Any = held, together: Barrier = together) -> None:
            together.wait()
            app.complete(held)
            answer = app.claim_finalization(order, "p")
            with suppress(FinalizationLost):  # the cancellation has begun the finalizer since
                app.finalize(order, "p", answer.token) if answer.claimed else None

        with ThreadPoolExecutor(2) as pool:
            outcomes = [pool.submit(cancel), pool.submit(last)]
        errors = [each.exception() for each in outcomes]
        assert all(error is None or isinstance(error, WrongWorkflowState) for error in errors), errors
        finalize_due(app)
        assert events(app, task_of(app, order, END)) == ["enqueued", "promoted"]
        ends_as = app.get_workflow(order).ends_as.value
        complete(app, order, END)
        assert state(app, order) == ends_as == ("completed" if errors[0] else "cancelled")
