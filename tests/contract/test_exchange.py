"""Exchange: finishes tasks and claims others in one transaction; every outcome is fenced as in the other calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from dibs import (
    Cancelled,
    Claim,
    ClaimLost,
    ClaimRef,
    Completed,
    Failed,
    Failure,
    Finished,
    InvalidValue,
    NewTask,
    NotYourClaim,
    Outcome,
    Released,
    State,
    StoreError,
    StoreRefused,
    TaskNotFound,
)
from dibs.observe.verify import verify
from tests.helpers import tables
from tests.helpers.clients import Clock
from tests.helpers.refusing import refuse, refuse_results
from tests.helpers.tasks import events

NO = Failure("ValueError", "no")


def fill(app: Any, count: int, **options: Any) -> list[int]:
    return [task.id for task in app.enqueue_many([NewTask("resize", **options) for _ in range(count)])]


def done(claims: list[Claim]) -> list[tuple[Claim, Outcome]]:
    return [(claim, Completed({"token": claim.token})) for claim in claims]


def ids(claims: list[Claim]) -> list[int]:
    return [claim.task_id for claim in claims]


def test_outcomes_are_written_and_the_next_tasks_claimed(app: Any) -> None:
    all_ids = fill(app, 5)
    claims = app.claim_many("worker-1", 2)
    answers, following = app.exchange(done(claims), "worker-1", 2)
    assert answers == [Finished(task_id, State.COMPLETED, 1) for task_id in all_ids[:2]]
    assert ids(following) == all_ids[2:4]
    assert [app.get(task_id).result for task_id in all_ids[:2]] == [{"token": 1}] * 2
    assert [events(app, task_id)[1:] for task_id in all_ids] == [["claimed", "completed"]] * 2 + [["claimed"]] * 2 + [
        []
    ]


def test_an_exchange_may_have_no_outcomes_and_may_claim_no_task(app: Any) -> None:
    assert app.exchange([], "worker-1", 3) == ([], [])
    [task_id] = fill(app, 1)
    answers, claims = app.exchange([], "worker-1", 3)
    assert (answers, ids(claims)) == ([], [task_id])
    answers, claims = app.exchange(done(claims), "worker-1", 3)
    assert (answers, claims) == ([Finished(task_id, State.COMPLETED, 1)], [])


def test_an_exchange_stores_every_kind_of_outcome(app: Any) -> None:
    fill(app, 4, max_attempts=3)
    claims = app.claim_many("worker-1", 4)
    app.cancel(claims[3].task_id)
    outcomes: list[Outcome] = [Completed(1), Failed(NO, permanent=True), Released(delay=60), Cancelled()]
    answers, following = app.exchange(list(zip(claims, outcomes, strict=True)), "worker-1", 4)
    assert [answer.state for answer in answers] == ["completed", "failed", "scheduled", "cancelled"]
    assert following == []


def test_an_exchange_can_claim_a_task_that_it_releases_under_the_next_token(app: Any) -> None:
    fill(app, 1)
    [claim] = app.claim_many("worker-1", 1)
    [answer], [again] = app.exchange([(claim, Released())], "worker-1", 1)
    assert (answer.state, answer.will_retry) == (State.PENDING, True)
    assert (again.task_id, again.token) == (claim.task_id, 2)


def test_the_claim_takes_the_options_of_a_claim(app: Any, clock: Clock) -> None:
    fill(app, 3, queue="slow")
    fast = fill(app, 3, queue="fast")
    _, [claim] = app.exchange([], "worker-1", 1, queues=["fast"], order="lifo", lease=7, incarnation="i-1")
    assert claim.task_id == fast[-1]
    assert (claim.lease_until - claim.task.claimed_at).total_seconds() == 7
    assert app.exchange([], "worker-1", 1, types=["nobody-enqueues-this"]) == ([], [])


def test_an_exchange_recovers_tasks_of_a_dead_worker_and_promotes_due_tasks(app: Any, clock: Clock) -> None:
    [lost] = fill(app, 1)
    app.claim("worker-2", lease=10)
    [due] = fill(app, 1, delay=5)
    clock.advance(11)
    _, claims = app.exchange([], "worker-1", 5)
    assert sorted(ids(claims)) == [lost, due]


# Fences


def test_a_refused_outcome_is_reported_alone_and_the_rest_of_the_exchange_is_done(app: Any, clock: Clock) -> None:
    all_ids = fill(app, 6)
    stale = app.claim("worker-1", lease=10)
    clock.advance(10)
    app.recover()
    taken = app.claim_by_id(stale.task_id, "worker-2")
    live = app.claim("worker-1")
    reports = [
        (stale, Completed("stale")),
        (live, Completed("live")),
        (ClaimRef(taken.task_id, taken.token, "worker-1"), Completed("stolen")),
        (ClaimRef(999, 1, "worker-1"), Completed()),
    ]
    answers, claims = app.exchange(reports, "worker-1", 2)
    assert [type(answer) for answer in answers] == [ClaimLost, Finished, NotYourClaim, TaskNotFound]
    assert ids(claims) == all_ids[2:4]
    assert app.get(live.task_id).result == "live"
    assert app.get(taken.task_id) == taken.task


@pytest.mark.parametrize("outcome", [Completed("late"), Failed(NO), Released(), Cancelled()], ids=str)
def test_a_stale_outcome_changes_nothing(app: Any, url: str, outcome: Outcome) -> None:
    fill(app, 1)
    claim = app.claim("worker-1")
    app.complete(claim, "first")
    before = tables.read(url)
    [answer], _ = app.exchange([(ClaimRef(claim.task_id, 0, "worker-1"), outcome)], "worker-1", 1)
    assert isinstance(answer, ClaimLost)
    assert tables.read(url) == before


def test_a_result_that_cannot_be_stored_is_reported_with_the_reason(app: Any) -> None:
    fill(app, 4)
    good, bad = app.claim_many("worker-1", 2)
    answers, claims = app.exchange([(bad, Completed(float("nan"))), (good, Completed(1))], "worker-1", 1)
    assert isinstance(answers[0], InvalidValue)
    assert answers[1] == Finished(good.task_id, State.COMPLETED, 1)
    assert len(claims) == 1
    assert app.get(bad.task_id).state is State.CLAIMED


@pytest.mark.parametrize("wrong", ["count", "order", "outcome", "twice", "none", "worker"])
def test_an_exchange_with_invalid_arguments_is_refused_before_anything_is_written(
    app: Any, url: str, wrong: str
) -> None:
    fill(app, 2)
    claim = app.claim("worker-1")
    before = tables.read(url)
    reports: Any = [(claim, Completed(1))]
    reports = {"outcome": [(claim, "done")], "twice": reports * 2, "none": [(None, Completed(1))]}.get(wrong, reports)
    options = {"order": "sideways"} if wrong == "order" else {}
    with pytest.raises(InvalidValue):
        app.exchange(
            reports, "not a name" if wrong == "worker" else "worker-1", 0 if wrong == "count" else 1, **options
        )
    assert tables.read(url) == before


# Asked again


def test_an_exchange_whose_response_was_lost_can_be_repeated(app: Any, url: str) -> None:
    fill(app, 6)
    claims = app.claim_many("worker-1", 2)
    answers, following = app.exchange(done(claims), "worker-1", 2, request="r-1")
    before = tables.read(url)
    again, same = app.exchange(done(claims), "worker-1", 2, request="r-1")
    assert same == following
    assert [(each.task_id, each.state, each.repeated) for each in again] == [
        (each.task_id, each.state, True) for each in answers
    ]
    assert tables.read(url) == before


# Both or neither


@pytest.mark.parametrize(
    ("verb", "table", "when", "order"),
    [
        ("INSERT", "dibs_history", "NEW.event = 'claimed'", "priority"),
        ("UPDATE", "dibs_random_orders", "NEW.kind = 'random'", "random"),
    ],
    ids=["the claim fails", "what follows the claim fails"],
)
def test_if_the_claim_fails_no_outcome_is_written(
    app: Any, url: str, verb: str, table: str, when: str, order: str
) -> None:
    fill(app, 10)
    claims = app.claim_many("worker-1", 2, order=order)
    refuse(url, table, when, verb)
    before = tables.read(url)
    with pytest.raises(StoreError, match="refused"):
        app.exchange(done(claims), "worker-1", 2, order=order)
    assert tables.read(url) == before


def test_an_outcome_that_the_database_refuses_is_reported_alone_and_the_rest_is_done(app: Any, url: str) -> None:
    all_ids = fill(app, 5)
    claims = app.claim_many("worker-1", 3)
    app.fail(claims[0], "no", retry_in=3600)
    [refused_claim, good_claim] = claims[1:]
    refuse_results(url)
    reports = [(refused_claim, Completed("poison")), (good_claim, Completed("fine"))]
    [refused, written], following = app.exchange(reports, "worker-1", 2)
    assert isinstance(refused, StoreRefused)
    assert "refused" in refused.message
    assert (written.state, ids(following)) == (State.COMPLETED, all_ids[3:])
    assert events(app, refused_claim.task_id) == ["enqueued", "claimed"]
    assert app.complete(refused_claim, "antidote").state is State.COMPLETED


# Many at once


def test_many_workers_exchange_until_all_tasks_are_done_and_each_task_ends_once(
    url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(2)]
    all_ids = fill(apps[0], 400)
    start = Barrier(6)

    def work(number: int) -> list[int]:
        app, finished, claims = apps[number % 2], [], []
        start.wait()
        while True:
            answers, claims = app.exchange(
                done(claims), f"worker-{number}", 7, order=["priority", "random"][number % 2]
            )
            finished += [answer.task_id for answer in answers]
            assert all(isinstance(answer, Finished) for answer in answers)
            if not claims:
                return finished

    with ThreadPoolExecutor(6) as pool:
        ended = Counter(task_id for each in pool.map(work, range(6)) for task_id in each)
    assert ended == Counter(all_ids)
    tasks = apps[0].list_tasks(limit=1000)
    assert {task.state for task in tasks} == {State.COMPLETED}
    assert {task.token for task in tasks} == {1}
    assert verify(apps[0].all_history(), tasks=tasks).ok
