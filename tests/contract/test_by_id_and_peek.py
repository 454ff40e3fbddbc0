"""Claim by id takes the task or states why not; peek shows what a claim would take, and changes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import dibs
from dibs import AlreadyClaimed, NewTask, NotClaimable, Order, State, TaskNotFound
from tests.helpers.clients import Clock
from tests.helpers.tasks import events, moment, task_in

DETERMINISTIC = [Order.PRIORITY, Order.PRIORITY_LIFO, Order.PRIORITY_ASC, Order.FIFO, Order.LIFO]

# Claim by id


def test_a_pending_task_is_claimed_by_its_id_ahead_of_all_others(app: Any) -> None:
    first, wanted = app.enqueue_many([NewTask("resize", priority=9), NewTask("resize", {"image": 7})])
    claim = app.claim_by_id(wanted.id, "worker-1")
    assert (claim.task_id, claim.token, claim.worker_id) == (wanted.id, 1, "worker-1")
    assert (claim.task.params, claim.task.state) == ({"image": 7}, State.CLAIMED)
    assert app.get(first.id).state is State.PENDING


def test_a_claim_by_id_holds_for_the_lease_asked_for(app: Any, clock: Clock) -> None:
    claim = app.claim_by_id(app.enqueue("resize").id, "worker-1", lease=30)
    assert claim.lease_until == moment(clock) + timedelta(seconds=30)


def test_a_claim_by_id_issues_the_next_token(app: Any) -> None:
    task = app.enqueue("resize")
    app.release(app.claim("worker-1"))
    assert app.claim_by_id(task.id, "worker-2").token == 2


def test_a_claimed_task_is_refused_by_id_and_the_refusal_names_its_worker(app: Any) -> None:
    task = task_in(app, "claimed", worker_id="worker-1")
    with pytest.raises(AlreadyClaimed, match="already claimed by worker-1") as refused:
        app.claim_by_id(task.id, "worker-2")
    assert (refused.value.task_id, refused.value.worker_id, refused.value.state) == (task.id, "worker-1", "claimed")


def test_the_holder_of_a_task_cannot_claim_it_by_id_again(app: Any) -> None:
    task = task_in(app, "claimed", worker_id="worker-1")
    with pytest.raises(AlreadyClaimed):
        app.claim_by_id(task.id, "worker-1")
    assert app.get(task.id).token == 1


@pytest.mark.parametrize("state", ["scheduled", "completed", "failed", "cancelled"])
def test_a_task_that_is_not_pending_is_refused_by_id_with_its_state(app: Any, state: str) -> None:
    task = task_in(app, state)
    with pytest.raises(NotClaimable, match=f"not claimable: it is {state}") as refused:
        app.claim_by_id(task.id, "worker-2")
    assert not isinstance(refused.value, AlreadyClaimed)
    assert (refused.value.task_id, refused.value.state) == (task.id, state)


def test_a_refused_claim_by_id_leaves_the_task_as_it_was(app: Any) -> None:
    before = task_in(app, "claimed")
    with pytest.raises(NotClaimable):
        app.claim_by_id(before.id, "worker-2")
    assert app.get(before.id) == before
    assert events(app, before.id) == ["enqueued", "claimed"]


def test_a_task_that_does_not_exist_is_not_found_by_id(app: Any) -> None:
    with pytest.raises(TaskNotFound) as refused:
        app.claim_by_id(404, "worker-1")
    assert refused.value.task_id == 404


def test_a_task_of_a_paused_queue_is_refused_by_id_until_the_queue_is_resumed(app: Any) -> None:
    task = app.enqueue("resize", queue="slow")
    app.pause("slow")
    with pytest.raises(NotClaimable, match="queue 'slow' is paused") as refused:
        app.claim_by_id(task.id, "worker-1")
    assert refused.value.state == "pending"
    app.resume("slow")
    assert app.claim_by_id(task.id, "worker-1").task_id == task.id


def test_a_claim_by_id_ignores_that_another_queue_is_paused(app: Any) -> None:
    task = app.enqueue("resize")
    app.pause("slow")
    assert app.claim_by_id(task.id, "worker-1").task_id == task.id


def test_a_due_task_that_is_not_promoted_yet_is_claimed_by_id(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", delay=10)
    clock.advance(10)
    assert app.claim_by_id(task.id, "worker-1").task_id == task.id
    assert events(app, task.id) == ["enqueued", "promoted", "claimed"]


def test_a_task_whose_lease_ran_out_is_claimed_by_id_under_the_next_token(app: Any, clock: Clock) -> None:
    task = task_in(app, "claimed", worker_id="worker-1")
    clock.advance(60)
    claim = app.claim_by_id(task.id, "worker-2")
    assert (claim.token, claim.worker_id, claim.task.attempts) == (2, "worker-2", 1)
    assert events(app, task.id) == ["enqueued", "claimed", "recovered", "claimed"]


def test_a_due_task_behind_many_other_due_tasks_is_claimed_by_id(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("other", delay=1) for _ in range(150)])
    task = app.enqueue("resize", delay=2)
    clock.advance(2)
    assert app.claim_by_id(task.id, "worker-1").task_id == task.id


def test_a_task_whose_lease_ran_out_after_many_others_is_claimed_by_id(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("other") for _ in range(150)])
    app.claim_many("worker-1", 150, lease=1)
    task = app.enqueue("resize")
    app.claim_by_id(task.id, "worker-1", lease=2)
    clock.advance(2)
    assert app.claim_by_id(task.id, "worker-2").worker_id == "worker-2"


def test_of_ten_workers_that_claim_one_id_one_wins_and_the_other_refusals_name_the_winner(app: Any) -> None:
    task = app.enqueue("resize")

    def race(number: int) -> Any:
        try:
            return app.claim_by_id(task.id, f"worker-{number}")
        except AlreadyClaimed as refused:
            return refused

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(race, range(10)))
    won = [answer for answer in answers if isinstance(answer, dibs.Claim)]
    lost = [answer for answer in answers if isinstance(answer, AlreadyClaimed)]
    assert (len(won), len(lost), won[0].token) == (1, 9, 1)
    assert {refused.worker_id for refused in lost} == {won[0].worker_id}
    assert events(app, task.id) == ["enqueued", "claimed"]


def test_a_malformed_id_is_refused(app: Any) -> None:
    for bad in (-1, "1", 1.0, True, None, 2**63):
        with pytest.raises(dibs.InvalidValue):
            app.claim_by_id(bad, "worker-1")


# Peek


def mixed(app: Any) -> None:
    """Tasks in several lines, of several priorities, two of each."""
    app.enqueue_many(
        [
            NewTask(type_name, queue=queue, priority=priority)
            for _ in range(2)
            for queue in ("fast", "slow")
            for type_name in ("crop", "resize")
            for priority in (5, 0, -5)
        ]
    )


@pytest.mark.parametrize("order", DETERMINISTIC)
def test_peek_shows_the_tasks_that_single_claims_take_next(app: Any, order: str) -> None:
    mixed(app)
    shown = [task.id for task in app.peek(24, order=order)]
    taken = [app.claim("worker-1", order=order).task_id for _ in range(24)]
    assert shown == taken


@pytest.mark.parametrize("order", DETERMINISTIC)
def test_peek_shows_the_tasks_that_a_batch_claim_takes_next(app: Any, order: str) -> None:
    mixed(app)
    shown = [task.id for task in app.peek(7, order=order)]
    assert shown == [claim.task_id for claim in app.claim_many("worker-1", 7, order=order)]


def test_the_deterministic_orders_differ_from_each_other(app: Any) -> None:
    mixed(app)
    assert len({tuple(task.id for task in app.peek(24, order=order)) for order in DETERMINISTIC}) == 5


@pytest.mark.parametrize(
    "filters", [{"queues": ["fast"]}, {"types": ["crop"]}, {"queues": ["slow"], "types": ["resize", "crop"]}]
)
def test_peek_and_claim_agree_under_filters(app: Any, filters: dict[str, Any]) -> None:
    mixed(app)
    shown = [task.id for task in app.peek(24, **filters)]
    assert shown == [claim.task_id for claim in app.claim_many("worker-1", 24, **filters)]
    assert 0 < len(shown) < 24


@pytest.mark.parametrize("order", list(Order))
def test_peek_in_any_order_shows_each_pending_task_once_and_respects_the_limit(app: Any, order: str) -> None:
    mixed(app)
    pending = {task.id for task in app.list_tasks()}
    assert len(app.peek(5, order=order)) == 5
    shown = [task.id for task in app.peek(1000, order=order)]
    assert sorted(shown) == sorted(pending)


@pytest.mark.parametrize("order", list(Order))
def test_peek_changes_nothing(app: Any, order: str) -> None:
    mixed(app)
    before = app.list_tasks(), app.all_history(), app.stats()
    app.peek(24, order=order)
    assert (app.list_tasks(), app.all_history(), app.stats()) == before


def test_peek_shows_the_tasks_as_they_are(app: Any) -> None:
    task = app.enqueue("resize", {"image": 7}, priority=3)
    assert app.peek() == [task]


def test_peek_shows_only_claimable_tasks(app: Any) -> None:
    for state in ("scheduled", "claimed", "completed", "failed", "cancelled"):
        task_in(app, state)
    app.enqueue("resize", queue="slow")
    app.pause("slow")
    assert app.peek(10) == []
    assert app.peek(10, queues=["slow"]) == []


def test_peek_into_an_empty_queue_shows_nothing(app: Any) -> None:
    assert app.peek(10) == []


def test_peek_refuses_the_same_arguments_as_a_claim(app: Any) -> None:
    for options in ({"count": 0}, {"count": 1001}, {"order": "newest"}, {"queues": []}, {"types": "a"}):
        with pytest.raises(dibs.InvalidValue):
            app.peek(**options)
