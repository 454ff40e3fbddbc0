"""The holder of a task: a waiting task has none; a worker that claims a task it holds is refused with that reason."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import AlreadyClaimed, Cancelled, Failure, State
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.helpers.workflows import BROKEN, step, task_of
from tests.helpers.workflows import start as start_workflow

NO = Failure("ValueError", "no")


def fails_for_good(app: Any) -> Any:
    claim = app.claim("worker-1")
    app.fail(claim, NO, permanent=True)
    return claim


def released(app: Any, clock: Clock) -> None:
    app.release(app.claim("worker-1"))


def released_for_later(app: Any, clock: Clock) -> None:
    app.release(app.claim("worker-1"), delay=5)


def failed_with_a_retry(app: Any, clock: Clock) -> None:
    app.fail(app.claim("worker-1"), NO)


def failed_and_pending_at_once(app: Any, clock: Clock) -> None:
    app.fail(app.claim("worker-1"), NO, retry_in=0)


def recovered(app: Any, clock: Clock) -> None:
    app.claim("worker-1", lease=1)
    clock.advance(2)
    app.recover()


def recovered_before_it_began(app: Any, clock: Clock) -> None:
    app.claim("worker-1", lease=1, ahead=True)
    clock.advance(2)
    app.recover()


def retried(app: Any, clock: Clock) -> None:
    app.retry(fails_for_good(app).task_id)


def redriven(app: Any, clock: Clock) -> None:
    fails_for_good(app)
    app.redrive()


WAYS_BACK = [
    released,
    released_for_later,
    failed_with_a_retry,
    failed_and_pending_at_once,
    recovered,
    recovered_before_it_began,
    retried,
    redriven,
]


@pytest.mark.parametrize("goes_back", WAYS_BACK, ids=lambda way: way.__name__)
def test_a_task_that_is_pending_again_has_no_holder_and_its_history_names_the_former_holder(
    app: Any, url: str, clock: Clock, goes_back: Any
) -> None:
    task = app.enqueue("resize")
    goes_back(app, clock)
    waiting = app.get(task.id)
    assert waiting.state in (State.PENDING, State.SCHEDULED)
    assert (waiting.worker_id, waiting.claimed_at, waiting.lease_until) == (None, None, None)
    assert run_sql(url, "SELECT worker_id, claimed_at FROM dibs_tasks") == [(None, None)]
    ended = [entry for entry in app.history(task.id) if entry.event.value in ("released", "failed", "recovered")]
    assert [(entry.worker_id, entry.token) for entry in ended] == [("worker-1", 1)]


def test_a_task_that_ended_still_shows_its_last_holder(app: Any, clock: Clock) -> None:
    for _ in range(4):
        app.enqueue("resize", max_attempts=1)
    claims = app.claim_many("worker-1", 4, lease=1)
    app.complete(claims[0])
    app.fail(claims[1], NO)
    app.cancel(claims[2].task_id)
    app.finish([(claims[2], Cancelled())])
    clock.advance(2)
    app.recover()
    tasks = [app.get(claim.task_id) for claim in claims]
    assert [task.state.value for task in tasks] == ["completed", "failed", "cancelled", "failed"]
    assert {task.worker_id for task in tasks} == {"worker-1"}
    assert {task.claimed_at for task in tasks} == {claims[0].task.claimed_at}


def test_a_retried_step_has_no_holder(app: Any) -> None:
    workflow = start_workflow(app, step("fetch"), step("parse", "fetch"))
    app.finish([(app.claim("worker-1"), BROKEN)])
    app.upkeep()
    app.retry_workflow(workflow)
    task = app.get(task_of(app, workflow, "fetch"))
    assert (task.state, task.worker_id, task.claimed_at) == (State.PENDING, None, None)


def test_the_refusal_of_a_claim_by_id_of_a_held_task_names_the_worker_itself_as_the_holder(app: Any) -> None:
    task = app.enqueue("resize")
    claim = app.claim_by_id(task.id, "worker-1")
    with pytest.raises(AlreadyClaimed, match=f"worker-1 already holds task {task.id} under token 1") as own:
        app.claim_by_id(task.id, "worker-1")
    assert (own.value.worker_id, own.value.token) == ("worker-1", claim.token)
    assert "renew" in own.value.hint
    with pytest.raises(AlreadyClaimed, match="already claimed by worker-1") as other:
        app.claim_by_id(task.id, "worker-2")
    assert (other.value.worker_id, other.value.token) == ("worker-1", None)


# Why a step was cancelled


def test_the_explanation_of_a_step_names_the_sibling_whose_failure_cancelled_it(app: Any) -> None:
    workflow = start_workflow(app, step("fetch"), step("check"), step("parse", "fetch", "check"))
    fetch = app.claim("worker-1", types=["fetch"])
    app.finish([(fetch, BROKEN)])
    for name in ("check", "parse"):
        explained = app.explain(task_of(app, workflow, name))
        assert [reason.code for reason in explained.reasons] == ["cancelled"]
        cause = f"because step 'fetch' (task {fetch.task_id}) of workflow {workflow} failed: Error: broken"
        assert cause in str(explained)


def test_the_explanation_of_a_step_says_that_its_workflow_was_cancelled(app: Any) -> None:
    workflow = start_workflow(app, step("fetch"))
    app.cancel_workflow(workflow)
    assert f"because workflow {workflow} was cancelled" in str(app.explain(task_of(app, workflow, "fetch")))


def test_the_explanation_of_a_step_that_was_cancelled_by_hand_names_no_other_step(app: Any) -> None:
    workflow = start_workflow(app, step("fetch"), step("check"))
    app.cancel(task_of(app, workflow, "fetch"))
    assert "because" not in str(app.explain(task_of(app, workflow, "fetch")))
    assert "because step 'fetch'" in str(app.explain(task_of(app, workflow, "check")))
