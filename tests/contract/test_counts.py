"""Counters: every call is counted in the process that makes it, and every transition of a task is counted once."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import Cancelled, ClaimLost, ClaimRef, Completed, Failed, Failure, NewStep, NewTask, NewWorkflow, Released
from dibs.errors import AlreadyClaimed, TaskNotFound
from tests.helpers.clients import Clock
from tests.helpers.counts import watch
from tests.helpers.limiting import put

pytestmark = pytest.mark.usefixtures("new_counts")
database = pytest.mark.database("over HTTP client and server both count, which here are one process")

FAILURE = Failed(Failure("Error", "no"))


def claimed(app: Any, type: str = "resize", worker: str = "w", **options: Any) -> Any:
    return app.claim_by_id(app.enqueue(type, **options).id, worker)


def ref(claim: Any) -> ClaimRef:
    return ClaimRef(claim.task_id, claim.token, claim.worker_id)


# Claims


@database
def test_claims_are_counted_by_result(app: Any) -> None:
    app.enqueue_many([NewTask("resize")] * 3)
    grown = watch("task_claim_")
    app.claim_many("w", 2)
    app.claim("w")
    app.claim("w")
    assert grown() == {
        "task_claim_duration_seconds": 3,
        "task_claim_attempts_total": 3,
        "task_claim_success_total": 2,
        "task_claim_tasks_total": 3,
        "task_claim_contention_total": 1,
    }


@database
def test_claims_by_id_are_counted_also_when_they_are_refused(app: Any) -> None:
    task = app.enqueue("resize")
    grown = watch("task_claim_")
    app.claim_by_id(task.id, "w")
    with pytest.raises(AlreadyClaimed):
        app.claim_by_id(task.id, "v")
    with pytest.raises(TaskNotFound):
        app.claim_by_id(task.id + 1, "v")
    assert grown() == {
        "task_claim_duration_seconds": 3,
        "task_claim_attempts_total": 3,
        "task_claim_success_total": 1,
        "task_claim_tasks_total": 1,
        "task_claim_contention_total": 2,
    }


@database
def test_the_seconds_that_a_task_has_waited_for_a_limit_are_counted_when_it_is_claimed(app: Any, clock: Clock) -> None:
    put(app, "stripe", max=1)
    app.enqueue_many([NewTask("resize", limits=["stripe"])] * 3)
    grown = watch("task_limit_wait")
    [first] = app.claim_many("w", 9, lease=600)
    assert grown() == {}
    clock.advance(30)
    app.complete(first)
    app.claim_many("w", 9)
    assert grown() == {"task_limit_wait_seconds stripe": 1}


@database
def test_the_seconds_for_each_of_the_limits_for_which_a_task_has_waited_are_counted(app: Any, clock: Clock) -> None:
    put(app, "a", max=1)
    put(app, "b", max=1)
    app.enqueue_many([NewTask("of-a", limits=["a"])])
    [held_a] = app.claim_many("w", 9, lease=600)
    app.enqueue_many([NewTask("of-both", limits=["a", "b"]), NewTask("of-b", limits=["b"])])
    [held_b] = app.claim_many("w", 9, lease=600)
    clock.advance(100)
    app.complete(held_a)
    grown = watch("task_limit_wait")
    app.claim_many("w", 9)
    clock.advance(50)
    app.complete(held_b)
    app.claim_many("w", 9)
    assert grown() == {"task_limit_wait_seconds a": 1, "task_limit_wait_seconds b": 1}


@database
def test_an_exchange_counts_as_a_finish_and_a_claim(app: Any) -> None:
    app.enqueue_many([NewTask("resize")] * 2)
    claim = app.claim("w")
    grown = watch("task_claim_", "task_completed")
    app.exchange([(claim, Completed())], "w")
    app.exchange([(claim, FAILURE)], "w")
    assert grown() == {
        "task_claim_duration_seconds": 2,
        "task_claim_attempts_total": 2,
        "task_claim_success_total": 1,
        "task_claim_tasks_total": 1,
        "task_claim_contention_total": 1,
        "task_claim_stale_token_total fail": 1,
        "task_completed_total default resize": 1,
    }


@database
def test_renewals_are_counted_per_lease(app: Any) -> None:
    held, lost = claimed(app), claimed(app)
    app.release(lost)
    grown = watch("task_claim_")
    app.renew_many([held, lost])
    assert grown() == {
        "task_claim_renew_duration_seconds": 1,
        "task_claim_renew_attempts_total": 2,
        "task_claim_renew_success_total": 1,
        "task_claim_renew_failed_total": 1,
        "task_claim_stale_token_total renew": 1,
    }


@database
def test_a_write_with_a_stale_token_is_counted_by_operation(app: Any) -> None:
    claims = [claimed(app) for _ in range(4)]
    app.finish([(claim, Released()) for claim in claims])
    grown = watch("task_")
    outcomes = [Completed(), FAILURE, Released(5), Cancelled()]
    app.finish(list(zip(map(ref, claims), outcomes, strict=True)))
    for claim in claims[:2]:
        with pytest.raises(ClaimLost):
            app.progress(claim, 50)
    with pytest.raises(ClaimLost):
        app.keep_checkpoint(claims[0], "name", 1)
    refused = ("complete", "fail", "cancel", "checkpoint")
    assert grown() == {f"task_claim_stale_token_total {name}": 1 for name in refused} | {
        "task_claim_stale_token_total progress": 2,
        "task_claim_release_attempts_total": 1,
    }


# What becomes of tasks


@pytest.mark.parametrize("named", [False, True], ids=["by the claim", "by its token alone"])
@database
def test_outcomes_are_counted_by_queue_and_type(app: Any, named: bool) -> None:
    name = ref if named else (lambda claim: claim)
    done, again, dead = (claimed(app, type, queue="q", max_attempts=n) for type, n in (("a", 3), ("a", 3), ("b", 1)))
    grown = watch("task_c", "task_f", "task_retried", "task_dead")
    app.finish([(name(done), Completed()), (name(again), FAILURE), (name(dead), FAILURE)])
    assert grown() == {
        "task_completed_total q a": 1,
        "task_failed_total q a": 1,
        "task_retried_total q a": 1,
        "task_failed_total q b": 1,
        "task_dead_letter_total q b": 1,
    }


@database
def test_a_repeated_outcome_is_not_counted_again(app: Any) -> None:
    claim = claimed(app)
    grown = watch("task_completed")
    app.complete(claim)
    assert app.complete(claim).repeated
    assert grown() == {"task_completed_total default resize": 1}


@database
def test_expired_leases_are_counted_also_when_a_claim_recovers_them(app: Any, clock: Clock) -> None:
    claimed(app, "a")
    claimed(app, "b", queue="q", max_attempts=1)
    clock.advance(61)
    grown = watch("task_claim_expired", "task_dead", "task_failed")
    app.claim("v", queues=["elsewhere"])
    assert grown() == {"task_claim_expired_total": 2, "task_dead_letter_total q b": 1}
    claimed(app, "a")
    clock.advance(61)
    app.recover()
    assert grown()["task_claim_expired_total"] == 3


@database
def test_new_tasks_are_counted_by_queue_and_deduplicated_enqueues_are_not(app: Any, clock: Clock) -> None:
    grown = watch("task_enqueued")
    app.enqueue("resize", queue="q", key="k")
    app.enqueue("resize", queue="q", key="k")
    app.enqueue_many([NewTask("resize", queue="q"), NewTask("resize", queue="q", key="k"), NewTask("resize")])
    app.set_schedule("s", "* * * * *", "resize", queue="ticks")
    app.run_schedule("s")
    clock.advance(60)
    app.tick()
    app.start_workflow(NewWorkflow(name="w", steps=[NewStep(name="a", task=NewTask("resize", queue="f"))]))
    assert grown() == {
        "task_enqueued_total q": 2,
        "task_enqueued_total default": 1,
        "task_enqueued_total ticks": 2,
        "task_enqueued_total f": 1,
    }


@pytest.mark.parametrize("engine", ["http"], indirect=True)
def test_over_http_only_the_server_counts_transitions_of_tasks(app: Any) -> None:
    grown = watch("task_e", "task_co", "task_claim_tasks", "task_claim_duration", "task_claim_stale")
    claim = claimed(app)
    app.complete(claim)
    with pytest.raises(ClaimLost):
        app.fail(claim, "no")
    assert grown() == {
        "task_enqueued_total default": 1,
        "task_completed_total default resize": 1,
        "task_claim_tasks_total": 2,  # by the client and by the server
        "task_claim_duration_seconds": 2,
        "task_claim_stale_token_total fail": 2,
    }


@pytest.mark.parametrize("engine", ["http"], indirect=True)
def test_the_waiting_time_of_a_long_poll_does_not_count_as_duration_of_the_claim(app: Any) -> None:
    grown = watch("task_claim_duration", "task_claim_attempts")
    assert app.claim("w", wait=0.3) is None
    seen = grown()
    assert seen["task_claim_attempts_total"] > seen["task_claim_duration_seconds"]
