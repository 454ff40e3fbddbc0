"""A task that was not started by its expiry is cancelled, and no claim returns it, whether upkeep ran or not."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import dibs
from dibs import Completed, Event, Failed, Failure, InvalidValue, NewTask, NotClaimable, Order, Released, State
from dibs.errors import TaskExpired
from dibs.model.claim import ClaimRequest, Filters
from dibs.observe.verify import verify
from dibs.procedures import claim_now
from tests.helpers.clients import Clock, follow, run, sweep_every
from tests.helpers.tasks import events, moment

NEVER = 10**9
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a queue": {"queues": ["default"]},
    "two queues": {"queues": ["default", "mail"]},
    "a type": {"types": ["resize"]},
    "queues and types": {"queues": ["default", "mail"], "types": ["resize", "draw"]},
    "attempts left": {"max_attempts_remaining": 2},
}


sweeps_are_set = pytest.mark.database("the test sets in the store how often claims sweep")


@pytest.fixture
def no_sweep(app: Any) -> None:
    """Claims sweep only when they find nothing: no upkeep comes before them."""
    sweep_every(app, NEVER)


def ahead(app: Any, count: int = 1) -> list[dibs.Claim]:
    request = ClaimRequest(worker_id="worker-1", count=count, ahead=True)
    claims: list[dibs.Claim] = follow(app, claim_now(app._store, request))
    return claims


def begin(app: Any, claim: dibs.Claim) -> dibs.DibsError | None:
    [answer] = run(app, app._store.queue.start([claim]))
    refused: dibs.DibsError | None = answer
    return refused


# What expires, and when


def test_a_task_that_was_not_started_by_its_expiry_is_cancelled_with_the_reason(app: Any, clock: Clock) -> None:
    before = app.enqueue("resize", expires_in=30)
    assert before.expires_at == moment(clock) + timedelta(seconds=30)
    clock.advance(29.999999)
    assert app.upkeep().expired == 0
    clock.advance(0.000001)
    assert app.upkeep().expired == 1
    task = app.get(before.id)
    assert (task.state, task.expired, task.finished_at, task.expires_at) == (
        State.CANCELLED, True, moment(clock), before.expires_at,
    )  # fmt: skip
    assert (task.error.type, task.attempts, task.cancel_requested) == ("TaskExpired", 0, False)
    assert events(app, task.id) == [Event.ENQUEUED, Event.EXPIRED]
    [reason] = app.explain(task.id).reasons
    assert (reason.code, f"{task.expires_at:%H:%M:%S}" in reason.message) == ("expired", True)


def test_a_task_can_expire_at_a_time(app: Any, clock: Clock) -> None:
    at = moment(clock) + timedelta(hours=1)
    task = app.enqueue("resize", expires_at=at)
    assert (task.expires_at, app.get(task.id).expires_at) == (at, at)
    clock.advance(3600)
    app.upkeep()
    assert app.get(task.id).expired


@sweeps_are_set
def test_a_task_whose_expiry_has_passed_at_the_enqueue_never_runs(app: Any, clock: Clock, no_sweep: None) -> None:
    task = app.enqueue("resize", expires_at=moment(clock) - timedelta(seconds=1))
    assert app.claim("worker-1") is None
    assert app.get(task.id).expired


def test_tasks_of_a_batch_expire_each_by_its_own_time(app: Any, clock: Clock) -> None:
    tasks = app.enqueue_many([NewTask("resize", expires_in=1), NewTask("resize"), NewTask("resize", expires_in=10)])
    clock.advance(5)
    app.upkeep()
    assert [app.get(task.id).expired for task in tasks] == [True, False, False]


def test_a_scheduled_task_expires_after_its_due_time(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", delay=10, expires_in=20)
    clock.advance(20)
    assert app.upkeep().expired == 1
    assert events(app, task.id) == [Event.ENQUEUED, Event.PROMOTED, Event.EXPIRED]


def test_upkeep_expires_in_batches(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize", expires_in=1)] * 7)
    clock.advance(1)
    expire = app._store.upkeep.expire_tasks(3)
    assert [run(app, expire) for _ in range(4)] == [3, 3, 1, 0]


# Claims


@sweeps_are_set
@pytest.mark.parametrize("order", list(Order))
def test_no_claim_returns_an_expired_task_even_before_upkeep(
    app: Any, clock: Clock, no_sweep: None, order: str
) -> None:
    for name, options in OPTIONS.items():
        old = app.enqueue_many([NewTask("resize", priority=5, expires_in=1)] * 40)
        new = [task.id for task in app.enqueue_many([NewTask("resize", expires_in=1000)] * 2)]
        clock.advance(1)
        peeked = run(app, app._store.queue.peek(Filters(count=3, order=order, **options)))
        assert {task.id for task in peeked} == set(new), name
        claims = app.claim_many("worker-1", 3, order=order, **options)
        assert {claim.task_id for claim in claims} == set(new), name
        assert app.claim("worker-1", order=order, **options) is None
        assert app.get(old[0].id).state is State.CANCELLED
        app.upkeep()


@sweeps_are_set
def test_a_claim_finds_its_task_behind_more_expired_tasks_than_a_scan_reads(
    app: Any, clock: Clock, no_sweep: None
) -> None:
    app.enqueue_many([NewTask("resize", priority=1, expires_in=1)] * 600)
    [first, second] = app.enqueue_many([NewTask("resize")] * 2)
    clock.advance(1)
    assert [app.claim("worker-1").task_id for _ in range(2)] == [first.id, second.id]


@sweeps_are_set
def test_a_claim_that_finds_nothing_expires_tasks_in_passing(app: Any, clock: Clock, no_sweep: None) -> None:
    task = app.enqueue("resize", expires_in=1)
    clock.advance(1)
    assert app.claim("worker-1") is None
    assert app.get(task.id).expired


@sweeps_are_set
def test_a_claim_by_id_of_an_expired_task_is_refused_with_the_reason(app: Any, clock: Clock, no_sweep: None) -> None:
    task = app.enqueue("resize", expires_in=1)
    clock.advance(1)
    for _ in range(2):  # before upkeep and after
        with pytest.raises(NotClaimable, match="expired at"):
            app.claim_by_id(task.id, "worker-1")
        app.upkeep()


def test_a_waiting_task_past_its_expiry_says_so(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", expires_in=1)
    clock.advance(1)
    [reason] = app.explain(task.id).reasons
    assert (reason.code, "upkeep" in reason.message) == ("expired", True)


def test_tasks_of_a_paused_queue_expire(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", expires_in=1)
    app.pause("default")
    clock.advance(1)
    assert app.upkeep().expired == 1
    assert app.get(task.id).expired


# What never expires


def test_a_task_that_was_started_in_time_does_not_expire(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", expires_in=10)
    claim = app.claim("worker-1", lease=60)
    clock.advance(20)
    assert app.upkeep().expired == 0
    assert app.complete(claim).state is State.COMPLETED
    assert not app.get(task.id).expired


@pytest.mark.parametrize(
    "outcome", [Failed(Failure("Error", "no"), retry_in=0), Failed(Failure("Error", "no"), retry_in=5), Released()]
)
def test_a_task_whose_first_attempt_began_does_not_expire(app: Any, clock: Clock, outcome: dibs.Outcome) -> None:
    task = app.enqueue("resize", expires_in=10)
    app.finish([(app.claim("worker-1"), outcome)])
    assert app.get(task.id).expires_at is None
    clock.advance(20)
    assert app.upkeep().expired == 0
    assert app.claim("worker-1").task_id == task.id


def test_a_task_whose_worker_was_lost_does_not_expire(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", expires_in=10)
    app.claim("worker-1", lease=5)
    clock.advance(20)
    assert (app.upkeep().recovered, app.get(task.id).state) == (1, State.PENDING)
    assert app.claim("worker-1").task_id == task.id


def test_an_expired_task_that_is_retried_runs_without_the_old_expiry(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", expires_in=1)
    clock.advance(1)
    app.upkeep()
    assert app.retry(task.id).expires_at is None
    clock.advance(100)
    app.upkeep()
    claim = app.claim("worker-1")
    assert (claim.task_id, app.complete(claim).state) == (task.id, State.COMPLETED)
    assert verify(app.all_history()).violations == []


def test_many_expired_tasks_are_retried_at_once(app: Any, clock: Clock) -> None:
    tasks = app.enqueue_many([NewTask("resize", expires_in=1)] * 3)
    clock.advance(1)
    app.upkeep()
    assert app.retry_matching(state="cancelled") == 3
    clock.advance(1)
    app.upkeep()
    assert [app.get(task.id).state for task in tasks] == [State.PENDING] * 3


# Claims ahead


def test_a_task_claimed_ahead_is_not_started_after_its_expiry(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", expires_in=10)
    [claim] = ahead(app)
    clock.advance(10)
    refused = begin(app, claim)
    assert isinstance(refused, TaskExpired)
    assert (refused.task_id, refused.token) == (task.id, claim.token)
    app.release(claim)
    app.upkeep()
    assert app.get(task.id).expired
    assert verify(app.all_history()).violations == []


def test_a_task_claimed_ahead_that_was_started_in_time_does_not_expire(app: Any, clock: Clock) -> None:
    app.enqueue("resize", expires_in=10)
    [claim] = ahead(app)
    assert begin(app, claim) is None
    clock.advance(20)
    assert begin(app, claim) is None
    app.release(claim)
    assert app.upkeep().expired == 0


@pytest.mark.parametrize("how", ["released", "lost"])
def test_a_task_that_was_claimed_ahead_and_not_started_still_expires(app: Any, clock: Clock, how: str) -> None:
    task = app.enqueue("resize", expires_in=100)
    [claim] = ahead(app)
    if how == "released":
        app.release(claim)
    clock.advance(60)
    app.upkeep()
    assert (app.get(task.id).state, app.get(task.id).expires_at) == (State.PENDING, task.expires_at)
    clock.advance(40)
    assert app.upkeep().expired == 1


def test_a_task_that_was_released_unstarted_past_its_expiry_is_expired_while_it_is_scheduled(
    app: Any, clock: Clock
) -> None:
    task = app.enqueue("resize", expires_in=10)
    [claim] = ahead(app)
    app.release(claim, delay=60)
    clock.advance(10)
    assert app.upkeep().expired == 1
    assert events(app, task.id)[-2:] == [Event.RELEASED, Event.EXPIRED]


def test_a_stale_claim_is_not_told_that_the_task_has_expired(app: Any, clock: Clock) -> None:
    app.enqueue("resize", expires_in=100)
    [claim] = ahead(app)
    app.release(claim)
    clock.advance(100)
    assert isinstance(begin(app, claim), dibs.ClaimLost)


# Refusals


def test_an_expiry_before_the_due_time_is_refused(app: Any, clock: Clock) -> None:
    now = moment(clock)
    soon, later = now + timedelta(seconds=10), now + timedelta(seconds=20)
    for options in (
        {"delay": 10, "expires_in": 10},
        {"delay": 10, "expires_in": 9},
        {"run_at": later, "expires_at": soon},
        {"run_at": later, "expires_at": later},
        {"run_at": later, "expires_in": 20},
        {"delay": 20, "expires_at": later},
    ):
        with pytest.raises(InvalidValue, match="before it is due"):
            app.enqueue("resize", **options)
    assert app.list_tasks() == []
    assert app.enqueue("resize", run_at=later, expires_in=20.000001).state is State.SCHEDULED
    assert app.enqueue("resize", delay=19.999999, expires_at=later).state is State.SCHEDULED


def test_one_wrong_expiry_refuses_the_whole_batch(app: Any, clock: Clock) -> None:
    wrong = NewTask("resize", delay=20, expires_at=moment(clock) + timedelta(seconds=1))
    with pytest.raises(InvalidValue, match="before it is due"):
        app.enqueue_many([NewTask("resize"), wrong])
    assert app.list_tasks() == []


@pytest.mark.parametrize(
    "options",
    [
        {"expires_in": 1, "expires_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"expires_in": 0},
        {"expires_in": -1},
        {"expires_in": "soon"},
        {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - without a time zone, which is the mistake
        {"expires_at": 7},
    ],
)
def test_an_expiry_that_is_none_is_refused(app: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="expires_"):
        app.enqueue("resize", **options)


def test_repeating_an_enqueue_with_a_key_returns_the_task_whatever_its_expiry(app: Any, clock: Clock) -> None:
    at = moment(clock) + timedelta(seconds=30)
    first = app.enqueue("resize", key="one", delay=20, expires_at=at)
    clock.advance(15)
    again = app.enqueue("resize", key="one", delay=20, expires_at=at)
    assert (again.id, again.deduplicated, again.expires_at) == (first.id, True, at)


# Handlers and schedules


def test_a_handler_gives_its_tasks_an_expiry(app: Any, clock: Clock) -> None:
    @app.task(expires_in=5)  # type: ignore[untyped-decorator]
    def resize() -> None: ...

    [task] = app.enqueue_many([resize.new()])
    clock.advance(5)
    app.upkeep()
    assert app.get(task.id).expired


def test_the_tasks_of_a_schedule_expire(app: Any, clock: Clock) -> None:
    assert app.set_schedule("nightly", "* * * * *", "resize", expires_in=30).expires_in == 30
    assert app.get_schedule("nightly").expires_in == 30
    clock.advance(60)
    assert app.upkeep().ticked == 1
    [task] = app.list_tasks()
    assert task.expires_at == moment(clock) + timedelta(seconds=30)
    assert app.set_schedule("nightly", "* * * * *", "resize").expires_in is None


# Races


def test_a_task_is_claimed_or_expires_but_never_both(app: Any, clock: Clock) -> None:
    tasks = app.enqueue_many([NewTask("resize", expires_in=10)] * 20)
    held = app.claim_many("worker-1", 10)
    clock.advance(10)
    assert app.upkeep().expired == 10
    assert all(isinstance(answer, dibs.Finished) for answer in app.finish([(claim, Completed()) for claim in held]))
    states = [app.get(task.id).state for task in tasks]
    assert (states.count(State.COMPLETED), states.count(State.CANCELLED)) == (10, 10)
    assert verify(app.all_history(), tasks=app.list_tasks(limit=1000)).violations == []


@pytest.mark.database("upkeep runs beside the claims, in the same program")
def test_claims_beside_upkeep_return_no_task_after_its_expiry(url: str, open_app: Callable[..., Any]) -> None:
    """Four claimers and two programs that do upkeep, by the real clock."""
    apps = [open_app(url) for _ in range(6)]
    tasks = apps[0].enqueue_many([NewTask("resize", expires_in=0.05 + n / 400) for n in range(200)])
    held: list[dibs.Claim] = []

    def claim(app: Any) -> None:
        while any(each.state is State.PENDING for each in app.list_tasks(state="pending", limit=1)):
            held.extend(app.claim_many("worker-1", 3))

    def expire(app: Any) -> None:
        while app.list_tasks(state="pending", limit=1):
            run(app, app._store.upkeep.expire_tasks(7))

    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(claim, app) for app in apps[:4]] + [
            threads.submit(expire, app) for app in apps[4:]
        ]:
            done.result()
    expiry = {task.id: task.expires_at for task in tasks}
    assert [claim.task_id for claim in held if claim.task.claimed_at >= expiry[claim.task_id]] == []
    ended = [task for task in apps[0].list_tasks(limit=1000) if task.expired]
    assert len(ended) + len(held) == 200
    assert verify(apps[0].all_history()).violations == []


# Changes


def test_a_task_cannot_be_made_due_after_its_expiry(app: Any, clock: Clock) -> None:
    task, other = app.enqueue("resize", expires_in=60), app.enqueue("resize")
    with pytest.raises(InvalidValue, match="before it is due"):
        app.change(task.id, delay=60)
    assert app.change(task.id, delay=59.999999, priority=3).expires_at == task.expires_at
    assert app.change_matching(dibs.TaskChange(delay=3600), type="resize") == 1
    assert [app.get(each.id).run_at == moment(clock) + timedelta(hours=1) for each in (task, other)] == [False, True]
