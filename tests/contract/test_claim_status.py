"""Calls of a worker for all its claims together: their status, their progress, and the next due time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import dibs
from dibs import Claim, ClaimRef, NewTask
from dibs.model.claim import ClaimStatus
from tests.contract.test_fencing import LOST, recovered
from tests.helpers import tables
from tests.helpers.clients import Clock, run
from tests.helpers.tasks import STATES, moment, task_in

HELD, STOPPING, GONE = ClaimStatus.HELD, ClaimStatus.STOPPING, ClaimStatus.LOST


def statuses(app: Any, *claims: Claim | ClaimRef) -> list[ClaimStatus]:
    answers: list[ClaimStatus] = run(app, app._store.queue.claim_status(claims))
    return answers


def note(app: Any, *notes: tuple[Claim | ClaimRef, int, str | None]) -> list[bool | dibs.DibsError]:
    answers: list[bool | dibs.DibsError] = run(app, app._store.queue.progress(notes))
    return answers


def next_due(app: Any) -> float | None:
    answer: float | None = run(app, app._store.upkeep.next_due())
    return answer


def claims_of(app: Any, count: int) -> list[Claim]:
    """Claims of new tasks."""
    app.enqueue_many([NewTask("resize") for _ in range(count)])
    claims: list[Claim] = app.claim_many("worker-1", count, queues=["default"])
    assert len(claims) == count
    return claims


# ClaimStatus


def test_a_live_claim_is_held_and_is_stopping_after_a_cancel_request(app: Any) -> None:
    first, second = claims_of(app, 2)
    assert statuses(app, first, second) == [HELD, HELD]
    app.cancel(second.task_id)
    assert statuses(app, first, second) == [HELD, STOPPING]


@pytest.mark.parametrize("lose", LOST, ids=lambda lose: lose.__name__)
def test_a_lost_claim_is_lost_in_every_later_state_of_the_task(
    app: Any, clock: Clock, lose: Callable[..., Claim]
) -> None:
    assert statuses(app, lose(app, clock)) == [GONE]


def test_a_claim_that_its_worker_ended_is_lost(app: Any) -> None:
    completed, failed, released = claims_of(app, 3)
    app.complete(completed)
    app.fail(failed, "broken")
    app.release(released)
    assert statuses(app, completed, failed, released) == [GONE] * 3


def test_a_claim_of_another_worker_is_reported_as_lost(app: Any) -> None:
    [claim] = claims_of(app, 1)
    stranger = ClaimRef(claim.task_id, claim.token, "worker-2")
    unissued = ClaimRef(claim.task_id, claim.token + 1, "worker-1")
    unknown = ClaimRef(10**9, 1, "worker-1")
    assert statuses(app, stranger, unissued, unknown, claim) == [GONE, GONE, GONE, HELD]


def test_a_stale_and_a_live_claim_of_one_task_have_different_statuses(app: Any, clock: Clock) -> None:
    stale = recovered(app, clock)
    live = app.claim("worker-1")
    assert statuses(app, stale, live, stale) == [GONE, HELD, GONE]


def test_an_expired_claim_that_is_not_recovered_yet_is_held(app: Any, clock: Clock) -> None:
    [claim] = claims_of(app, 1)
    clock.advance(3600)
    assert statuses(app, claim) == [HELD]
    app.recover()
    assert statuses(app, claim) == [GONE]


def test_reading_the_status_of_claims_changes_nothing(app: Any, url: str, clock: Clock) -> None:
    claims = claims_of(app, 3)
    app.cancel(claims[0].task_id)
    clock.advance(30)
    before = tables.read(url)
    statuses(app, *claims)
    assert tables.read(url) == before
    assert not app._store.queue.claim_status(claims).writes


def test_the_statuses_of_a_thousand_claims_are_returned_in_order(app: Any) -> None:
    claims = claims_of(app, 1000)
    app.finish([(claim, dibs.Completed()) for claim in claims[::3]])
    assert statuses(app, *claims) == [GONE if n % 3 == 0 else HELD for n in range(1000)]
    assert statuses(app, *claims[::-1]) == statuses(app, *claims)[::-1]


def test_the_statuses_of_no_claims_are_an_empty_list(app: Any) -> None:
    assert statuses(app) == []
    with pytest.raises(dibs.InvalidValue, match="None is not a claim"):
        app._store.queue.claim_status([None])


# Progress of many


def test_many_progress_reports_are_written_and_answered_in_order(app: Any, clock: Clock) -> None:
    stale = recovered(app, clock, queue="elsewhere")
    first, second, stopping = claims_of(app, 3)
    app.cancel(stopping.task_id)
    foreign, unknown = ClaimRef(first.task_id, first.token, "worker-2"), ClaimRef(10**9, 1, "worker-1")
    before = app.get(stale.task_id)
    answers = note(
        app,
        (stopping, 1, None),
        (stale, 99, "stale"),
        (foreign, 99, "foreign"),
        (unknown, 99, None),
        (first, 20, "a\x00b"),
        (second, 100, "done"),
    )
    assert [answer if isinstance(answer, bool) else type(answer) for answer in answers] == [
        True,
        dibs.ClaimLost,
        dibs.NotYourClaim,
        dibs.TaskNotFound,
        False,
        False,
    ]
    found = [app.get(claim.task_id) for claim in (first, second, stopping)]
    assert [task.progress for task in found] == [20, 100, 1]
    assert [task.progress_message for task in found][1:] == ["done", None]
    assert app.get(stale.task_id) == before


def test_of_several_progress_reports_of_one_claim_the_last_is_kept(app: Any) -> None:
    first, second = claims_of(app, 2)
    assert note(app, (first, 90, "early"), (second, 10, None), (first, 5, "late")) == [False] * 3
    task = app.get(first.task_id)
    assert (task.progress, task.progress_message, app.get(second.task_id).progress) == (5, "late", 10)


def test_no_progress_reports_return_an_empty_list(app: Any) -> None:
    assert note(app) == []
    with pytest.raises(dibs.InvalidValue, match="None is not a claim"):
        app._store.queue.progress([(None, 10, None)])


# When the clock alone brings something


def test_the_next_due_time_is_none_if_no_task_waits_for_a_time(app: Any) -> None:
    assert next_due(app) is None
    for state in set(STATES) - {"scheduled", "claimed"}:
        task_in(app, state)
    assert next_due(app) is None


def test_the_next_due_time_is_that_of_the_next_scheduled_task(app: Any, clock: Clock) -> None:
    app.enqueue("resize", delay=90)
    app.enqueue("resize", run_at=moment(clock) + timedelta(seconds=30, microseconds=1))
    app.enqueue("resize", delay=60)
    assert next_due(app) == 30.000001
    clock.advance(10)
    assert next_due(app) == 20.000001


def test_the_next_due_time_is_the_end_of_the_next_lease(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(2)])
    long, short = app.claim("worker-1", lease=100), app.claim("worker-1", lease=40)
    assert next_due(app) == 40
    app.renew(short, 200)
    assert next_due(app) == 100
    app.complete(long)
    assert next_due(app) == 200


def test_the_next_due_time_is_the_earliest_of_all(app: Any) -> None:
    app.enqueue("resize")
    app.claim("worker-1", lease=50)
    app.enqueue("resize", delay=60)
    assert next_due(app) == 50
    app.enqueue("resize", delay=40)
    assert next_due(app) == 40


def test_an_overdue_task_is_due_now_until_upkeep_moves_it(app: Any, clock: Clock) -> None:
    app.enqueue("resize", delay=10)
    app.enqueue("resize")
    app.claim("worker-1", lease=20)
    clock.advance(10)
    assert next_due(app) == 0
    app.promote()
    assert next_due(app) == 10
    clock.advance(3600)
    assert next_due(app) == 0
    app.recover()
    assert next_due(app) is None


def test_reading_the_next_due_time_changes_nothing(app: Any, url: str, clock: Clock) -> None:
    app.enqueue("resize", delay=10)
    app.enqueue("resize")
    app.claim("worker-1")
    clock.advance(3600)
    before = tables.read(url)
    next_due(app)
    assert tables.read(url) == before
    assert not app._store.upkeep.next_due().writes


def test_the_next_due_time_is_computed_by_the_clock_of_the_database(url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)
    app.enqueue("resize", delay=1000)
    due = next_due(app)
    assert due is not None
    assert 990 < due <= 1000
