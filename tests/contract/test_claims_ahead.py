"""Promise 7, for tasks claimed ahead: a lost claim costs no attempt unless the task is known to have started."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs import Cancelled, Claim, ClaimRef, Completed, Event, Failed, Failure, NewTask, Order, Outcome, Released, State
from dibs.model.claim import ClaimRequest
from dibs.observe.verify import verify
from dibs.procedures import claim_now
from tests.helpers import tables
from tests.helpers.clients import Clock, follow, run
from tests.helpers.databases import run_sql
from tests.helpers.tasks import events, moment

LEASE_LOST = Failure("LeaseLost", "The lease ran out: the worker died, froze or lost its connection.")


def claim_ahead(app: Any, count: int = 1, **options: Any) -> list[Claim]:
    """Claims of the next tasks, ahead of their turn."""
    request = ClaimRequest(**{"worker_id": "worker-1", "count": count, "ahead": True, **options})
    claims: list[Claim] = follow(app, claim_now(app._store, request))
    return claims


def start(app: Any, *claims: Claim | ClaimRef) -> list[dibs.DibsError | None]:
    answers: list[dibs.DibsError | None] = run(app, app._store.queue.start(claims))
    return answers


def lose(app: Any, clock: Clock) -> None:
    """The worker dies: its leases run out, and upkeep takes back what it held."""
    clock.advance(60)
    assert app.recover() > 0


def marks(url: str) -> list[bool]:
    """Which tasks the database has down as claimed ahead, in the order of their ids."""
    return [bool(row[0]) for row in run_sql(url, "SELECT ahead FROM dibs_tasks ORDER BY id")]


# Lost before it began


def test_a_task_that_was_lost_while_claimed_ahead_is_pending_again_and_not_charged(app: Any, clock: Clock) -> None:
    before = app.enqueue("resize")
    claim_ahead(app)
    lose(app, clock)
    task = app.get(before.id)
    assert (task.state, task.attempts, task.error, task.dropped) == (State.PENDING, 0, None, 1)
    assert (task.lease_until, task.claimed_at, task.finished_at) == (None, None, None)
    assert app.recover() == 0


def test_a_task_with_one_attempt_survives_the_loss_of_a_worker_that_claimed_it_ahead(app: Any, clock: Clock) -> None:
    app.enqueue("resize", max_attempts=1)
    for drops in range(1, 4):
        [claim] = claim_ahead(app)
        lose(app, clock)
        assert (app.get(claim.task_id).state, app.get(claim.task_id).dropped) == (State.PENDING, drops)
    assert app.complete(app.claim("worker-2")).attempts == 1


def test_the_error_of_an_earlier_attempt_stays_when_a_claim_ahead_is_lost(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize")
    app.fail(app.claim("worker-1"), Failure("Boom", "as planned"), retry_in=0)
    claim_ahead(app)
    lose(app, clock)
    assert (app.get(task.id).attempts, app.get(task.id).error) == (1, Failure("Boom", "as planned"))


def test_the_history_says_that_a_lost_task_had_not_been_started(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize")
    claim_ahead(app)
    lose(app, clock)
    app.claim("worker-1")
    lose(app, clock)
    entries = app.history(task.id)
    assert [entry.event for entry in entries][1:] == [Event.CLAIMED, Event.RECOVERED, Event.CLAIMED, Event.RECOVERED]
    assert [entry.detail for entry in entries][1:] == [None, {"started": False}, None, None]
    assert [entry.to_state for entry in entries if entry.event is Event.RECOVERED] == [State.PENDING, State.PENDING]


def test_a_task_with_a_cancel_request_that_is_lost_before_it_starts_is_cancelled_and_not_charged(
    app: Any, clock: Clock
) -> None:
    task = app.enqueue("resize")
    claim_ahead(app)
    app.cancel(task.id)
    lose(app, clock)
    found = app.get(task.id)
    assert (found.state, found.attempts, found.dropped, found.error) == (State.CANCELLED, 0, 1, None)
    assert found.finished_at == moment(clock)
    assert app.history(task.id)[-1].detail == {"started": False}


def test_the_next_claim_shows_how_often_the_task_was_dropped(app: Any, clock: Clock) -> None:
    app.enqueue("resize")
    [first] = claim_ahead(app)
    lose(app, clock)
    [second] = claim_ahead(app)
    assert (first.task.dropped, second.task.dropped) == (0, 1)
    assert (first.token, second.token, second.attempt) == (1, 2, 1)


def test_a_claim_recovers_dropped_tasks_without_upkeep(app: Any, clock: Clock) -> None:
    app.enqueue("resize", max_attempts=1)
    [first] = claim_ahead(app)
    clock.advance(60)
    again = app.claim("worker-2")
    assert (again.task_id, again.token, again.attempt, again.task.dropped) == (first.task_id, 2, 1, 1)


@pytest.mark.parametrize("order", Order)
def test_a_claim_ahead_is_marked_as_ahead_in_every_order(app: Any, clock: Clock, order: str) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(5)])
    claim_ahead(app, 3, order=order)
    app.claim_many("worker-1", 2, order=order)
    lose(app, clock)
    assert sorted((task.attempts, task.dropped) for task in app.list_tasks()) == [(0, 1)] * 3 + [(1, 0)] * 2


def test_a_dropped_task_gets_new_random_order_numbers(app: Any, url: str, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize", max_attempts=3) for _ in range(3)])
    for order in ("random", "weighted"):
        app.claim("worker-2", order=order, lease=10**6)
    run_sql(url, "UPDATE dibs_random_orders SET position = 1000")
    [claim] = claim_ahead(app)
    lose(app, clock)
    [keys] = run_sql(url, f"SELECT random_key, weighted_key FROM dibs_tasks WHERE id = {claim.task_id}")
    assert min(keys) >= 1000


# Known to be started


def test_a_task_that_was_started_is_charged_when_its_worker_is_lost(app: Any, clock: Clock) -> None:
    app.enqueue("resize")
    [claim] = claim_ahead(app)
    assert start(app, claim) == [None]
    lose(app, clock)
    task = app.get(claim.task_id)
    assert (task.state, task.attempts, task.error, task.dropped) == (State.PENDING, 1, LEASE_LOST, 0)
    assert app.history(task.id)[-1].detail is None


def test_a_task_claimed_in_its_turn_is_charged_without_having_been_started(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(2)])
    [first] = claim_ahead(app, ahead=False)
    second = app.claim("worker-1")
    lose(app, clock)
    assert [app.get(claim.task_id).attempts for claim in (first, second)] == [1, 1]


def test_a_claim_by_id_is_never_ahead(app: Any, url: str) -> None:
    task = app.enqueue("resize")
    run(app, app._store.queue.claim_by_id(task.id, ClaimRequest(worker_id="worker-1", ahead=True)))
    assert marks(url) == [False]


def test_a_start_changes_the_ahead_mark_and_nothing_else(app: Any, url: str) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(2)])
    first, second = claim_ahead(app, 2)
    before, history = app.get(first.task_id), tables.read(url)["dibs_history"]
    assert marks(url) == [True, True]
    assert start(app, second) == [None]
    assert marks(url) == [True, False]
    assert start(app, second, first) == [None, None]
    assert marks(url) == [False, False]
    assert app.get(first.task_id) == before
    assert tables.read(url)["dibs_history"] == history


def test_many_starts_are_answered_in_order_each_on_its_own(app: Any, url: str, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(3)])
    stale = claim_ahead(app, 1, lease=1)
    clock.advance(1)
    app.recover()
    again = claim_ahead(app, 3)
    foreign, unknown = ClaimRef(again[1].task_id, 1, "worker-2"), ClaimRef(10**9, 1, "worker-1")
    answers = start(app, again[2], *stale, foreign, unknown, again[0])
    assert [type(answer) for answer in answers] == [
        type(None),
        dibs.ClaimLost,
        dibs.NotYourClaim,
        dibs.TaskNotFound,
        type(None),
    ]
    assert marks(url) == [claim.task_id == again[1].task_id for claim in sorted(again, key=lambda each: each.task_id)]
    assert start(app) == []


def test_a_start_refuses_a_value_that_is_not_a_claim(app: Any) -> None:
    with pytest.raises(dibs.InvalidValue, match="None is not a claim"):
        app._store.queue.start([None])


def test_the_option_ahead_must_be_a_boolean() -> None:
    with pytest.raises(dibs.InvalidValue, match="ahead must be True or False, not 1"):
        ClaimRequest(worker_id="worker-1", ahead=1)  # type: ignore[arg-type]


# Bounded attempts


def live(app: Any, clock: Clock, killer: int) -> list[int]:
    """One life of a worker: claims everything ahead, runs it as workers do, and dies of the killer. What it ran."""
    ran = []
    for claim in claim_ahead(app, 10, order="fifo"):
        if claim.task.dropped:
            assert start(app, claim) == [None]
        ran.append(claim.task_id)
        if claim.task_id == killer:
            lose(app, clock)
            break
        app.complete(claim)
    return ran


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_task_that_kills_its_worker_reaches_the_dead_letter_and_its_neighbours_are_not_charged(
    app: Any, clock: Clock, place: int
) -> None:
    ids = [task.id for task in app.enqueue_many([NewTask("resize", max_attempts=3) for _ in range(5)])]
    killer = ids[place]
    runs: list[int] = []
    while ran := live(app, clock, killer):
        runs += ran
    dead = app.get(killer)
    assert (dead.state, dead.attempts, dead.dropped, dead.error) == (State.FAILED, 3, 1, LEASE_LOST)
    assert runs.count(killer) == 4  # the first loss is not charged: it is not known which task was running
    for task_id in set(ids) - {killer}:
        assert (app.get(task_id).state, app.get(task_id).attempts) == (State.COMPLETED, 1)
        assert runs.count(task_id) == 1
    assert app.get(ids[-1]).dropped == (4 if place < 4 else 1)


def test_a_task_retried_by_hand_is_still_known_to_have_been_dropped(app: Any, clock: Clock) -> None:
    app.enqueue("resize", max_attempts=1)
    claim_ahead(app)
    lose(app, clock)
    app.fail(app.claim("worker-1"), "broken")
    [task] = app.list_tasks(state="failed")
    assert app.retry(task.id).dropped == 1


def test_the_offline_checker_finds_no_fault_with_dropped_tasks(app: Any, clock: Clock) -> None:
    killer = app.enqueue("resize", max_attempts=2).id
    app.enqueue_many([NewTask("resize") for _ in range(3)])
    while live(app, clock, killer):
        pass
    report = verify(app.all_history(), tasks=app.list_tasks())
    assert (report.ok, report.tasks) == (True, 4), report


# The mark ends with the claim


OUTCOMES: list[Outcome] = [
    Completed(1),
    Failed(Failure("Boom", "as planned"), retry_in=0),
    Failed(Failure("Boom", "as planned"), permanent=True),
    Released(),
    Released(delay=60),
    Cancelled(),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_a_claim_ahead_ends_like_any_other_claim_and_leaves_no_mark(app: Any, url: str, outcome: Outcome) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(2)])
    [ahead] = claim_ahead(app, order="fifo")
    assert marks(url) == [True, False]
    usual = app.claim("worker-1")
    first, second = app.finish([(ahead, outcome), (usual, outcome)])
    assert (first.state, first.attempts) == (second.state, second.attempts)
    assert marks(url) == [False, False]
    assert events(app, ahead.task_id) == events(app, usual.task_id)


def test_a_lost_claim_ahead_leaves_no_mark(app: Any, url: str, clock: Clock) -> None:
    app.enqueue("resize")
    claim_ahead(app)
    lose(app, clock)
    assert marks(url) == [False]


def test_each_claim_sets_the_ahead_mark_anew(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize")
    claim_ahead(app)
    lose(app, clock)
    app.claim("worker-1")
    lose(app, clock)
    claim_ahead(app)
    lose(app, clock)
    assert (app.get(task.id).attempts, app.get(task.id).dropped) == (1, 2)


# Beside workers of the release before, which know nothing of it


def claim_as_before(url: str, task_id: int, lease_until: int) -> None:
    """A claim by code that does not know the new columns."""
    run_sql(
        url,
        "UPDATE dibs_tasks SET state = 'claimed', token = token + 1, worker_id = 'worker-0', incarnation = NULL,"
        f" claimed_at = {lease_until}, lease_until = {lease_until}, progress = NULL, progress_message = NULL"
        f" WHERE id = {task_id} AND state = 'pending'",
    )


def test_a_task_claimed_by_an_older_worker_version_is_charged_when_it_is_lost(app: Any, url: str, clock: Clock) -> None:
    fresh, released = (task.id for task in app.enqueue_many([NewTask("resize") for _ in range(2)]))
    app.release(claim_ahead(app, order="lifo")[0])
    for task_id in (fresh, released):
        claim_as_before(url, task_id, clock.now)
    assert app.recover() == 2
    assert [(app.get(each).attempts, app.get(each).dropped) for each in (fresh, released)] == [(1, 0), (1, 0)]


def test_a_task_that_kills_its_worker_reaches_the_dead_letter_also_if_an_older_worker_version_recovers_it(
    app: Any, url: str, clock: Clock
) -> None:
    task = app.enqueue("resize", max_attempts=2)
    for attempt in (1, 2):
        claim_ahead(app)
        clock.advance(60)
        run_sql(
            url,
            "UPDATE dibs_tasks SET state = CASE WHEN attempts_left <= 1 THEN 'failed' ELSE 'pending' END,"
            f" attempts = attempts + 1, lease_until = NULL WHERE state = 'claimed' AND lease_until <= {clock.now}",
        )
        assert app.get(task.id).attempts == attempt
    assert app.get(task.id).state is State.FAILED
