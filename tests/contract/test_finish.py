"""Finish: an outcome is stored once, counted once, and answered with the new state of the task."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import dibs
from dibs import (
    Backoff,
    Cancelled,
    ClaimRef,
    Completed,
    Event,
    Failed,
    Failure,
    Finished,
    NewTask,
    OutcomeConflict,
    Released,
    State,
    StoreRefused,
)
from dibs.store.operations import finish as finish_operations
from tests.helpers import tables
from tests.helpers.clients import Clock
from tests.helpers.refusing import refuse_results
from tests.helpers.retention import keep
from tests.helpers.tasks import events, moment
from tests.helpers.workflows import start, step

NO = Failure("ValueError", "no")


def claimed(app: Any, **options: Any) -> dibs.Claim:
    """A claim of a new task."""
    claim: dibs.Claim = app.claim_by_id(app.enqueue("resize", **options).id, "worker-1")
    return claim


def many_claimed(app: Any, count: int) -> list[dibs.Claim]:
    app.enqueue_many([NewTask("resize") for _ in range(count)])
    claims: list[dibs.Claim] = app.claim_many("worker-1", count, order="fifo")
    return claims


# Complete


def test_complete_stores_the_result_and_spends_one_attempt(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    clock.advance(5)
    answer = app.complete(claim, {"width": 800, "names": ["a", None]})
    assert answer == Finished(claim.task_id, State.COMPLETED, attempts=1)
    task = app.get(claim.task_id)
    assert (task.state, task.attempts, task.result) == (State.COMPLETED, 1, {"width": 800, "names": ["a", None]})
    assert (task.finished_at, task.lease_until, task.error) == (moment(clock), None, None)
    assert (task.token, task.worker_id, task.finished) == (1, "worker-1", True)


def test_complete_without_a_result_stores_none(app: Any) -> None:
    claim = claimed(app)
    app.complete(claim)
    assert app.get(claim.task_id).result is None


def test_a_completed_task_is_never_claimed_again(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    app.complete(claim)
    clock.advance(3600)
    assert app.upkeep().recovered == 0
    assert app.claim("worker-2") is None


def test_complete_after_a_failed_attempt_counts_both_and_forgets_the_error(app: Any) -> None:
    claim = claimed(app)
    app.fail(claim, "no", retry_in=0)
    app.complete(app.claim("worker-1"), "fine")
    task = app.get(claim.task_id)
    assert (task.attempts, task.error, task.result) == (2, None, "fine")


def test_complete_writes_one_history_entry(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    clock.advance(1)
    app.signed("alice").complete(claim)
    last = app.history(claim.task_id)[-1]
    assert (last.event, last.from_state, last.to_state) == (Event.COMPLETED, State.CLAIMED, State.COMPLETED)
    assert (last.worker_id, last.token, last.by, last.at) == ("worker-1", 1, "alice", moment(clock))
    assert events(app, claim.task_id) == ["enqueued", "claimed", "completed"]


def test_a_task_with_a_cancel_request_may_still_be_completed(app: Any) -> None:
    claim = claimed(app)
    app.cancel(claim.task_id)
    assert app.complete(claim, "fine").state is State.COMPLETED
    assert app.get(claim.task_id).result == "fine"


def test_a_claim_may_be_finished_by_another_client_that_knows_its_reference(
    app: Any, url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    claim = claimed(app)
    ref = ClaimRef(claim.task_id, claim.token, claim.worker_id)
    assert open_app(url, clock=clock).complete(ref, "fine").state is State.COMPLETED
    assert app.get(claim.task_id).result == "fine"


# Fail


def test_a_failed_attempt_is_scheduled_again_and_keeps_its_error(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    answer = app.fail(claim, NO)
    task = app.get(claim.task_id)
    assert (answer.state, answer.attempts, answer.will_retry) == (State.SCHEDULED, 1, True)
    assert answer.run_at == task.run_at > moment(clock)
    assert (task.state, task.attempts, task.error) == (State.SCHEDULED, 1, NO)
    assert (task.finished_at, task.lease_until) == (None, None)


def test_the_next_attempt_becomes_claimable_when_its_backoff_is_over_and_not_before(app: Any, clock: Clock) -> None:
    answer = app.fail(claimed(app), "no")
    clock.now += (answer.run_at - moment(clock)) // timedelta(microseconds=1) - 1
    assert app.claim("worker-2") is None
    clock.now += 1
    again = app.claim("worker-2")
    assert (again.token, again.attempt) == (2, 2)


def wait_after_each_failure(app: Any, clock: Clock, failures: int, **options: Any) -> list[float]:
    """Fail a new task that often; the seconds until each next attempt."""
    app.enqueue("resize", max_attempts=failures + 1, **options)
    waits = []
    for _ in range(failures):
        answer = app.fail(app.claim("worker-1"), "no")
        waits.append((answer.run_at - moment(clock)).total_seconds())
        clock.advance(waits[-1])
    return waits


def test_the_backoff_doubles_from_one_second_up_to_five_minutes_within_ten_percent(app: Any, clock: Clock) -> None:
    waits = wait_after_each_failure(app, clock, 12)
    wanted = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert [wait / want for wait, want in zip(waits, wanted, strict=True)] == pytest.approx([1] * 12, abs=0.1)


def test_a_task_may_have_a_backoff_of_its_own(app: Any, clock: Clock) -> None:
    waits = wait_after_each_failure(app, clock, 4, backoff=Backoff(base=0.5, cap=1.5))
    assert [wait / want for wait, want in zip(waits, [0.5, 1, 1.5, 1.5], strict=True)] == pytest.approx(
        [1] * 4, abs=0.1
    )


def test_the_largest_backoff_after_many_failures_is_its_cap(app: Any, clock: Clock) -> None:
    year = 365 * 24 * 3600.0
    waits = wait_after_each_failure(app, clock, 70, backoff=Backoff(base=year, cap=year))
    assert [wait / year for wait in waits] == pytest.approx([1] * 70, abs=0.1)


def test_the_database_computes_the_delay_that_backoff_computes(app: Any, clock: Clock) -> None:
    backoff = Backoff(base=0.001, cap=365 * 24 * 3600)
    waits = wait_after_each_failure(app, clock, 45, backoff=backoff)
    wanted = [backoff.delay(failures) for failures in range(1, 46)]
    assert [wait / want for wait, want in zip(waits, wanted, strict=True)] == pytest.approx(
        [1] * 45, abs=0.101
    )  # and microseconds


def test_a_failed_task_with_a_backoff_of_zero_is_claimable_at_once(app: Any) -> None:
    claim = claimed(app, backoff=Backoff(base=0, cap=0))
    assert app.fail(claim, "no").will_retry
    assert app.claim("worker-1").token == 2


def test_tasks_that_failed_at_the_same_time_have_different_backoffs(app: Any, clock: Clock) -> None:
    answers = app.finish([(claim, Failed(NO)) for claim in many_claimed(app, 200)])
    waits = [(answer.run_at - moment(clock)).total_seconds() for answer in answers]
    assert all(0.9 <= wait <= 1.1 for wait in waits)
    assert min(waits) < 0.95 < 1.05 < max(waits)
    assert len(set(waits)) > 190


def test_a_failure_may_set_the_delay_until_the_retry(app: Any, clock: Clock) -> None:
    answer = app.fail(claimed(app), "no", retry_in=12.5)
    assert (answer.state, answer.run_at) == (State.SCHEDULED, moment(clock) + timedelta(seconds=12.5))
    assert answer.will_retry


def test_retry_in_zero_is_pending_at_once(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    answer = app.fail(claim, "no", retry_in=0)
    assert answer == Finished(claim.task_id, State.PENDING, attempts=1, run_at=moment(clock))
    assert app.claim("worker-1").token == 2


def test_a_permanent_failure_goes_to_the_dead_letter_at_once(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    clock.advance(3)
    answer = app.fail(claim, NO, permanent=True, retry_in=5)
    stored = msgspec.structs.replace(NO, permanent=True)
    assert answer == Finished(claim.task_id, State.FAILED, attempts=1)
    assert not answer.will_retry
    task = app.get(claim.task_id)
    assert (task.state, task.attempts, task.error, task.finished_at) == (State.FAILED, 1, stored, moment(clock))


def test_the_last_failed_attempt_goes_to_the_dead_letter_with_its_error(app: Any, clock: Clock) -> None:
    claim = claimed(app, max_attempts=2)
    app.fail(claim, "first", retry_in=0)
    answer = app.fail(app.claim("worker-1"), Failure("Late", "second", "trace"), retry_in=0)
    assert answer == Finished(claim.task_id, State.FAILED, attempts=2)
    task = app.get(claim.task_id)
    assert (task.attempts, task.error) == (2, Failure("Late", "second", "trace"))
    assert app.claim("worker-1") is None


def test_an_exception_is_stored_with_type_message_and_traceback(app: Any) -> None:
    claim = claimed(app)
    try:
        raise KeyError("image 7") from OSError("disk")
    except KeyError as error:
        app.fail(claim, error)
    error = app.get(claim.task_id).error
    assert (error.type, error.message) == ("KeyError", "'image 7'")
    assert 'raise KeyError("image 7") from OSError("disk")' in error.traceback
    assert "OSError: disk" in error.traceback


def test_a_failure_is_recorded_in_the_history_with_its_error(app: Any) -> None:
    claim = claimed(app, max_attempts=2)
    app.fail(claim, Failure("Early", "first"), retry_in=0)
    app.fail(app.claim("worker-1"), NO)
    failures = [entry for entry in app.history(claim.task_id) if entry.event is Event.FAILED]
    assert [(entry.token, entry.to_state) for entry in failures] == [(1, State.PENDING), (2, State.FAILED)]
    assert [(entry.detail["type"], entry.detail["message"]) for entry in failures] == [
        ("Early", "first"),
        ("ValueError", "no"),
    ]


# Release, stop


def test_a_release_costs_no_attempt(app: Any, clock: Clock) -> None:
    claim = claimed(app, max_attempts=1)
    for token in range(1, 6):
        answer = app.release(claim)
        assert answer == Finished(claim.task_id, State.PENDING, attempts=0, run_at=moment(clock))
        assert answer.will_retry
        claim = app.claim("worker-1")
        assert (claim.token, claim.attempt) == (token + 1, 1)
    assert app.complete(claim).attempts == 1


def test_a_release_with_a_delay_is_scheduled(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    answer = app.release(claim, delay=7.5)
    due = moment(clock) + timedelta(seconds=7.5)
    assert answer == Finished(claim.task_id, State.SCHEDULED, attempts=0, run_at=due)
    assert app.claim("worker-1") is None
    clock.advance(7.5)
    assert app.claim("worker-1").token == 2


def test_a_release_keeps_the_error_of_the_attempt_before(app: Any) -> None:
    claim = claimed(app)
    app.fail(claim, NO, retry_in=0)
    app.release(app.claim("worker-1"))
    assert (app.get(claim.task_id).error, app.get(claim.task_id).attempts) == (NO, 1)


def test_a_worker_that_obeys_a_cancel_request_cancels_its_task(app: Any, clock: Clock) -> None:
    claim = claimed(app)
    app.cancel(claim.task_id)
    (answer,) = app.finish([(claim, Cancelled())])
    assert answer == Finished(claim.task_id, State.CANCELLED, attempts=1)
    assert not answer.will_retry
    task = app.get(claim.task_id)
    assert (task.state, task.attempts, task.finished_at) == (State.CANCELLED, 1, moment(clock))
    assert events(app, claim.task_id) == ["enqueued", "claimed", "cancel_requested", "cancelled"]


def test_a_worker_may_cancel_its_task_without_a_cancel_request(app: Any) -> None:
    claim = claimed(app)
    (answer,) = app.finish([(claim, Cancelled())])
    assert answer.state is State.CANCELLED


@pytest.mark.parametrize("outcome", [Failed(NO), Failed(NO, retry_in=0), Failed(NO, permanent=True), Released()])
def test_a_failed_task_with_a_cancel_request_is_not_tried_again(app: Any, clock: Clock, outcome: dibs.Outcome) -> None:
    claim = claimed(app)
    app.cancel(claim.task_id)
    clock.advance(2)
    (answer,) = app.finish([(claim, outcome)])
    spent = 0 if isinstance(outcome, Released) else 1
    assert answer == Finished(claim.task_id, State.CANCELLED, attempts=spent)
    assert not answer.will_retry
    task = app.get(claim.task_id)
    assert (task.attempts, task.finished_at, task.lease_until) == (spent, moment(clock), None)
    assert app.claim("worker-1") is None


# Many at once


def test_a_batch_of_mixed_outcomes_returns_one_reply_for_each_in_order(app: Any, clock: Clock) -> None:
    done, retried, dead, back, later, stopped = many_claimed(app, 6)
    answers = app.finish(
        [
            (back, Released()),
            (done, Completed("fine")),
            (stopped, Cancelled()),
            (retried, Failed(NO, retry_in=5)),
            (dead, Failed(NO, permanent=True)),
            (later, Released(delay=9)),
        ]
    )
    now = moment(clock)
    assert answers == [
        Finished(back.task_id, State.PENDING, 0, now),
        Finished(done.task_id, State.COMPLETED, 1),
        Finished(stopped.task_id, State.CANCELLED, 1),
        Finished(retried.task_id, State.SCHEDULED, 1, now + timedelta(seconds=5)),
        Finished(dead.task_id, State.FAILED, 1),
        Finished(later.task_id, State.SCHEDULED, 0, now + timedelta(seconds=9)),
    ]
    assert [app.get(answer.task_id).state for answer in answers] == [answer.state for answer in answers]


def test_refusals_in_a_batch_are_returned_in_their_place_and_do_not_hold_up_the_other_outcomes(app: Any) -> None:
    first, lost, second, repeated = many_claimed(app, 4)
    app.release(lost)
    app.complete(repeated, "before")
    unknown = ClaimRef(10**9, 1, "worker-1")
    stranger = ClaimRef(app.enqueue("resize").id, 1, "worker-1")
    answers = app.finish(
        [
            (unknown, Completed()),
            (first, Completed("one")),
            (lost, Completed("stale")),
            (repeated, Completed("before")),
            (stranger, Failed(NO)),
            (second, Completed("two")),
        ]
    )
    assert [type(answer) for answer in answers] == [
        dibs.TaskNotFound,
        Finished,
        dibs.ClaimLost,
        Finished,
        dibs.ClaimLost,
        Finished,
    ]
    assert [answers[n].task_id for n in range(6)] == [
        ref.task_id for ref in (unknown, first, lost, repeated, stranger, second)
    ]
    assert [answers[n].repeated for n in (1, 3, 5)] == [False, True, False]
    assert [app.get(ref.task_id).result for ref in (first, lost, repeated, second)] == ["one", None, "before", "two"]


def test_an_empty_batch_of_outcomes_returns_an_empty_list(app: Any) -> None:
    assert app.finish([]) == []


def test_two_outcomes_for_one_claim_are_refused_and_nothing_is_written(app: Any, url: str) -> None:
    first, second = many_claimed(app, 2)
    before = tables.read(url)
    with pytest.raises(dibs.InvalidValue, match="Two outcomes are for the same claim"):
        app.finish([(first, Completed(1)), (second, Completed()), (first, Completed(2))])
    assert tables.read(url) == before


def test_a_batch_of_outcomes_distinguishes_a_stale_and_a_live_claim_of_one_task(app: Any) -> None:
    stale = claimed(app)
    app.release(stale)
    live = app.claim("worker-1")
    lost, done = app.finish([(stale, Completed("old")), (live, Completed("new"))])
    assert (type(lost), done.state) == (dibs.ClaimLost, dibs.State.COMPLETED)
    assert app.get(live.task_id).result == "new"


def test_a_thousand_outcomes_are_written_in_one_call(app: Any) -> None:
    claims = many_claimed(app, 1000)
    answers = app.finish([(claim, Completed(claim.task_id)) for claim in claims])
    assert [answer.task_id for answer in answers] == [claim.task_id for claim in claims]
    assert app.stats().depth == {"completed": 1000}
    assert all(task.result == task.id for task in app.list_tasks(limit=1000))


# Repeated outcomes

OUTCOMES: dict[str, dibs.Outcome] = {
    "completed": Completed({"width": 800}),
    "failed, to be tried again": Failed(NO, retry_in=60),
    "failed, pending at once": Failed(NO, retry_in=0),
    "failed for good": Failed(NO, permanent=True),
    "released": Released(),
    "released for later": Released(delay=60),
    "stopped": Cancelled(),
}


@pytest.mark.parametrize("asked", [False, True], ids=["", "asked to stop"])
def test_a_repeated_outcome_gets_the_first_reply_again_and_writes_nothing(app: Any, url: str, asked: bool) -> None:
    reports = list(zip(many_claimed(app, len(OUTCOMES)), OUTCOMES.values(), strict=True))
    for claim, _ in reports if asked else ():
        app.cancel(claim.task_id)
    first = app.finish(reports)
    before = tables.read(url)
    again = app.finish(reports)
    assert again == [msgspec.structs.replace(answer, repeated=True) for answer in first]
    assert tables.read(url) == before


def test_another_outcome_after_the_first_is_refused_and_writes_nothing(app: Any, url: str) -> None:
    claims = dict(zip(OUTCOMES, many_claimed(app, len(OUTCOMES)), strict=True))
    app.finish([(claims[name], outcome) for name, outcome in OUTCOMES.items()])
    before = tables.read(url)
    others = [Completed(), Failed(NO), Released(), Cancelled()]
    answers = {
        f"{name}, then {other}": app.finish([(claims[name], other)])[0]
        for name, outcome in OUTCOMES.items()
        for other in others
        if type(other) is not type(outcome)
    }
    assert {name: answer for name, answer in answers.items() if type(answer) is not dibs.ClaimLost} == {}
    assert tables.read(url) == before


def test_an_outcome_repeated_after_the_task_was_claimed_again_is_still_recognised(app: Any, url: str) -> None:
    claim = claimed(app)
    app.fail(claim, NO, retry_in=0)
    app.claim("worker-2")
    before = tables.read(url)
    again = app.fail(claim, NO, retry_in=0)
    assert (again.repeated, again.state, again.will_retry) == (True, State.PENDING, True)
    assert tables.read(url) == before


def test_an_outcome_repeated_after_the_task_was_pruned_is_still_recognised(app: Any) -> None:
    claim = claimed(app)
    app.complete(claim)
    keep(app, completed=0)
    app.prune()
    again = app.complete(claim)
    assert (again.repeated, again.state) == (True, State.COMPLETED)


def test_a_repeated_outcome_is_answered_with_the_state_it_led_to_also_if_the_task_has_changed_since(app: Any) -> None:
    failed, pruned = many_claimed(app, 2)
    first = app.finish([(failed, Failed(NO, retry_in=0)), (pruned, Completed())])
    app.fail(app.claim_by_id(failed.task_id, "worker-2"), NO)
    keep(app, completed=0)
    app.prune()
    again = app.finish([(failed, Failed(NO, retry_in=0)), (pruned, Completed())])
    assert [(answer.state, answer.repeated) for answer in first] == [("pending", False), ("completed", False)]
    assert [(answer.state, answer.repeated) for answer in again] == [("pending", True), ("completed", True)]
    assert [answer.run_at for answer in again] == [None, None]


SAME = [
    (None, None),
    ({"a": 1, "b": [1, 2.0]}, {"b": [1.0, 2], "a": 1.0}),
    ((1, "é"), [1, "\u00e9"]),
    ([True, None, ""], [True, None, ""]),
    (1e300, 10**300 * 1.0),
]
OTHER = [
    ("first", "second"),
    ("first", None),
    (None, {}),
    (1, True),
    (0, False),
    (1, "1"),
    ([1, 2], [2, 1]),
    ({"a": 1}, {"a": 1, "b": None}),
    ([], {}),
    (2**53, 2**53 + 1),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_completing_again_with_an_equal_value_is_accepted_in_any_spelling(app: Any, first: Any, second: Any) -> None:
    claim = claimed(app)
    app.complete(claim, first)
    assert app.complete(claim, second).repeated


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_completing_again_with_another_result_is_refused_and_the_first_result_is_kept(
    app: Any, url: str, first: Any, second: Any
) -> None:
    claim = claimed(app)
    app.complete(claim, first)
    before = tables.read(url)
    with pytest.raises(OutcomeConflict, match="another result") as refused:
        app.complete(claim, second)
    assert (refused.value.code, refused.value.task_id, refused.value.token) == ("outcome_conflict", claim.task_id, 1)
    assert tables.read(url) == before
    assert app.get(claim.task_id).result == first


@pytest.mark.parametrize("options", [{"retry_in": 0}, {"permanent": True}])
def test_failing_again_with_another_error_is_refused(app: Any, url: str, options: dict[str, Any]) -> None:
    claim = claimed(app)
    app.fail(claim, Failure("ValueError", "nul \x00", "here"), **options)
    assert app.fail(claim, Failure("ValueError", "nul \x00", "elsewhere"), **options).repeated
    before = tables.read(url)
    for other in (Failure("ValueError", "other"), Failure("KeyError", "nul \x00")):
        with pytest.raises(OutcomeConflict, match="another error"):
            app.fail(claim, other, **options)
    with pytest.raises(OutcomeConflict, match="permanent"):
        app.fail(claim, Failure("ValueError", "nul \x00"), permanent="permanent" not in options)
    assert tables.read(url) == before


def test_an_exchange_refuses_a_changed_outcome_alone(app: Any) -> None:
    claims = many_claimed(app, 3)
    app.finish([(claims[0], Completed(1)), (claims[1], Completed(2))])
    answers, [] = app.exchange(
        [(claims[0], Completed(1)), (claims[1], Completed(3)), (claims[2], Completed(4))], "worker-1"
    )
    assert [type(answer).__name__ for answer in answers] == ["Finished", "OutcomeConflict", "Finished"]
    assert [app.get(claim.task_id).result for claim in claims] == [1, 2, 4]


def test_an_outcome_of_another_worker_does_not_count_as_a_repetition(app: Any, url: str) -> None:
    claim = claimed(app)
    app.complete(claim)
    before = tables.read(url)
    with pytest.raises(dibs.ClaimLost):
        app.complete(ClaimRef(claim.task_id, claim.token, "worker-2"))
    assert tables.read(url) == before


def test_a_failure_is_stored_without_the_secrets_in_it(app: Any) -> None:
    key = f"dibs_mfqxk4tcmezd_hunter2{'A' * 36}"
    url = "postgresql://me:hunter2@host/db"
    failures = (f"no answer from {url}", ConnectionError(f"{url} {key}"), dibs.Failure("E", url, f"at {url}, {key}"))
    for failure in failures:
        task = app.enqueue("resize", max_attempts=1)
        app.fail(app.claim_by_id(task.id, "w"), failure)
        seen = f"{app.get(task.id).error!r} {app.history(task.id)!r} {app.explain(task.id)!r}"
        assert "me:***@host/db" in seen
        assert "hunter2" not in seen


# Permanent failures


def test_a_permanent_failure_is_marked_as_permanent_in_the_error_the_history_and_the_explanation(app: Any) -> None:
    claim = claimed(app, max_attempts=3)
    app.fail(claim, NO, permanent=True)
    assert app.get(claim.task_id).error.permanent
    assert app.history(claim.task_id)[-1].detail["permanent"] is True
    explained = str(app.explain(claim.task_id))
    assert "It failed permanently in attempt 1 of 3, so no further attempt was made: ValueError: no." in explained


def test_a_failure_that_spent_the_attempts_is_not_marked_as_permanent(app: Any) -> None:
    claim = claimed(app, max_attempts=1)
    app.fail(claim, NO)
    assert not app.get(claim.task_id).error.permanent
    assert "permanent" not in app.history(claim.task_id)[-1].detail
    assert "It failed after 1 attempt: ValueError: no." in str(app.explain(claim.task_id))


# What the database refuses


def test_an_outcome_that_the_database_refuses_does_not_hold_back_other_outcomes(app: Any, url: str) -> None:
    claims = many_claimed(app, 5)
    refuse_results(url)
    outcomes = [Completed("a"), Completed("poison"), Failed(NO), Released(), Completed("b")]
    answers = app.finish(list(zip(claims, outcomes, strict=True)))
    assert [type(answer).__name__ for answer in answers] == ["Finished", "StoreRefused", *["Finished"] * 3]
    assert [app.get(claim.task_id).state.value for claim in claims] == [
        "completed",
        "claimed",
        "scheduled",
        "pending",
        "completed",
    ]
    assert events(app, claims[1].task_id) == ["enqueued", "claimed"]


def test_a_refusal_by_the_database_is_not_an_outage_and_has_the_message_of_the_database(app: Any, url: str) -> None:
    claim = claimed(app)
    refuse_results(url)
    with pytest.raises(StoreRefused, match="refused") as refused:
        app.complete(claim, "poison")
    assert refused.value.code == "store_refused"
    assert app.complete(claim, "fine").state is State.COMPLETED


def test_a_step_whose_outcome_the_database_refuses_does_not_hold_back_other_steps(app: Any, url: str) -> None:
    start(app, step("first"), step("second"), step("last", "first", "second"))
    claims = app.claim_many("worker-1", 2, order="fifo")
    refuse_results(url)
    refused, written = app.finish([(claims[0], Completed("poison")), (claims[1], Completed("fine"))])
    assert isinstance(refused, StoreRefused)
    assert written.state is State.COMPLETED
    app.complete(claims[0], "fine")
    last = app.claim("worker-1")
    assert last is not None
    assert app.complete(last).state is State.COMPLETED


@pytest.mark.database
def test_more_outcomes_than_one_statement_can_hold_are_written(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish_operations, "PORTION", 100_000)
    claims = many_claimed(app, 40)
    large = "x" * 30_000
    answers = app.finish([(claim, Completed(large)) for claim in claims])
    assert [answer.state for answer in answers] == [State.COMPLETED] * 40
    assert {app.get(claim.task_id).result for claim in claims} == {large}
