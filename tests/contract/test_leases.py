"""Promises 5, 7 and 10: a lost lease brings the task back, costs an attempt, and is judged by the database's clock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import dibs
from dibs import Claim, Event, Failure, NewTask, Renewed, State
from tests.helpers import tables
from tests.helpers.clients import Clock
from tests.helpers.tasks import enqueue_all, events, moment

LEASE_LOST = Failure("LeaseLost", "The lease ran out: the worker died, froze or lost its connection.")


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def claimed(app: Any, lease: float = 60, **options: Any) -> Claim:
    """A claim of a new task."""
    claim: Claim = app.claim_by_id(app.enqueue("resize", **options).id, "worker-1", lease=lease)
    return claim


# Lease and renewal


def test_a_lease_is_sixty_seconds_by_default(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(3)])
    usual, short = app.claim("worker-1"), app.claim("worker-1", lease=0.5)
    by_id = app.claim_by_id(app.peek()[0].id, "worker-1")
    assert usual.lease_until == by_id.lease_until == moment(clock) + seconds(60)
    assert short.lease_until == moment(clock) + seconds(0.5)
    assert [app.get(claim.task_id).lease_until for claim in (usual, short)] == [usual.lease_until, short.lease_until]
    assert app.get(usual.task_id).claimed_at == moment(clock)


def test_a_renewal_extends_the_lease_from_now(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    clock.advance(50)
    renewed = app.renew(claim)
    assert renewed == Renewed(claim.task_id, moment(clock) + seconds(60), cancel_requested=False)
    assert app.get(claim.task_id).lease_until == renewed.lease_until
    clock.advance(59)
    assert app.recover() == 0
    clock.advance(1)
    assert app.recover() == 1


def test_a_renewal_may_set_another_lease_also_a_shorter_one(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    assert app.renew(claim, 3600).lease_until == moment(clock) + seconds(3600)
    assert app.renew(claim, 0.25).lease_until == moment(clock) + seconds(0.25)
    clock.advance(0.25)
    assert app.recover() == 1


def test_a_claim_renewed_in_time_is_never_lost(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    for _ in range(20):
        clock.advance(20)
        app.renew(claim)
        assert app.claim("worker-2") is None
        assert app.upkeep().recovered == 0
    assert app.complete(claim).attempts == 1


def test_a_renewal_changes_the_lease_and_nothing_else(app: Any, url: str, clock: Clock) -> None:
    claim = claimed(app)
    before, history = app.get(claim.task_id), tables.read(url)["dibs_history"]
    clock.advance(5)
    renewed = app.renew(claim)
    after = app.get(claim.task_id)
    assert [name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)] == [
        "lease_until"
    ]
    assert after.lease_until == renewed.lease_until
    assert tables.read(url)["dibs_history"] == history


def test_many_claims_are_renewed_at_once_and_answered_in_order(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(100)])
    claims = app.claim_many("worker-1", 100)
    clock.advance(30)
    until = moment(clock) + seconds(90)
    assert app.renew_many(claims[::-1], 90) == [Renewed(claim.task_id, until, False) for claim in claims[::-1]]
    clock.advance(89)
    assert app.recover() == 0


def test_renew_and_progress_return_the_cancel_request(app: Any) -> None:
    claim = claimed(app)
    assert (app.renew(claim).cancel_requested, app.progress(claim, 10)) == (False, False)
    app.cancel(claim.task_id)
    assert (app.renew(claim).cancel_requested, app.progress(claim, 20)) == (True, True)


def test_progress_is_shown_until_the_next_claim_and_does_not_extend_the_lease(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    app.progress(claim, 40, "almost half")
    app.progress(claim, 50)
    app.progress(claim, 0, "again")
    task = app.get(claim.task_id)
    assert (task.progress, task.progress_message, task.lease_until) == (0, "again", claim.lease_until)
    app.progress(claim, 100, None)
    assert (app.get(claim.task_id).progress, app.get(claim.task_id).progress_message) == (100, None)
    app.release(claim)
    again = app.claim("worker-1").task
    assert (again.progress, again.progress_message) == (None, None)


# Recovery


def test_a_task_is_recovered_when_its_lease_ran_out_and_not_before(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    clock.advance(59.999999)
    assert app.recover() == 0
    assert app.get(claim.task_id).state is State.CLAIMED
    clock.advance(0.000001)
    assert app.recover() == 1
    task = app.get(claim.task_id)
    assert (task.state, task.attempts, task.error) == (State.PENDING, 1, LEASE_LOST)
    assert (task.lease_until, task.finished_at) == (None, None)
    assert app.recover() == 0


def test_a_recovery_is_recorded_in_the_history_with_the_former_holder(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    clock.advance(60)
    app.signed("upkeep").recover()
    last = app.history(claim.task_id)[-1]
    assert (last.event, last.from_state, last.to_state) == (Event.RECOVERED, State.CLAIMED, State.PENDING)
    assert (last.worker_id, last.token, last.by, last.at) == ("worker-1", 1, "upkeep", moment(clock))


def test_recovery_never_touches_a_live_lease(app: Any, clock: Clock) -> None:
    short, long, renewed = claimed(app, lease=10), claimed(app, lease=100), claimed(app, lease=10)
    clock.advance(5)
    app.renew(renewed, 10)
    before = [app.get(claim.task_id) for claim in (long, renewed)]
    clock.advance(5)
    assert app.recover() == 1
    assert [app.get(claim.task_id) for claim in (long, renewed)] == before
    assert app.get(short.task_id).state is State.PENDING


def test_a_client_that_starts_recovers_no_live_claims(
    app: Any, url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    claim = claimed(app)
    before = tables.read(url)
    other = open_app(url, clock=clock)
    assert other.claim("worker-1") is None
    assert (other.upkeep().recovered, other.recover()) == (0, 0)
    assert tables.read(url) == before
    app.complete(claim)


def test_a_worker_that_is_reported_as_gone_keeps_its_lease(app: Any) -> None:
    claim = claimed(app)
    app.heartbeat("worker-1", leaving=True)
    assert app.recover() == 0
    app.complete(claim)


def test_a_claim_recovers_tasks_with_expired_leases_without_upkeep(app: Any, clock: Clock) -> None:
    first = claimed(app)
    clock.advance(59)
    assert app.claim("worker-2") is None
    clock.advance(1)
    again = app.claim("worker-2")
    assert (again.task_id, again.token, again.attempt) == (first.task_id, 2, 2)
    assert events(app, first.task_id) == ["enqueued", "claimed", "recovered", "claimed"]


def test_a_claim_by_id_recovers_a_task_with_an_expired_lease_without_upkeep(app: Any, clock: Clock) -> None:
    first = claimed(app)
    clock.advance(59)
    with pytest.raises(dibs.AlreadyClaimed, match="already claimed by worker-1"):
        app.claim_by_id(first.task_id, "worker-2")
    clock.advance(1)
    assert app.claim_by_id(first.task_id, "worker-2").token == 2


def test_a_batch_claim_recovers_tasks_with_expired_leases(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(20)])
    lost = app.claim_many("worker-1", 20)
    clock.advance(60)
    found = app.claim_many("worker-2", 100)
    assert sorted(claim.task_id for claim in found) == sorted(claim.task_id for claim in lost)


def test_upkeep_recovers_more_than_one_batch(app: Any, clock: Clock) -> None:
    enqueue_all(app, [NewTask("resize") for _ in range(1200)])
    for _ in range(2):
        app.claim_many("worker-1", 600)
    clock.advance(60)
    assert app.upkeep().recovered == 1200
    assert app.stats().depth == {"pending": 1200}


def test_a_lost_task_is_recovered_once_by_concurrent_recoveries(
    app: Any, url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    apps = [app, open_app(url, clock=clock)]
    app.enqueue_many([NewTask("resize") for _ in range(300)])
    app.claim_many("worker-1", 300)
    clock.advance(60)
    with ThreadPoolExecutor(8) as pool:
        moved = list(pool.map(lambda n: apps[n % 2].recover(), range(8)))
    while more := app.recover():  # tasks that two concurrent recoveries tried to recover
        moved.append(more)
    assert sum(moved) == 300
    assert sum(entry.event is Event.RECOVERED for entry in app.all_history()) == 300
    assert {task.attempts for task in app.list_tasks(limit=300)} == {1}


def test_a_recovered_task_of_a_paused_queue_is_not_claimed_until_the_queue_is_resumed(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    app.pause("default")
    clock.advance(60)
    assert app.claim("worker-2") is None
    assert app.get(claim.task_id).state is State.PENDING


# Bounded attempts


def test_a_task_that_kills_its_workers_reaches_the_dead_letter(app: Any, clock: Clock) -> None:
    task = app.enqueue("poison", max_attempts=3)
    attempts = []
    while claim := app.claim("worker-1"):
        attempts.append((claim.token, claim.attempt))
        clock.advance(60)
    assert attempts == [(1, 1), (2, 2), (3, 3)]
    dead = app.get(task.id)
    assert (dead.state, dead.attempts, dead.error) == (State.FAILED, 3, LEASE_LOST)
    assert dead.finished_at == moment(clock)
    assert app.history(task.id)[-1].to_state is State.FAILED


def test_lost_and_failed_attempts_are_counted_together(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", max_attempts=3)
    app.fail(app.claim("worker-1"), "no", retry_in=0)
    app.release(app.claim("worker-1"))
    app.claim("worker-1")
    clock.advance(60)
    app.recover()
    assert (app.get(task.id).attempts, app.get(task.id).state) == (2, State.PENDING)
    assert app.fail(app.claim("worker-1"), "last").state is State.FAILED


def test_a_task_with_one_attempt_is_not_run_again_after_its_worker_died(app: Any, clock: Clock) -> None:
    claim = claimed(app, max_attempts=1)
    clock.advance(60)
    assert app.claim("worker-2") is None
    assert (app.get(claim.task_id).state, app.get(claim.task_id).error) == (State.FAILED, LEASE_LOST)


def test_a_completed_attempt_after_a_lost_one_leaves_no_error(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    clock.advance(60)
    app.complete(app.claim("worker-2"), "fine")
    task = app.get(claim.task_id)
    assert (task.state, task.attempts, task.result, task.error) == (State.COMPLETED, 2, "fine", None)


def test_a_lost_task_with_a_cancel_request_is_cancelled(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    app.cancel(claim.task_id)
    clock.advance(60)
    assert app.recover() == 1
    task = app.get(claim.task_id)
    assert (task.state, task.attempts, task.finished_at) == (State.CANCELLED, 1, moment(clock))
    assert events(app, claim.task_id) == ["enqueued", "claimed", "cancel_requested", "recovered"]
    assert app.claim("worker-2") is None


# Late, but not lost


def test_an_expired_claim_that_is_not_recovered_yet_can_still_be_completed_by_its_holder(
    app: Any, clock: Clock
) -> None:
    claim = claimed(app)
    clock.advance(3600)
    assert app.complete(claim, "late").state is State.COMPLETED
    assert app.recover() == 0
    assert (app.get(claim.task_id).attempts, app.get(claim.task_id).result) == (1, "late")


def test_an_expired_claim_that_is_not_recovered_yet_can_still_be_renewed_by_its_holder(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    clock.advance(3600)
    app.renew(claim)
    assert app.claim("worker-2") is None
    assert app.complete(claim).state is State.COMPLETED


def test_an_expired_claim_that_is_not_recovered_yet_can_still_be_failed_and_released_by_its_holder(
    app: Any, clock: Clock
) -> None:
    failed, released = claimed(app), claimed(app)
    clock.advance(3600)
    assert app.fail(failed, "late").attempts == 1
    assert app.release(released).attempts == 0


# Clocks


@pytest.mark.parametrize("hours", [-1, 1, 24 * 365])
def test_leases_follow_the_clock_of_the_database_only(app: Any, clock: Clock, hours: int) -> None:
    clock.advance(hours * 3600)  # the clock of this process, where the worker runs, stays where it is
    claim = claimed(app)
    assert (claim.task.claimed_at, claim.lease_until) == (moment(clock), moment(clock) + seconds(60))
    clock.advance(59)
    assert (app.recover(), app.claim("worker-2")) == (0, None)
    clock.advance(1)
    assert app.claim("worker-2").token == 2


def test_a_clock_that_jumps_ahead_may_repeat_the_execution_but_not_the_completion(app: Any, clock: Clock) -> None:
    first = claimed(app)
    clock.advance(3600)
    second = app.claim("worker-2")
    app.complete(second, "second")
    with pytest.raises(dibs.ClaimLost):
        app.complete(first, "first")
    assert app.get(first.task_id).result == "second"
    assert events(app, first.task_id).count("completed") == 1


def test_a_clock_that_jumps_back_leaves_the_claim_with_its_holder(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    clock.advance(-3600)
    assert (app.recover(), app.claim("worker-2")) == (0, None)
    assert app.renew(claim).lease_until == moment(clock) + seconds(60)
    clock.advance(60)
    again = app.claim("worker-2")
    assert (again.task_id, again.token) == (claim.task_id, 2)
    assert app.complete(again).state is State.COMPLETED
