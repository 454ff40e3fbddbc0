"""Claims obey limits: never more live claims than the maximum, no permit lost, no task that waits beside a free one."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs import ClaimLost, Completed, InvalidValue, LimitReached, LimitUnknown, NewStep, NewTask, State
from dibs.model.claim import ClaimRequest
from dibs.model.workflow import NewWorkflow
from tests.helpers.clients import Clock, run
from tests.helpers.databases import run_sql
from tests.helpers.limiting import (
    assert_exact,
    claim,
    enqueue,
    get,
    groups_of,
    put,
    put_queue,
    put_type,
    remove,
    settle,
    use,
)


def ids(tasks: Any) -> list[int]:
    return [each.task_id if hasattr(each, "task_id") else each.id for each in tasks]


# Maximum


def test_no_more_tasks_are_claimed_than_the_limit_allows(app: Any) -> None:
    put(app, "stripe", max=2)
    tasks = enqueue(app, 5, limits=["stripe"])
    assert ids(claim(app)) == ids(tasks[:2])
    assert claim(app) == []
    assert use(app, "stripe") == (2, 3)
    assert app.get(tasks[0].id).limits == ["stripe"]
    assert_exact(app)


def test_a_claim_says_whether_it_counts_towards_a_limit(app: Any) -> None:
    put(app, "stripe", max=5)
    put_queue(app, "fair", fair=True)
    enqueue(app, limits=["stripe"])
    enqueue(app, queue="fair", group="a")
    enqueue(app)
    [last] = enqueue(app, limits=["stripe"])
    assert [each.limited for each in claim(app, 3)] == [True, False, False]
    assert app.claim_by_id(last.id, "w").limited


def test_each_way_to_end_a_claim_returns_its_permit(app: Any, clock: Clock) -> None:
    put(app, "stripe", max=1)
    enqueue(app, 9, limits=["stripe"], max_attempts=2)
    ends = [
        app.complete,
        lambda held: app.fail(held, "no", retry_in=0),
        lambda held: app.fail(held, "no", retry_in=60),
        lambda held: app.fail(held, "no", permanent=True),
        app.release,
        lambda held: app.release(held, delay=60),
        lambda held: app.finish([(held, dibs.Cancelled())]),
        lambda held: clock.advance(61),
    ]
    for end in ends:
        [held] = claim(app, lease=60)
        assert claim(app) == []
        end(held)
        app.upkeep()
        assert use(app, "stripe")[0] == 0
    assert_exact(app)


def test_a_waiting_task_is_found_however_it_came_back(app: Any, clock: Clock) -> None:
    put(app, "stripe", max=1)
    [task] = enqueue(app, limits=["stripe"], delay=10, max_attempts=9)
    assert claim(app) == []
    clock.advance(10)
    for end in (
        lambda held: app.fail(held, "no", retry_in=0),
        lambda held: app.fail(held, "no", retry_in=5),
        app.release,
        lambda held: app.release(held, delay=5),
        lambda held: None,
        lambda held: (app.fail(held, "no", permanent=True), app.retry(task.id)),
        lambda held: (app.fail(held, "no", permanent=True), app.redrive()),
        lambda held: (app.release(held), app.cancel(task.id), app.retry(task.id)),
    ):
        [held] = claim(app, lease=5)
        assert held.task_id == task.id
        end(held)
        clock.advance(5)
    assert ids(claim(app)) == [task.id]
    assert_exact(app)


def test_a_worker_that_was_recovered_and_reports_twice_returns_one_permit(app: Any, clock: Clock) -> None:
    put(app, "stripe", max=1)
    enqueue(app, 2, limits=["stripe"])
    [frozen] = claim(app, lease=5)
    clock.advance(6)
    [second] = claim(app, worker="other", lease=60)
    for _ in range(2):
        with pytest.raises(ClaimLost):
            app.complete(frozen)
    assert claim(app) == []
    assert use(app, "stripe")[0] == 1
    app.complete(second)
    app.complete(second)  # a repeated outcome
    assert len(claim(app)) == 1
    assert_exact(app)


def test_the_result_of_a_repeated_request_is_the_same_claim_and_one_permit(app: Any) -> None:
    put(app, "stripe", max=2)
    enqueue(app, 3, limits=["stripe"])
    first = claim(app, 1, request="once")
    assert ids(claim(app, 1, request="once")) == ids(first)
    assert use(app, "stripe")[0] == 1


def test_a_task_with_two_limits_needs_a_permit_of_both(app: Any) -> None:
    put(app, "stripe", max=5)
    put(app, "mail", max=1)
    enqueue(app, 3, limits=["stripe", "mail"])
    enqueue(app, 3, limits=["stripe"])
    assert len(claim(app)) == 4
    assert (use(app, "stripe"), use(app, "mail")) == ((4, 2), (1, 2))


def test_a_limit_per_group_holds_for_each_group(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    for number in range(3):
        for group in "abc":
            app.enqueue("charge", {"n": number}, limits=["tenant"], group=group)
    held = claim(app)
    assert [each.task.group for each in held] == ["a", "b", "c"]
    app.complete(held[1])
    assert [each.task.group for each in claim(app)] == ["b"]
    assert [(each.group, each.used, each.waiting) for each in groups_of(app, "tenant")] == [
        ("a", 1, 2), ("b", 1, 1), ("c", 1, 2)
    ]  # fmt: skip


def test_a_full_limit_does_not_hold_up_tasks_that_do_not_need_it(app: Any) -> None:
    put(app, "stripe", max=1)
    put(app, "tenant", max=2, per="group")
    enqueue(app, 5, limits=["stripe", "tenant"], group="acme")
    enqueue(app, 5, type="mail", limits=["tenant"], group="acme")
    assert [each.task.type for each in claim(app)] == ["charge", "mail"]


def test_a_type_that_is_paused_keeps_no_permits_from_others(app: Any) -> None:
    put(app, "stripe", max=2)
    held_back = enqueue(app, 3, "draw", limits=["stripe"])
    others = enqueue(app, 2, "read", limits=["stripe"])
    app.pause_type("draw")
    held = claim(app)
    assert ids(held) == ids(others)
    with pytest.raises(dibs.NotClaimable, match="its type 'draw' is paused"):
        app.claim_by_id(held_back[0].id, "worker-1")
    assert app.explain(held_back[0].id).reasons[0].code == "type_paused"
    app.resume_type("draw")
    app.finish([(each, Completed()) for each in held])
    assert len(claim(app)) == 2
    assert_exact(app)


def test_a_task_with_a_limit_that_was_not_started_by_its_expiry_is_cancelled(app: Any, clock: Clock) -> None:
    put(app, "stripe", max=1)
    [first, late, last] = app.enqueue_many(
        [NewTask("draw", limits=["stripe"], expires_in=seconds) for seconds in (1000, 10, 1000)]
    )
    [held] = claim(app)
    clock.advance(10)
    assert app.upkeep().expired == 1
    assert (held.task_id, app.get(late.id).expired) == (first.id, True)
    app.complete(held)
    assert ids(claim(app)) == [last.id]
    assert_exact(app)


def test_a_queue_that_is_paused_keeps_no_permits_from_others(app: Any) -> None:
    put(app, "stripe", max=2)
    enqueue(app, 5, queue="first", limits=["stripe"])
    enqueue(app, 5, queue="second", limits=["stripe"])
    app.pause("first")
    held = claim(app)
    assert [each.task.queue for each in held] == ["second", "second"]
    app.finish([(each, Completed()) for each in held])
    assert [each.task.queue for each in claim(app)] == ["second", "second"]


def test_a_queue_without_workers_keeps_no_permits_from_others(app: Any) -> None:
    put(app, "stripe", max=1)
    enqueue(app, 3, queue="unserved", limits=["stripe"], priority=9)
    enqueue(app, 3, queue="served", limits=["stripe"])
    for _ in range(3):
        [held] = claim(app, queues=["served"])
        assert claim(app, queues=["served"]) == []
        app.complete(held)
    assert ids(claim(app, queues=["unserved"])) != []


def test_cancelling_the_tasks_that_a_permit_has_woken_wakes_the_next(app: Any) -> None:
    put(app, "stripe", max=1)
    first, second = enqueue(app, 2, limits=["stripe"]), enqueue(app, 2, type="mail", limits=["stripe"])
    [held] = claim(app, 1)
    assert claim(app, 1, types=["mail"]) == []
    app.complete(held)
    assert claim(app, 1, types=["other"]) == []  # it opens a backlog of each type
    for task in first[1:]:
        app.cancel(task.id)
    assert ids(claim(app, 1)) == [second[0].id]


def test_a_permit_is_passed_on_by_a_task_that_another_limit_stops(app: Any) -> None:
    put(app, "stripe", max=1)
    put(app, "tenant", max=1, per="group")
    enqueue(app, limits=["tenant"], group="a", priority=9)
    enqueue(app, limits=["stripe"])
    assert len(claim(app)) == 2  # tenant a and stripe are full
    blocked = enqueue(app, limits=["stripe", "tenant"], group="a", priority=5)
    free = enqueue(app, limits=["stripe", "tenant"], group="b")
    assert claim(app) == []
    app.complete(_held(app, 2))
    assert ids(claim(app)) == ids(free)
    assert app.get(blocked[0].id).state is State.PENDING


def _held(app: Any, task_id: int) -> Any:
    task = app.get(task_id)
    return dibs.ClaimRef(task.id, task.token, task.worker_id)


# Order


def test_plain_and_limited_tasks_are_claimed_by_priority_and_then_by_age(app: Any) -> None:
    put(app, "stripe", max=9)
    made = [
        app.enqueue("a", {}, priority=1),
        app.enqueue("b", {}, priority=2, limits=["stripe"]),
        app.enqueue("c", {}, priority=1, limits=["stripe"]),
        app.enqueue("d", {}, priority=2),
        app.enqueue("e", {}, priority=0),
        app.enqueue("f", {}, priority=1),
    ]
    assert [each.type for each in app.peek(6)] == list("bdacfe")
    assert [each.task.type for each in claim(app, 4)] == list("bdac")
    assert [each.task.type for each in claim(app, 4)] == list("fe")
    assert len(made) == 6


@pytest.mark.parametrize(
    ("order", "expected"),
    [("fifo", "abcdef"), ("lifo", "fedcba"), ("priority_lifo", "dbfcae"), ("priority_asc", "eacfbd")],
)
def test_other_orders_take_plain_and_limited_tasks_together(app: Any, order: str, expected: str) -> None:
    put(app, "stripe", max=9)
    for name, priority, limits in zip("abcdef", (1, 2, 1, 2, 0, 1), ((), ("stripe",)) * 3, strict=True):
        app.enqueue(name, {}, priority=priority, limits=list(limits))
    assert [each.task.type for each in claim(app, 6, order=order)] == list(expected)


RETURNED = {
    "priority": "cadbe",
    "priority_lifo": "cdaeb",
    "priority_asc": "beadc",
    "fifo": "abcde",
    "lifo": "edcba",
}
"""The order of the claims of five groups, a with priority 1, b 0, c 2, d 1, e 0, whose limit has one permit."""


@pytest.mark.parametrize(("order", "expected"), RETURNED.items())
def test_a_permit_that_returns_goes_to_the_first_task_in_the_order_of_the_claim(
    app: Any, order: str, expected: str
) -> None:
    put(app, "stripe", max=1)
    enqueue(app, limits=["stripe"], priority=9)
    for group, priority in zip("abcde", (1, 0, 2, 1, 0), strict=True):
        enqueue(app, limits=["stripe"], group=group, priority=priority)
    [held] = claim(app)
    assert claim(app) == []  # all groups wait for the permit
    took = ""
    for _ in expected:
        app.complete(held)
        assert claim(app, types=["other"], order="priority") == []  # opens a group that the next claim need not take
        peeked = app.peek(1, order=order)
        [held] = claim(app, order=order)
        assert ids(peeked) == [held.task_id]
        took += held.task.group
    assert took == expected
    assert_exact(app)


def test_a_claim_that_demands_attempts_passes_over_groups_whose_first_task_has_fewer(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    for number in range(40):
        enqueue(app, limits=["tenant"], group=f"g{number}", priority=5, max_attempts=1)
        enqueue(app, limits=["tenant"], group=f"g{number}", max_attempts=3)
    first = claim(app, 1, max_attempts_remaining=2)
    assert [(each.task.group, each.task.max_attempts) for each in first] == [("g0", 3)]
    assert len(claim(app, 100, max_attempts_remaining=2)) == 39


@pytest.mark.parametrize("order", dibs.Order)
def test_a_permit_goes_to_a_task_with_the_demanded_attempts(app: Any, order: str) -> None:
    put(app, "stripe", max=1)
    enqueue(app, limits=["stripe"], priority=9)
    enqueue(app, limits=["stripe"], group="a", priority=5, max_attempts=1)
    [fits] = enqueue(app, limits=["stripe"], group="b", max_attempts=3)
    [held] = claim(app)
    assert claim(app) == []
    app.complete(held)
    assert ids(app.peek(10, order=order, max_attempts_remaining=2)) == [fits.id]
    assert ids(claim(app, order=order, max_attempts_remaining=2)) == [fits.id]


def test_a_task_comes_by_its_priority_after_the_first_task_of_another_group_was_cancelled(app: Any) -> None:
    put(app, "stripe", max=1)
    enqueue(app, limits=["stripe"])
    [held] = claim(app)
    [first] = enqueue(app, limits=["stripe"], group="a", priority=9)
    enqueue(app, limits=["stripe"], group="a")
    [urgent] = enqueue(app, limits=["stripe"], group="b", priority=5)
    assert claim(app) == []
    app.cancel(first.id)
    app.complete(held)
    assert [each.task_id for each in claim(app)] == [urgent.id]


def test_a_peek_shows_what_a_claim_would_take(app: Any) -> None:
    put(app, "stripe", max=1)
    enqueue(app, 2, limits=["stripe"], priority=3)
    enqueue(app, 2, type="plain")
    seen = ids(app.peek(9))
    assert len(seen) == 3
    assert ids(claim(app)) == seen
    assert app.peek(9) == []


def test_claims_ahead_take_no_task_with_a_limit(app: Any) -> None:
    put(app, "stripe", max=5)
    enqueue(app, 2, limits=["stripe"])
    [plain] = enqueue(app, type="plain")
    request = ClaimRequest(worker_id="w", count=9, ahead=True)
    assert ids(run(app, app._store.queue.claim(request))) == [plain.id]


# By id


def test_a_claim_by_id_beyond_a_limit_is_refused_and_names_the_limit(app: Any) -> None:
    put(app, "stripe", max=1)
    first, second = enqueue(app, 2, limits=["stripe"])
    held = app.claim_by_id(first.id, "w")
    with pytest.raises(LimitReached, match="'stripe'") as refused:
        app.claim_by_id(second.id, "w")
    assert (refused.value.task_id, refused.value.name) == (second.id, "stripe")
    app.complete(held)
    assert app.claim_by_id(second.id, "w").task_id == second.id
    assert use(app, "stripe") == (1, 0)
    assert_exact(app)


# Changes of limits


def test_a_limit_is_lowered_raised_removed_and_set_again_while_tasks_run(app: Any) -> None:
    put(app, "stripe", max=5)
    enqueue(app, 30, limits=["stripe"])
    held = claim(app)
    assert len(held) == 5
    put(app, "stripe", max=1)
    app.finish([(each, Completed()) for each in held[:3]])
    assert claim(app) == []
    put(app, "stripe", max=5)
    assert len(claim(app)) == 3
    remove(app, "stripe")
    assert len(claim(app, 4)) == 4
    put(app, "stripe", max=5)
    assert claim(app) == []
    assert use(app, "stripe")[0] == 9
    put(app, "stripe", max=10)
    assert len(claim(app)) == 1
    assert_exact(app)


def test_a_limit_in_use_does_not_change_between_all_tasks_and_each_group(app: Any) -> None:
    put(app, "stripe", max=5)
    enqueue(app, limits=["stripe"])
    claim(app)
    with pytest.raises(InvalidValue, match="in use"):
        put(app, "stripe", max=5, per="group")


# Refusals


def test_unknown_limits_are_refused_at_enqueue(app: Any) -> None:
    with pytest.raises(LimitUnknown, match="'stripe'"):
        enqueue(app, limits=["stripe"])
    put(app, "stripe", max=1)
    enqueue(app, limits=["stripe"])
    remove(app, "stripe")
    with pytest.raises(LimitUnknown):
        enqueue(app, limits=["stripe"])
    assert len(app.list_tasks()) == 1


def test_a_limit_per_group_without_a_group_is_refused(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    with pytest.raises(InvalidValue, match="no group"):
        enqueue(app, limits=["tenant"])


def test_a_task_has_at_most_eight_limits(app: Any) -> None:
    for number in range(9):
        put(app, f"limit-{number}", max=1)
    names = [f"limit-{number}" for number in range(9)]
    with pytest.raises(InvalidValue, match="at most 8"):
        NewTask("charge", limits=names)
    put_queue(app, "mail", limits=names[:2])
    with pytest.raises(InvalidValue, match="at most 8"):
        enqueue(app, queue="mail", limits=names[2:9])
    assert enqueue(app, queue="mail", limits=names[2:8])


def test_a_batch_with_an_unknown_limit_stores_nothing(app: Any) -> None:
    put(app, "stripe", max=1)
    with pytest.raises(LimitUnknown):
        app.enqueue_many([NewTask("charge", limits=["stripe"]), NewTask("charge", limits=["nothing"])])
    assert app.list_tasks() == []


# Queues and types


def test_tasks_of_a_queue_and_of_a_type_have_the_limits_of_both(app: Any) -> None:
    put(app, "mail-api", max=2)
    put(app, "tenant", max=1, per="group")
    put_queue(app, "mail", limits=["mail-api"])
    put_type(app, "send", limits=["tenant"], group_by="tenant")
    for tenant in (1, 1, 2, 3):
        app.enqueue("send", {"tenant": tenant}, queue="mail")
    held = claim(app)
    assert [each.task.group for each in held] == ["1", "2"]
    assert [(each.task.params["tenant"], each.task.limits) for each in held] == [(1, []), (2, [])]


def test_tasks_that_wait_obey_a_new_limit_of_their_queue(app: Any) -> None:
    put(app, "mail-api", max=1)
    enqueue(app, 3, queue="mail")
    enqueue(app, 2, queue="mail", delay=60)
    [running] = claim(app, 1)
    put_queue(app, "mail", limits=["mail-api"])
    assert settle(app) == 5
    assert len(claim(app)) == 1
    app.release(running)
    assert claim(app) == []
    assert settle(app) == 0
    assert_exact(app)


def test_tasks_of_a_queue_that_loses_its_limit_run_without_it(app: Any) -> None:
    put(app, "mail-api", max=1)
    put_queue(app, "mail", limits=["mail-api"])
    enqueue(app, 5, queue="mail")
    assert len(claim(app)) == 1
    put_queue(app, "mail", limits=[])
    assert len(claim(app)) == 4
    assert enqueue(app, 1, queue="mail")
    assert len(claim(app)) == 1
    assert_exact(app)


def test_another_process_obeys_a_setting_that_was_made_meanwhile(app: Any, url: str, open_app: Any) -> None:
    first, second = app, open_app(url)
    enqueue(second, queue="mail")
    put(first, "mail-api", max=1)
    put_queue(first, "mail", limits=["mail-api"])
    enqueue(second, 3, queue="mail")
    assert settle(first) == 1
    assert len(claim(second)) == 1


# Workflows, batches, exchange, schedules


def test_steps_obey_limits(app: Any) -> None:
    put(app, "stripe", max=1)
    steps = [
        NewStep(name="a", task=NewTask("first")),
        NewStep(name="b", task=NewTask("charge", limits=["stripe"]), after=["a"]),
        NewStep(name="c", task=NewTask("charge", limits=["stripe"]), after=["a"]),
    ]
    app.start_workflow(NewWorkflow(name="limited", steps=steps))
    [first] = claim(app)
    app.complete(first)
    [held] = claim(app)
    assert claim(app) == []
    app.complete(held)
    assert len(claim(app)) == 1
    assert_exact(app)


def test_an_exchange_gives_a_permit_back_and_takes_it_again(app: Any) -> None:
    put(app, "stripe", max=2)
    app.enqueue_many([NewTask("charge", limits=["stripe"]) for _ in range(7)])
    held, done = claim(app), 0
    while held:
        assert len(held) <= 2
        done += len(held)
        _, held = app.exchange([(each, Completed()) for each in held], "w", 10)
    assert done == 7
    assert use(app, "stripe") == (0, 0)


def test_pruned_tasks_return_their_permits(app: Any, clock: Clock) -> None:
    put(app, "stripe", max=1)
    enqueue(app, 2, limits=["stripe"])
    [held] = claim(app)
    app.complete(held)
    clock.advance(25 * 3600)
    app.upkeep()
    assert len(app.list_tasks()) == 1
    assert len(claim(app)) == 1
    assert_exact(app)


# What people see


def test_explain_names_the_limit_and_how_many_tasks_are_before(app: Any) -> None:
    put(app, "stripe", max=1)
    tasks = enqueue(app, 4, limits=["stripe"])
    claim(app)
    [reason, *_] = app.explain(tasks[3].id).reasons
    assert reason.code == "limit_reached"
    assert "waits for the limit 'stripe' (1 of 1 in use); 2 tasks before it" in reason.message


def test_the_history_notes_how_long_a_task_waited_for_which_limit(app: Any, clock: Clock) -> None:
    put(app, "stripe", max=1)
    first, second = enqueue(app, 2, limits=["stripe"])
    [held] = claim(app, lease=600)
    clock.advance(30)
    app.complete(held)
    claim(app)
    assert app.history(first.id)[1].detail is None
    assert app.history(second.id)[1].detail == {"limit": "stripe", "waited": 30.0}


def test_the_history_adds_up_the_waits_for_all_limits_of_a_task(app: Any, clock: Clock) -> None:
    put(app, "a", max=1)
    put(app, "b", max=1)
    [of_a] = enqueue(app, type="of-a", limits=["a"])
    [held_a] = claim(app, lease=600)
    [of_both] = enqueue(app, type="of-both", limits=["a", "b"])
    enqueue(app, type="of-b", limits=["b"])
    [held_b] = claim(app, lease=600)
    clock.advance(100)
    app.complete(held_a)
    assert claim(app) == []  # the task of both waits for b from now on
    clock.advance(50)
    app.complete(held_b)
    assert ids(claim(app)) == [of_both.id]
    detail = app.history(of_both.id)[1].detail
    assert detail == {"limit": "b", "waited": 150.0, "waits": {"a": 100.0, "b": 50.0}}
    assert app.history(of_a.id)[1].detail is None


def test_a_task_has_waited_for_a_limit_also_if_another_one_started_in_between(app: Any, clock: Clock) -> None:
    put(app, "stripe", max=1)
    tasks = enqueue(app, 3, limits=["stripe"])
    [held] = claim(app, lease=600)
    clock.advance(30)
    app.complete(held)
    put(app, "stripe", max=5)
    assert ids(claim(app, 1)) == [tasks[1].id]
    clock.advance(10)  # nothing but a worker is missing
    [late] = enqueue(app, limits=["stripe"])
    assert ids(claim(app, 5)) == [tasks[2].id, late.id]
    assert app.history(tasks[2].id)[1].detail == {"limit": "stripe", "waited": 30.0}
    assert app.history(late.id)[1].detail is None


@pytest.mark.parametrize("turns", [6, 20])
def test_a_task_whose_limits_are_full_in_turns_keeps_the_sum_of_its_waits(app: Any, clock: Clock, turns: int) -> None:
    put(app, "a", max=1)
    put(app, "b", max=1)
    enqueue(app, type="of-a", priority=1, limits=["a"])
    [held] = claim(app, lease=6000)
    [waiting] = enqueue(app, type="of-both", limits=["a", "b"])
    for name in "ba" * (turns // 2):
        enqueue(app, type=f"of-{name}", priority=1, limits=[name])
        [other] = claim(app, lease=6000)
        clock.advance(10)
        app.complete(held)
        assert claim(app) == []
        held = other
    clock.advance(10)
    app.complete(held)
    assert ids(claim(app)) == [waiting.id]
    detail = app.history(waiting.id)[1].detail
    assert detail["waited"] == sum(detail["waits"].values()) == 10.0 * (turns + 1)
    assert detail["limit"] == "a"
    if turns == 6:
        assert detail["waits"] == {"a": 40.0, "b": 30.0}  # of many turns, the first ones count for one limit


def test_doctor_finds_a_permit_that_was_lost(app: Any, url: str) -> None:
    put(app, "stripe", max=1)
    enqueue(app, limits=["stripe"])
    claim(app)
    run_sql(url, "DELETE FROM dibs_tasks")
    [check] = [each for each in app.doctor() if each.name == "limits"]
    assert check.verdict == "fail"
    assert get(app, "stripe").used == 1
