"""Calls that manage tasks and queues: cancel, retry, redrive, pause and resume."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dibs
from dibs import ClaimLost, NewTask, State, TaskNotFound, WrongState
from tests.helpers.clients import Clock
from tests.helpers.tasks import dead, events, moment, task_in

FOREVER = 1000 * 24 * 3600.0

# Cancel


@pytest.mark.parametrize("state", ["pending", "scheduled"])
def test_a_task_that_is_not_running_is_cancelled_at_once(app: Any, clock: Clock, state: str) -> None:
    task = task_in(app, state)
    cancelled = app.cancel(task.id)
    assert (cancelled.state, cancelled.finished_at, cancelled.attempts) == (State.CANCELLED, moment(clock), 0)
    assert app.get(task.id) == cancelled
    assert events(app, task.id) == ["enqueued", "cancelled"]


@pytest.mark.parametrize("state", ["pending", "scheduled"])
def test_a_cancelled_task_is_never_claimed(app: Any, clock: Clock, state: str) -> None:
    app.cancel(task_in(app, state).id)
    clock.advance(FOREVER)
    assert app.claim("worker-1") is None


def test_cancelling_a_running_task_stores_a_cancel_request_and_keeps_the_claim(app: Any) -> None:
    task = task_in(app, "claimed")
    asked = app.cancel(task.id)
    assert (asked.state, asked.cancel_requested, asked.token) == (State.CLAIMED, True, 1)
    assert events(app, task.id) == ["enqueued", "claimed", "cancel_requested"]


def test_a_worker_learns_of_a_cancel_request_from_renew_and_progress(app: Any) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    assert app.renew(claim).cancel_requested is False
    assert app.progress(claim, 10) is False
    app.cancel(claim.task_id)
    assert app.renew(claim).cancel_requested is True
    assert app.progress(claim, 20) is True


def test_a_cancel_request_concerns_only_its_own_task(app: Any) -> None:
    app.enqueue_many([NewTask("resize"), NewTask("resize")])
    one, other = app.claim_many("worker-1", 2)
    app.cancel(one.task_id)
    assert [renewed.cancel_requested for renewed in app.renew_many([one, other])] == [True, False]


def test_a_failure_of_a_task_with_a_cancel_request_cancels_the_task(app: Any, clock: Clock) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    app.cancel(claim.task_id)
    finished = app.fail(claim, "stopped halfway")
    assert (finished.state, finished.will_retry, finished.run_at) == (State.CANCELLED, False, None)
    task = app.get(claim.task_id)
    assert (task.state, task.finished_at, task.error.message) == (State.CANCELLED, moment(clock), "stopped halfway")
    assert events(app, task.id) == ["enqueued", "claimed", "cancel_requested", "cancelled"]


@pytest.mark.parametrize("delay", [0, 30])
def test_a_release_of_a_task_with_a_cancel_request_cancels_the_task(app: Any, delay: float) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    app.cancel(claim.task_id)
    finished = app.release(claim, delay=delay)
    assert (finished.state, finished.will_retry, finished.attempts) == (State.CANCELLED, False, 0)
    assert events(app, claim.task_id) == ["enqueued", "claimed", "cancel_requested", "cancelled"]


def test_a_task_with_a_cancel_request_may_still_complete(app: Any) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    app.cancel(claim.task_id)
    assert app.complete(claim, {"size": 3}).state is State.COMPLETED
    assert app.get(claim.task_id).result == {"size": 3}


def test_the_outcome_cancelled_ends_a_task_with_a_cancel_request(app: Any) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    app.cancel(claim.task_id)
    [finished] = app.finish([(claim, dibs.Cancelled())])
    assert (finished.state, finished.attempts) == (State.CANCELLED, 1)


def test_a_task_with_a_cancel_request_whose_worker_dies_is_cancelled_and_not_tried_again(
    app: Any, clock: Clock
) -> None:
    task = task_in(app, "claimed")
    app.cancel(task.id)
    clock.advance(60)
    assert app.recover() == 1
    assert app.get(task.id).state is State.CANCELLED
    assert app.claim("worker-2") is None


@pytest.mark.parametrize("outcome", ["fail", "release"])
def test_an_outcome_repeated_after_a_cancel_gets_the_first_reply_again(app: Any, outcome: str) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    app.cancel(claim.task_id)
    tell = {"fail": lambda: app.fail(claim, "stopped"), "release": lambda: app.release(claim)}[outcome]
    first, second = tell(), tell()
    assert (first.state, first.repeated) == (State.CANCELLED, False)
    assert (second.state, second.repeated) == (State.CANCELLED, True)
    assert events(app, claim.task_id)[-2:] == ["cancel_requested", "cancelled"]


@pytest.mark.parametrize("state", ["pending", "scheduled", "claimed"])
def test_cancelling_twice_is_the_same_as_once(app: Any, clock: Clock, state: str) -> None:
    task = task_in(app, state)
    first = app.cancel(task.id)
    clock.advance(5)
    assert app.cancel(task.id) == first
    assert len(app.history(task.id)) == (3 if state == "claimed" else 2)


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_a_finished_task_cannot_be_cancelled(app: Any, state: str) -> None:
    task = task_in(app, state)
    with pytest.raises(WrongState, match=f"cannot be cancelled: it is {state}") as refused:
        app.cancel(task.id)
    assert (refused.value.task_id, refused.value.state) == (task.id, state)
    assert app.get(task.id) == task


def test_cancelling_a_task_that_does_not_exist_is_not_found(app: Any) -> None:
    with pytest.raises(TaskNotFound):
        app.cancel(404)


def test_ten_concurrent_cancels_write_one_history_entry(app: Any) -> None:
    task = app.enqueue("resize")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: app.cancel(task.id), range(10)))
    assert {answer.state for answer in answers} == {State.CANCELLED}
    assert events(app, task.id) == ["enqueued", "cancelled"]


def test_a_cancel_concurrent_with_a_claim_is_never_lost(app: Any) -> None:
    ids = [task.id for task in app.enqueue_many([NewTask("resize") for _ in range(20)])]
    with ThreadPoolExecutor(8) as pool:
        claims = [pool.submit(app.claim, f"worker-{n}") for n in range(20)]
        cancels = [pool.submit(app.cancel, task_id) for task_id in ids]
    won = [claim.result().task_id for claim in claims if claim.result() is not None]
    assert len(won) == len(set(won))
    for task in [cancel.result() for cancel in cancels]:
        now = app.get(task.id)
        assert now.state is State.CANCELLED or (now.state is State.CLAIMED and now.cancel_requested)
        assert (now.state is State.CLAIMED) == (task.id in won)


# Retry


@pytest.mark.parametrize("state", ["failed", "cancelled", "scheduled"])
def test_a_retried_task_is_pending_now_with_all_its_attempts(app: Any, clock: Clock, state: str) -> None:
    task = task_in(app, state, max_attempts=2)
    clock.advance(5)
    retried = app.retry(task.id)
    assert (retried.state, retried.attempts, retried.run_at) == (State.PENDING, 0, moment(clock))
    assert (retried.finished_at, retried.cancel_requested) == (None, False)
    assert app.get(task.id) == retried
    assert app.history(task.id)[-1].event == "retried"
    assert app.claim("worker-2").task_id == task.id


def test_a_retry_keeps_the_token_so_that_the_next_claim_gets_the_next(app: Any) -> None:
    task = task_in(app, "failed")
    assert (task.token, app.retry(task.id).token, app.claim("worker-2").token) == (1, 1, 2)


def test_a_retried_task_still_refuses_its_former_worker(app: Any) -> None:
    app.enqueue("resize")
    old = app.claim("worker-1")
    app.fail(old, "broken", permanent=True)
    app.retry(old.task_id)
    app.claim("worker-1")
    with pytest.raises(ClaimLost):
        app.complete(old)
    assert app.get(old.task_id).state is State.CLAIMED


def test_a_task_that_waits_for_its_next_attempt_is_retried_at_once(app: Any) -> None:
    app.enqueue("resize", backoff=dibs.Backoff(base=100))
    claim = app.claim("worker-1")
    assert app.fail(claim, "broken").state is State.SCHEDULED
    assert app.retry(claim.task_id).attempts == 0
    assert app.claim("worker-2").task.attempts == 0


def test_a_retried_task_has_all_its_attempts_again(app: Any) -> None:
    task = task_in(app, "failed", max_attempts=2)
    app.retry(task.id)
    assert app.fail(app.claim("worker-1"), "again", retry_in=0).state is State.PENDING
    assert app.fail(app.claim("worker-1"), "again", retry_in=0).state is State.FAILED


@pytest.mark.parametrize("state", ["pending", "claimed", "completed"])
def test_a_task_in_another_state_cannot_be_retried(app: Any, state: str) -> None:
    task = task_in(app, state)
    with pytest.raises(WrongState, match=f"cannot be retried: it is {state}") as refused:
        app.retry(task.id)
    assert (refused.value.task_id, refused.value.state) == (task.id, state)
    assert app.get(task.id) == task


def test_retrying_a_task_that_does_not_exist_is_not_found(app: Any) -> None:
    with pytest.raises(TaskNotFound):
        app.retry(404)


def test_of_ten_concurrent_retries_one_is_effective(app: Any) -> None:
    task = task_in(app, "failed")

    def retry(_: int) -> bool:
        try:
            return bool(app.retry(task.id))
        except WrongState:
            return False

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(retry, range(10))).count(True) == 1
    assert events(app, task.id).count("retried") == 1


# Redrive


def test_redrive_retries_the_whole_dead_letter_and_returns_the_count(app: Any, clock: Clock) -> None:
    ids = dead(app, 3)
    others = [task_in(app, state) for state in ("scheduled", "completed", "cancelled")]
    assert app.redrive() == 3
    for task in map(app.get, ids):
        assert (task.state, task.attempts, task.run_at) == (State.PENDING, 0, moment(clock))
        assert events(app, task.id)[-1] == "retried"
    assert [app.get(task.id) for task in others] == others


def test_redrive_of_an_empty_dead_letter_moves_nothing(app: Any) -> None:
    app.enqueue("resize")
    assert app.redrive() == 0


def test_redrive_by_queue(app: Any) -> None:
    slow, fast = dead(app, 2, queue="slow"), dead(app, 1, queue="fast")
    assert app.redrive(queue="slow") == 2
    assert [app.get(task_id).state for task_id in slow + fast] == ["pending", "pending", "failed"]


def test_redrive_by_type(app: Any) -> None:
    crop, resize = dead(app, 1, type="crop"), dead(app, 1, type="resize")
    assert app.redrive(type="crop") == 1
    assert [app.get(task_id).state for task_id in crop + resize] == ["pending", "failed"]


def test_redrive_by_text_in_the_error(app: Any) -> None:
    refused, full = dead(app, 1, "connection refused by host"), dead(app, 1, "disk full")
    assert app.redrive(error="refused") == 1
    assert [app.get(task_id).state for task_id in refused + full] == ["pending", "failed"]


def test_redrive_by_the_type_of_the_exception(app: Any) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    app.fail(claim, ZeroDivisionError("division by zero"), permanent=True)
    assert app.redrive(error="KeyError") == 0
    assert app.redrive(error="ZeroDivisionError") == 1


@pytest.mark.parametrize("text", ['host said "no"', "C:\\temp is full", "Datei fehlt: Größe.txt", "50% done_1"])
def test_redrive_finds_the_error_text_as_it_was_written(app: Any, text: str) -> None:
    dead(app, 1, f"It broke: {text}!")
    dead(app, 1, "something else")
    assert app.redrive(error=text) == 1


@pytest.mark.parametrize("text", ["message", "null"])
def test_redrive_does_not_find_text_that_no_error_contains(app: Any, text: str) -> None:
    dead(app, 1, "disk full")
    assert app.redrive(error=text) == 0


def test_redrive_with_several_filters_needs_all_of_them(app: Any) -> None:
    wanted = dead(app, 1, "disk full", queue="slow", type="crop")
    dead(app, 1, "disk full", queue="slow", type="resize")
    dead(app, 1, "disk full", queue="fast", type="crop")
    dead(app, 1, "timed out", queue="slow", type="crop")
    assert app.redrive(queue="slow", type="crop", error="full") == 1
    assert app.get(wanted[0]).state is State.PENDING


def test_redrive_with_a_limit_takes_the_oldest_failures(app: Any, clock: Clock) -> None:
    ids = []
    for _ in range(4):
        ids += dead(app, 1)
        clock.advance(1)
    assert app.redrive(limit=3) == 3
    assert [app.get(task_id).state for task_id in ids] == ["pending", "pending", "pending", "failed"]


def test_redrive_takes_more_than_one_batch(app: Any) -> None:
    dead(app, 1100)
    assert app.redrive(limit=600) == 600
    assert app.redrive() == 500
    assert app.stats().depth == {"pending": 1100}


def test_redrive_respects_a_limit_of_exactly_one_batch(app: Any) -> None:
    dead(app, 501)
    assert app.redrive(limit=500) == 500
    assert app.stats().depth == {"pending": 500, "failed": 1}


def test_two_concurrent_redrives_move_each_task_once(app: Any) -> None:
    ids = dead(app, 40)
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda _: app.redrive(), range(4))) == 40
    assert all(events(app, task_id).count("retried") == 1 for task_id in ids)


def test_redrive_refuses_filters_that_can_match_nothing(app: Any) -> None:
    for filters in ({"queue": ""}, {"type": "a\nb"}, {"error": ""}):
        with pytest.raises(dibs.InvalidValue):
            app.redrive(**filters)


# Pause and resume


def test_no_claim_takes_a_task_from_a_paused_queue(app: Any) -> None:
    app.enqueue("resize", queue="slow")
    app.pause("slow")
    assert app.claim("worker-1") is None
    assert app.claim("worker-1", queues=["slow"]) is None
    assert app.claim_many("worker-1", 10, types=["resize"]) == []


def test_other_queues_are_claimed_from_while_one_is_paused(app: Any) -> None:
    app.enqueue("resize", queue="slow")
    fast = app.enqueue_many([NewTask("resize", queue="fast") for _ in range(2)])
    app.pause("slow")
    assert app.claim("worker-1").task_id == fast[0].id
    assert app.claim("worker-1", queues=["slow", "fast"]).task_id == fast[1].id
    assert app.claim("worker-1") is None


def test_a_resumed_queue_is_claimed_from_again(app: Any) -> None:
    task = app.enqueue("resize", queue="slow")
    app.pause("slow")
    app.resume("slow")
    assert app.claim("worker-1").task_id == task.id


def test_a_paused_queue_accepts_new_tasks(app: Any) -> None:
    app.pause("slow")
    task = app.enqueue("resize", queue="slow")
    assert task.state is State.PENDING
    app.resume("slow")
    assert app.claim("worker-1").task_id == task.id


@pytest.mark.parametrize("verb", ["complete", "release", "renew", "progress"])
def test_running_tasks_of_a_paused_queue_continue(app: Any, verb: str) -> None:
    app.enqueue("resize", queue="slow")
    claim = app.claim("worker-1")
    app.pause("slow")
    getattr(app, verb)(*((claim, 50) if verb == "progress" else (claim,)))
    state = {"complete": "completed", "release": "pending"}.get(verb, "claimed")
    assert app.get(claim.task_id).state == state


def test_a_task_released_to_a_paused_queue_is_not_claimed(app: Any) -> None:
    app.enqueue("resize", queue="slow")
    claim = app.claim("worker-1")
    app.pause("slow")
    app.release(claim)
    assert app.claim("worker-2") is None


def test_pausing_twice_keeps_the_first_time_and_one_resume_ends_it(app: Any, clock: Clock) -> None:
    app.pause("slow")
    since = moment(clock)
    clock.advance(60)
    app.pause("slow")
    [queue] = app.queues()
    assert (queue.name, queue.paused, queue.paused_at) == ("slow", True, since)
    app.resume("slow")
    [queue] = app.queues()
    assert (queue.paused, queue.paused_at) == (False, None)


def test_resuming_a_queue_that_is_not_paused_changes_nothing(app: Any) -> None:
    app.resume("slow")
    task = app.enqueue("resize", queue="slow")
    assert app.claim("worker-1").task_id == task.id


def test_queues_shows_whether_a_queue_is_paused_and_its_depth(app: Any) -> None:
    app.enqueue("resize", queue="slow")
    app.enqueue("resize", queue="fast")
    app.pause("slow")
    assert [(queue.name, queue.paused, queue.depth) for queue in app.queues()] == [
        ("fast", False, {"pending": 1}),
        ("slow", True, {"pending": 1}),
    ]


def test_pausing_changes_no_task(app: Any) -> None:
    task = app.enqueue("resize", queue="slow")
    app.pause("slow")
    assert app.get(task.id) == task
    assert events(app, task.id) == ["enqueued"]


def test_pause_and_resume_refuse_a_malformed_queue_name(app: Any) -> None:
    for name in ("", "a\nb", None, "x" * 256):
        for verb in (app.pause, app.resume):
            with pytest.raises(dibs.InvalidValue):
                verb(name)
