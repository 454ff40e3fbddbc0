"""In a fair queue the groups take turns, by their weights, however many tasks each of them has."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

import pytest

from dibs import Completed, NewTask
from tests import matrix
from tests.helpers.clients import Clock
from tests.helpers.limiting import assert_exact, claim, enqueue, put, put_group, put_queue, put_type, settle, use

FLOOD = 100_000 if matrix.is_stress() else 2000
"""Tasks of one group that wait; the test of `make proof` about the cost of claims has 100,000."""

BATCH = 1000
"""The number of tasks that one enqueue of the HTTP API accepts."""

ORDERS = ("fifo", "lifo", "priority", "priority_lifo", "priority_asc", "random", "weighted")


@pytest.fixture(autouse=True)
def _fair(app: Any) -> None:
    put_queue(app, "default", fair=True)


def add(app: Any, group: str | None, count: int = 1, type: str = "t", **options: Any) -> list[Any]:
    """Enqueue tasks of a group, as many at once as the HTTP API accepts."""
    tasks = [NewTask(type, {"n": n}, group=group, **options) for n in range(count)]
    return [task for start in range(0, count, BATCH) for task in app.enqueue_many(tasks[start : start + BATCH])]


def served(app: Any, count: int, size: int = 1, **options: Any) -> list[str | None]:
    """The groups of the next tasks, which are claimed in claims of this size, in order."""
    return [each.task.group for _ in range(count // size) for each in claim(app, size, **options)]


@pytest.mark.parametrize("size", [1, 4, 12])
def test_groups_take_turns_in_claims_of_any_size(app: Any, size: int) -> None:
    for group in "abc":
        add(app, group, 4)
    assert served(app, 12, size) == list("abc" * 4)


@pytest.mark.parametrize("size", [1, 8, 40])
def test_a_group_of_three_times_the_weight_gets_three_claims_of_four(app: Any, size: int) -> None:
    put_group(app, "default", "a", 3)
    for group in "ab":
        add(app, group, 40)
    taken = served(app, 40, size)
    assert Counter(taken) == {"a": 30, "b": 10}
    for start in range(0, 40, 8):  # evenly, not one group after the other
        assert 4 <= Counter(taken[start : start + 8])["a"] <= 8


def test_a_weight_that_changes_counts_from_the_next_claim_on(app: Any) -> None:
    for group in "ab":
        add(app, group, 60)
    assert Counter(served(app, 20)) == {"a": 10, "b": 10}
    put_group(app, "default", "b", 4)
    taken = Counter(served(app, 40))
    assert abs(taken["b"] - 32) <= 1, taken


def test_tasks_without_a_group_are_one_group(app: Any) -> None:
    add(app, None, 20)
    add(app, "a", 20)
    add(app, "b", 20)
    assert Counter(served(app, 30)) == {None: 10, "a": 10, "b": 10}
    put_group(app, "default", None, 2)
    taken = Counter(served(app, 20))
    assert abs(taken[None] - 10) <= 1, taken


def test_a_group_with_tasks_of_two_types_does_not_get_two_shares(app: Any) -> None:
    for kind in ("mail", "index", "crop"):
        add(app, "a", 30, kind)
    add(app, "b", 30, "mail")
    assert Counter(served(app, 30)) == {"a": 15, "b": 15}
    assert Counter(served(app, 10, 5)) == {"a": 5, "b": 5}


def test_a_group_with_tasks_of_two_limits_does_not_get_two_shares(app: Any) -> None:
    put(app, "stripe", max=1000)
    add(app, "a", 30)
    add(app, "a", 30, limits=["stripe"])
    add(app, "b", 60)
    assert Counter(served(app, 30)) == {"a": 15, "b": 15}


def test_an_emptied_group_keeps_its_turn_until_the_others_have_passed_it(app: Any) -> None:
    for group in "abc":
        add(app, group, 5)
    [first] = claim(app, 1)
    for task_id in group_ids(app, first.task.group):
        app.cancel(task_id)
    add(app, first.task.group, 5)  # it comes back: it has had its turn in this round
    assert served(app, 6) == ["b", "c", "b", "c", "a", "b"]  # of groups with the same turn, the oldest task is first


def group_ids(app: Any, group: str | None) -> list[int]:
    """The pending tasks of a group."""
    return [task.id for task in app.list_tasks(state="pending", limit=1000) if task.group == group]


def test_a_group_gets_no_credit_for_the_time_in_which_it_had_no_tasks(app: Any) -> None:
    add(app, "a", 40)
    assert served(app, 20) == ["a"] * 20
    add(app, "b", 20)
    assert Counter(served(app, 20)) == {"a": 10, "b": 10}


def test_one_task_is_claimed_before_many_that_were_enqueued_in_bulk(app: Any) -> None:
    for start in range(0, FLOOD, 10_000):
        add(app, "flood", min(10_000, FLOOD - start))
    claim(app, 3)
    add(app, "small")
    assert "small" in served(app, 2)


def test_a_group_that_enqueues_one_task_at_a_time_gets_its_share_and_no_more(app: Any) -> None:
    add(app, "flood", 200)
    add(app, "other", 200)
    taken: list[str | None] = []
    for _ in range(60):  # its next task comes before each claim: it always has one that waits, and never more
        if not group_ids(app, "drip"):
            add(app, "drip")
        taken += served(app, 1)
    assert Counter(taken) == {"drip": 20, "flood": 20, "other": 20}


def test_priority_comes_before_turns(app: Any) -> None:
    add(app, "a", 3, priority=1)
    add(app, "b", 3)
    assert served(app, 6) == ["a", "a", "a", "b", "b", "b"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("priority", "aabba"),
        ("priority_lifo", "aabba"),
        ("priority_asc", "babaa"),
        ("fifo", "ababa"),
        ("lifo", "babaa"),
    ],
)
def test_turns_come_after_the_priority_only_in_orders_by_priority(app: Any, order: str, expected: str) -> None:
    add(app, "a", 2, priority=1)
    add(app, "b", 1)
    add(app, "a", 1)
    add(app, "b", 1)
    assert "".join(str(group) for group in served(app, 5, order=order)) == expected


@pytest.mark.parametrize("order", ORDERS)
def test_groups_take_turns_in_every_order(app: Any, order: str) -> None:
    for group in "ab":
        add(app, group, 30, priority=1)
    taken = served(app, 20, 1, order=order) + served(app, 20, 5, order=order)
    assert Counter(taken) == {"a": 20, "b": 20}
    assert max(len(list(run)) for _, run in groupby(taken)) <= 2, taken


def test_a_group_that_is_stopped_by_its_limit_does_not_hold_up_the_others(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    put_type(app, "t", limits=["tenant"])
    for group in "abc":
        add(app, group, 5)
    held = claim(app, 10)
    assert [each.task.group for each in held] == ["a", "b", "c"]
    app.complete(held[1])
    assert served(app, 1) == ["b"]
    app.finish([(each, Completed()) for each in (held[0], held[2])])
    assert sorted(str(group) for group in served(app, 10, 10)) == ["a", "c"]
    assert_exact(app)


def test_a_group_saves_nothing_up_while_one_of_its_tasks_waits_for_a_limit(app: Any) -> None:
    """The turns of the tasks that wait follow those of the group's other tasks: when the limit opens, the group is not
    served again and again for the turns that it did not take."""
    put(app, "shared", max=1)
    add(app, "a", limits=["shared"], type="other")
    [held] = claim(app, 10)
    add(app, "b", limits=["shared"])
    add(app, "a", 100)
    assert served(app, 40, 10) == ["a"] * 40
    add(app, "b", 60, priority=1)
    add(app, "a", 60, priority=1)
    app.complete(held)
    taken = served(app, 40)
    assert min(Counter(taken).values()) >= 19
    assert max(len(list(run)) for _, run in groupby(taken)) <= 2, taken


def test_a_group_saves_nothing_up_while_its_queue_is_not_fair(app: Any) -> None:
    add(app, "a", 100)
    assert served(app, 30, 10) == ["a"] * 30
    for fair in (False, True):
        put_queue(app, "default", fair=fair)
        settle(app)
    add(app, "b", 20)
    assert Counter(served(app, 20)) == {"a": 10, "b": 10}


def test_tasks_that_were_enqueued_before_the_queue_was_fair_take_turns(app: Any) -> None:
    put_queue(app, "other", fair=False)
    for group in "ab":
        add(app, group, 10, queue="other")
    assert served(app, 4, 4, queues=["other"]) == list("aaaa")
    put_queue(app, "other", fair=True)
    settle(app)
    assert served(app, 8, queues=["other"]) == list("ab" * 4)
    put_queue(app, "other", fair=False)
    assert served(app, 8, 8, queues=["other"]) == list("aabbbbbb")


def test_retries_and_recovered_tasks_take_turns_as_well(app: Any, clock: Clock) -> None:
    for group in "ab":
        add(app, group, 4, max_attempts=9)
    held = claim(app, 4, lease=5)
    for each in held[:2]:
        app.fail(each, "no", retry_in=0)
    clock.advance(6)
    taken = served(app, 8, 1, lease=600)
    assert Counter(taken) == {"a": 4, "b": 4}
    assert_exact(app)


# Changes of waiting tasks


def test_a_task_whose_params_are_changed_waits_for_the_turn_of_their_group(app: Any) -> None:
    put_type(app, "t", group_by="tenant")
    for tenant in "aaaaabb":
        app.enqueue("t", {"tenant": tenant})
    moved = app.enqueue("t", {"tenant": "a"})
    app.change(moved.id, params={"tenant": "c"})
    assert app.get(moved.id).group == "c"
    assert served(app, 6) == ["a", "b", "c", "a", "b", "a"]
    assert_exact(app)


def test_a_task_that_is_moved_to_a_queue_with_a_limit_obeys_it(app: Any) -> None:
    put(app, "mail-api", max=1)
    put_queue(app, "mail", limits=["mail-api"])
    enqueue(app, 1, queue="mail")
    tasks = enqueue(app, 3, queue="plain")
    for task in tasks:
        app.change(task.id, queue="mail")
    [held] = claim(app)
    assert use(app, "mail-api") == (1, 3)
    app.change(tasks[2].id, queue="plain")
    assert [each.task_id for each in claim(app)] == [tasks[2].id]
    app.complete(held)
    assert len(claim(app)) == 1
    assert use(app, "mail-api") == (1, 1)
    assert_exact(app)


def test_a_replacement_moves_the_task_into_the_backlog_of_its_new_group(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    put_type(app, "t", limits=["tenant"], group_by="tenant")
    full = app.enqueue("t", {"tenant": "full"})
    [held] = claim(app)
    options = {"key": "k", "key_scope": "until_started", "on_conflict": "replace"}
    waiting = app.enqueue("t", {"tenant": "full"}, **options)
    assert claim(app) == []
    replaced = app.enqueue("t", {"tenant": "free"}, **options)
    assert (replaced.id, replaced.replaced, replaced.group) == (waiting.id, True, "free")
    assert [each.task_id for each in claim(app)] == [waiting.id]
    again = app.enqueue("t", {"tenant": "free"}, **options)
    app.enqueue("t", {"tenant": "full"}, **options)
    assert claim(app) == []
    app.complete(held)
    assert [each.task_id for each in claim(app)] == [again.id]
    assert full.group == "full"
    assert_exact(app)
