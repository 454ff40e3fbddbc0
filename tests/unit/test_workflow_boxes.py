"""The boxes of workflows in the dashboard: which steps share a box, its state, and its table."""

from __future__ import annotations

import random
import time

import pytest

from dibs.model.task import State
from dibs.model.workflow import OnFailure, StepGroup, WorkflowOutline
from dibs.server.dashboard import workflows
from dibs.server.dashboard.workflow_graphs import GraphShape, GroupStatus, group_statuses, make
from dibs.server.dashboard.workflows import WorkflowPageQuery


def outline(parents: list[list[int]], types: list[str], finalizer: int | None = None) -> WorkflowOutline:
    """Steps with the ids 10, 20, 30 …"""
    count = len(parents)
    kinds = ["finalizer" if place == finalizer else "task" for place in range(count)]
    names = [f"step-{place}" for place in range(count)]
    return WorkflowOutline([10 * place + 10 for place in range(count)], names, kinds, types, parents, True)


def alike(state: State, ids: list[int], policy: OnFailure = OnFailure.FAIL) -> StepGroup:
    return StepGroup(state, policy, True if state is State.COMPLETED else None, ids)


def fan(count: int) -> WorkflowOutline:
    middle = [[0]] * (count - 2)
    return outline([[], *middle, list(range(1, count - 1))], ["first", *["part"] * (count - 2), "last"])


def test_the_state_of_a_group_follows_from_its_steps() -> None:
    shape = make(fan(40), 40)
    told = [
        alike(State.COMPLETED, [10, 20, 30]),
        alike(State.FAILED, [40]),
        alike(State.FAILED, [50], OnFailure.IGNORE),
        alike(State.BLOCKED, [*range(60, 410, 10), 999]),
    ]
    assert group_statuses(shape, told) == [
        GroupStatus({"completed": 1}, True),
        GroupStatus({"completed": 2, "failed": 1, "ignored": 1, "blocked": 34}, False),
        GroupStatus({"blocked": 1}, False),
    ]
    assert not shape.fits(told)
    assert shape.fits([alike(State.COMPLETED, list(shape.ids))])


def test_of_several_finalizers_the_newest_is_drawn() -> None:
    steps = WorkflowOutline(
        [10, 20, 30], ["a", "old", "new"], ["task", "finalizer", "finalizer"], ["t"] * 3, [[]] * 3, True
    )
    shape = make(steps, 1)
    assert [list(group.ids) for group in shape.groups] == [[10], [30]]
    assert shape.fits([alike(State.COMPLETED, [10, 20]), alike(State.BLOCKED, [30])])
    assert group_statuses(shape, [alike(State.COMPLETED, [20])])[1] == GroupStatus({}, False)


def test_a_finalizer_has_its_own_box_after_all_others() -> None:
    shape = make(outline([[], [0], [], [1]], ["one", "two", "report", "three"], finalizer=2), 3)
    assert [(list(group.ids), list(group.after), group.is_finalizer) for group in shape.groups] == [
        ([10], [], False),
        ([20], [0], False),
        ([40], [1], False),
        ([30], [2], True),
    ]
    assert shape.has_finalizer(30)
    assert not shape.has_finalizer(50)
    assert shape.before(40, 3) == ([20], 1)
    assert shape.before(30, 3) == ([], 0)


def test_the_table_of_a_box_of_many_layers_is_sorted_by_id_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "ROWS", 3)
    parents = [[] if place % 200 == 0 else [place - 1] for place in range(800)]  # four chains, one after the other
    shape = make(outline(parents, [f"type-{place}" for place in range(800)]), 800)
    told = [alike(State.PENDING, list(shape.ids[::2])), alike(State.CLAIMED, list(shape.ids[1::2]))]
    for group in shape.groups:
        assert pages(shape, told, WorkflowPageQuery(of=group.ids[-1])) == sorted(group.ids)
    assert pages(shape, told, WorkflowPageQuery(state=State.CLAIMED)) == list(shape.ids[1::2])


def pages(shape: GraphShape, told: list[StepGroup], view: WorkflowPageQuery) -> list[int]:
    """The ids in the table, page by page."""
    seen, cursor = list[int](), None
    while True:
        page, cursor = workflows._table(shape, told, WorkflowPageQuery(of=view.of, state=view.state, cursor=cursor))
        seen += page
        if cursor is None:
            return seen


@pytest.mark.parametrize("kind", ["fan", "chains", "random", "of one type"])
def test_ten_thousand_steps_are_grouped_quickly_into_few_boxes(kind: str) -> None:
    chance = random.Random(1)
    wild = [chance.sample(range(max(0, n - 200), n), min(n, chance.randint(0, 4))) for n in range(10_000)]
    given = {
        "fan": fan(10_000),
        "chains": outline([[n - 1] if n % 100 else [] for n in range(10_000)], [f"t{n % 100}" for n in range(10_000)]),
        "random": outline(wild, [f"t{n % 13}" for n in range(10_000)]),
        "of one type": outline(wild, ["t"] * 10_000),
    }[kind]
    began = time.process_time()
    shape = make(given, 10_000)
    assert time.process_time() - began < 1  # some 0.03 s on a quiet machine
    assert len(shape.groups) <= 120
    assert sorted(task_id for group in shape.groups for task_id in group.ids) == list(given.ids)
