"""Another group for a task that has not started: it waits in the backlog of the new group, or the change is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import AlreadyStarted, InvalidValue, NewStep, NewTask, State, TaskChange
from dibs.model.workflow import NewWorkflow
from dibs.observe.limits_check import LimitPeriod, LimitsRecord
from dibs.observe.verify import verify
from tests.helpers.clients import Clock
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


def group(app: Any, task: Any) -> Any:
    return app.get(task.id).group


def last_detail(app: Any, task: Any) -> Any:
    return app.history(task.id)[-1].detail


@pytest.fixture
def each(app: Any) -> Any:
    """The app with a limit of one claim for each group."""
    put(app, "tenant", max=1, per="group")
    return app


def test_a_task_has_the_new_group_until_it_is_removed(app: Any) -> None:
    task = app.enqueue("charge")
    assert app.change(task.id, group="acme").group == "acme"
    assert last_detail(app, task) == {"group": {"from": None, "to": "acme"}}
    assert app.claim("w").task.group == "acme"
    other = app.enqueue("charge", group="acme")
    assert app.change(other.id, priority=3).group == "acme"
    assert app.change(other.id, group="").group is None
    assert last_detail(app, other) == {"group": {"from": "acme", "to": None}}
    before = len(app.history(other.id))
    assert app.change(other.id, group="").group is None
    assert len(app.history(other.id)) == before


@pytest.mark.parametrize("wrong", ["a\tb", "x" * 256, 5])
def test_a_group_that_is_no_text_of_one_line_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue):
        TaskChange(group=wrong)


def test_a_task_waits_for_the_limit_of_its_new_group_only(each: Any) -> None:
    first, moved, other = (each.enqueue("charge", limits=["tenant"], group=name) for name in ("acme", "acme", "globex"))
    assert [held.task_id for held in claim(each)] == [first.id, other.id]
    each.change(moved.id, group="initech")
    [held] = claim(each)
    assert (held.task_id, held.task.group) == (moved.id, "initech")
    assert [(part.group, part.used, part.waiting) for part in groups_of(each, "tenant")] == [
        ("acme", 1, 0), ("globex", 1, 0), ("initech", 1, 0)
    ]  # fmt: skip
    each.complete(held)
    assert_exact(each)


def test_a_task_that_joins_a_group_with_a_full_limit_waits(each: Any) -> None:
    [_, free] = [each.enqueue("charge", limits=["tenant"], group=name) for name in ("acme", "globex")]
    [held] = claim(each, 1)
    each.change(free.id, group="acme")
    assert claim(each) == []
    assert each.explain(free.id).reasons[0].code == "limit_reached"
    each.complete(held)
    assert [held.task_id for held in claim(each)] == [free.id]
    assert_exact(each)


def test_a_permit_of_the_old_group_returns_to_the_old_group(each: Any, clock: Clock) -> None:
    [task, waiting] = enqueue(each, 2, limits=["tenant"], group="acme", max_attempts=3)
    [held] = claim(each)
    each.fail(held, "no", retry_in=60)
    each.change(task.id, group="globex")
    assert [held.task_id for held in claim(each, lease=600)] == [waiting.id]
    clock.advance(60)
    [again] = claim(each)
    assert (again.task_id, again.task.group) == (task.id, "globex")
    assert [(part.group, part.used) for part in groups_of(each, "tenant")] == [("acme", 1), ("globex", 1)]
    each.complete(again)
    assert_exact(each)


def test_tasks_of_a_fair_queue_take_their_turn_in_the_new_group(app: Any) -> None:
    put_queue(app, "default", fair=True)
    crowd = enqueue(app, 6, group="acme")
    app.change(crowd[5].id, group="globex")
    first, second = claim(app, 2)
    assert {first.task.group, second.task.group} == {"acme", "globex"}


# Groups that params name


def test_the_group_follows_new_params_unless_it_was_given(each: Any) -> None:
    put_type(each, "charge", group_by="tenant", limits=["tenant"])
    named = each.enqueue("charge", {"tenant": "acme"})
    given = each.enqueue("charge", {"tenant": "acme"}, group="vip")
    for task in (named, given):
        each.change(task.id, params={"tenant": "globex"})
    assert (group(each, named), group(each, given)) == ("globex", "vip")
    assert last_detail(each, named)["group"] == {"from": "acme", "to": "globex"}
    each.change(given.id, group="")
    assert group(each, given) == "globex"
    assert [held.task.group for held in claim(each)] == ["globex"]
    assert_exact(each)


def test_new_params_that_name_no_group_are_refused_where_a_limit_needs_one(each: Any) -> None:
    put_type(each, "charge", group_by="tenant", limits=["tenant"])
    task = each.enqueue("charge", {"tenant": "acme"})
    for params in ({}, {"tenant": None}, {"tenant": ["a"]}):
        with pytest.raises(InvalidValue, match="group"):
            each.change(task.id, params=params)
    assert each.get(task.id) == task
    assert each.change(task.id, params={}, group="acme").group == "acme"


def test_a_task_whose_params_name_no_readable_group_can_still_be_changed(each: Any) -> None:
    task = each.enqueue("charge", {"tenant": ["a"]})
    put_type(each, "charge", group_by="tenant", limits=["tenant"])
    settle(each)
    assert group(each, task) is None
    assert each.change(task.id, priority=3).priority == 3
    assert each.change_matching(TaskChange(priority=4), type="charge") == 1
    assert each.change(task.id, group="acme").group == "acme"
    assert [held.task.group for held in claim(each)] == ["acme"]
    assert_exact(each)


def test_repeating_an_enqueue_with_a_key_gives_a_task_its_new_group(each: Any) -> None:
    options: dict[str, Any] = {"limits": ["tenant"], "key": "a", "delay": 5, "on_conflict": "replace"}
    each.enqueue("charge", limits=["tenant"], group="globex")
    [held] = claim(each)
    each.enqueue("charge", group="acme", **options)
    replaced = each.enqueue("charge", group="globex", **{**options, "delay": 0})
    assert (replaced.replaced, replaced.group) == (True, "globex")
    assert claim(each) == []
    each.complete(held)
    assert [held.task_id for held in claim(each)] == [replaced.id]
    assert_exact(each)


def test_a_replacement_without_a_group_is_refused_where_a_limit_needs_one(each: Any) -> None:
    task = each.enqueue("charge", limits=["tenant"], group="acme", key="a")
    with pytest.raises(InvalidValue, match="holds for each group"):
        each.enqueue("charge", {"n": 1}, limits=["tenant"], key="a", on_conflict="replace")
    assert each.get(task.id) == task


def test_a_replacement_has_the_group_that_its_params_name(each: Any) -> None:
    put_type(each, "charge", group_by="tenant", limits=["tenant"])
    each.enqueue("charge", {"tenant": "acme"}, key="a")
    replaced = each.enqueue("charge", {"tenant": "globex"}, key="a", on_conflict="replace")
    assert (replaced.replaced, replaced.group) == (True, "globex")
    assert last_detail(each, replaced) == {"changed": ["params", "group"]}
    assert [held.task.group for held in claim(each)] == ["globex"]


# Refusals


def test_a_limit_per_group_is_not_left_without_a_group(each: Any) -> None:
    put(each, "all", max=1)
    put_queue(each, "strict", limits=["tenant"])
    grouped = each.enqueue("charge", limits=["tenant", "all"], group="acme")
    with pytest.raises(InvalidValue, match="'tenant' holds for each group, and the task has no group"):
        each.change(grouped.id, group="")
    plain = each.enqueue("charge")
    with pytest.raises(InvalidValue, match="'tenant' holds for each group, and the task has no group"):
        each.change(plain.id, queue="strict")
    assert (each.get(grouped.id), each.get(plain.id)) == (grouped, plain)
    assert each.change(plain.id, queue="strict", group="acme").queue == "strict"


def test_a_claimed_task_keeps_its_group(each: Any) -> None:
    task = each.enqueue("charge", limits=["tenant"], group="acme")
    claim(each)
    for name in ("globex", ""):
        with pytest.raises(AlreadyStarted):
            each.change(task.id, group=name)
    assert use(each, "tenant") == (1, 0)


def test_a_task_whose_limit_was_removed_can_be_changed(each: Any) -> None:
    task = each.enqueue("charge", limits=["tenant"], group="acme")
    remove(each, "tenant")
    assert each.change(task.id, priority=5).priority == 5
    assert each.change(task.id, group="").group is None
    assert [held.task_id for held in claim(each)] == [task.id]


def test_a_task_that_had_no_group_when_its_limit_came_can_be_changed(each: Any) -> None:
    task = each.enqueue("charge")
    put_type(each, "charge", limits=["tenant"])
    settle(each)
    assert each.change(task.id, priority=5).priority == 5
    assert each.change(task.id, group="acme").group == "acme"
    with pytest.raises(InvalidValue):
        each.change(task.id, group="")


# Many


def test_all_tasks_that_match_get_the_group_except_those_that_need_another(each: Any) -> None:
    tasks = enqueue(each, 3, limits=["tenant"], group="acme")
    plain = each.enqueue("charge", group="acme")
    assert each.change_matching(TaskChange(group="globex"), type="charge") == 4
    assert {group(each, task) for task in tasks} == {"globex"}
    assert each.change_matching(TaskChange(group=""), type="charge") == 1
    assert (group(each, plain), group(each, tasks[0])) == (None, "globex")
    assert len(claim(each)) == 2
    assert_exact(each)


def test_tasks_without_a_group_are_left_out_of_a_move_to_a_queue_that_needs_one(each: Any) -> None:
    put_queue(each, "strict", limits=["tenant"])
    plain, grouped = each.enqueue("charge"), each.enqueue("charge", group="acme")
    assert each.change_matching(TaskChange(queue="strict"), type="charge") == 1
    assert [each.get(task.id).queue for task in (plain, grouped)] == ["default", "strict"]


# Steps


def test_a_blocked_step_has_its_new_group_when_it_becomes_pending(each: Any) -> None:
    each.enqueue("charge", limits=["tenant"], group="acme")
    steps = [
        NewStep(name="a", task=NewTask("fetch")),
        NewStep(name="b", task=NewTask("charge", limits=["tenant"], group="globex"), after=["a"]),
    ]
    workflow = each.start_workflow(NewWorkflow(name="w", steps=steps))
    [held, parent] = claim(each)
    blocked = next(task for task in each.list_tasks(state="blocked") if task.workflow_id == workflow.id)
    assert each.change(blocked.id, group="acme").state is State.BLOCKED
    each.complete(parent)
    assert claim(each) == []
    each.complete(held)
    assert [each.task_id for each in claim(each)] == [blocked.id]
    assert_exact(each)


def test_the_checker_judges_a_task_by_its_new_group_only_after_the_change(each: Any) -> None:
    task = each.enqueue("charge", limits=["tenant"], group="acme", max_attempts=3)
    [held] = claim(each)
    each.enqueue("charge", limits=["tenant"], group="globex")
    [other] = claim(each)
    each.fail(held, "no", retry_in=0)
    each.change(task.id, group="globex")
    assert claim(each) == []
    each.complete(other)
    [again] = claim(each)
    each.complete(again)
    record = LimitsRecord(limits=[LimitPeriod("tenant", get(each, "tenant").values)], used={("tenant", "globex"): 0})
    report = verify(each.all_history(), tasks=each.list_tasks(), limits=record)
    assert report.ok, str(report)
