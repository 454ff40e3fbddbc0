"""The drawing of a graph in the dashboard: no overlaps, every edge forward, the same drawing every time."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dibs.model.task import State
from dibs.model.workflow import OnFailure, Step, StepKind
from dibs.server.dashboard.graph_layout import Box, Layout, direct, lay_out
from dibs.workflow.summary import fold_within, layers_of

MOST, TALLEST = 120, 24


@some.composite
def graphs(draw: some.DrawFn, most: int = 40) -> list[list[int]]:
    """The parents of each node of a graph without circles, its nodes in any order."""
    count = draw(some.integers(1, most))
    names = draw(some.permutations(range(count)))
    parents: list[list[int]] = [[] for _ in range(count)]
    for place in range(1, count):
        for parent in draw(some.sets(some.integers(0, place - 1), max_size=4)):
            parents[names[place]].append(names[parent])
    return parents


def sizes(parents: Sequence[Sequence[int]]) -> list[tuple[float, float]]:
    return [(120.0 + 10 * (node % 5), 44.0 + 14 * (node % 2)) for node in range(len(parents))]


def overlap(one: Box, other: Box) -> bool:
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    above = one.y + one.height <= other.y or other.y + other.height <= one.y
    return not (beside or above)


def assert_sound(layout: Layout, parents: Sequence[Sequence[int]]) -> None:
    assert len(layout.boxes) == len(parents)
    assert {(line.start, line.end) for line in layout.edges} <= {
        (parent, node) for node, above in enumerate(parents) for parent in above
    }
    for number, box in enumerate(layout.boxes):
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= layout.width
        assert box.y + box.height <= layout.height + 0.1
        assert not any(overlap(box, other) for other in layout.boxes[:number])
    for line in layout.edges:
        start, end = layout.boxes[line.start], layout.boxes[line.end]
        assert line.points[0] == (start.x + start.width, pytest.approx(start.y + start.height / 2, abs=0.2))
        assert line.points[-1] == (end.x, pytest.approx(end.y + end.height / 2, abs=0.2))
        assert all(x <= to_x for (x, _), (to_x, _) in pairwise(line.points))


@settings(deadline=None)  # a machine may be busy
@given(graphs())
def test_no_box_overlaps_another_and_every_edge_goes_forward(parents: list[list[int]]) -> None:
    assert_sound(lay_out(parents, sizes(parents)), parents)


@settings(deadline=None)  # a machine may be busy
@given(graphs())
def test_the_same_graph_is_drawn_the_same(parents: list[list[int]]) -> None:
    assert lay_out(parents, sizes(parents)) == lay_out(parents, sizes(parents))


@given(graphs(24))
def test_an_edge_that_is_left_out_is_redundant(parents: list[list[int]]) -> None:
    """Every node that came before a node still does."""
    assert everything_before(direct(parents)) == everything_before(parents)
    assert layers_of(direct(parents)) == layers_of(parents)


def everything_before(parents: Sequence[Sequence[int]]) -> list[set[int]]:
    def before(node: int) -> set[int]:
        return {each for parent in parents[node] for each in (parent, *before(parent))}

    return [before(node) for node in range(len(parents))]


@settings(deadline=None)  # a machine may be busy
@given(graphs())
def test_an_edge_across_a_layer_overlaps_no_box(parents: list[list[int]]) -> None:
    layout = lay_out(parents, sizes(parents))
    for line in layout.edges:
        for (x, y), (to_x, to_y) in pairwise(line.points[1:-1]):
            if y == to_y:
                passed = [box for box in layout.boxes if x < box.x + box.width and to_x > box.x]
                assert not any(box.y < y < box.y + box.height for box in passed)


def test_edges_that_cross_in_the_written_order_do_not_cross_in_the_drawing() -> None:
    parents: list[list[int]] = [[], [], [], [2], [1], [0]]
    boxes = lay_out(parents, sizes(parents)).boxes
    tops = sorted(range(3), key=lambda node: boxes[node].y)
    assert [5 - node for node in tops] == sorted(range(3, 6), key=lambda node: boxes[node].y)


def test_an_empty_graph_is_drawn_empty() -> None:
    assert lay_out([], []) == Layout(0.0, 0.0, (), ())


# Folding: never more boxes than can be looked at


def step(task_id: int, after: Sequence[int] = (), type: str = "page") -> Step:
    state = State.COMPLETED if task_id % 3 else State.FAILED
    return Step(
        task_id, f"{type}-{task_id}", StepKind.TASK, type, "default", state, 1, 3, list(after), 0, OnFailure.FAIL, None
    )


def fan_out(count: int) -> list[Step]:
    return [step(1, type="fetch"), *(step(n, [1]) for n in range(2, count)), step(count, range(2, count), "merge")]


def chain(count: int) -> list[Step]:
    return [step(n, [n - 1] if n > 1 else []) for n in range(1, count + 1)]


def chaos(count: int) -> list[Step]:
    """Every step of a type of its own, after any others."""
    chance = random.Random(count)
    return [step(n, chance.sample(range(1, n), min(n - 1, 3)), f"type{n}") for n in range(1, count + 1)]


def crowd(count: int) -> list[Step]:
    """Nothing waits for anything, and nothing is equal."""
    return [step(n, type=f"type{n}") for n in range(1, count + 1)]


@pytest.mark.parametrize("count", [3, 24, 100, 121, 1000, 10_000])
@pytest.mark.parametrize("shape", [fan_out, chain, chaos, crowd])
def test_any_number_of_steps_is_shown_in_few_boxes(shape: object, count: int) -> None:
    steps = shape(count)  # type: ignore[operator]
    groups = fold_within(steps, MOST, TALLEST)
    assert len(groups) <= MOST
    assert sorted(each.task_id for group in groups for each in group.steps) == list(range(1, count + 1))
    parents = [group.after for group in groups]
    layout = lay_out(parents, sizes(parents))
    assert_sound(layout, parents)
    per_layer = [sum(box.x == x for box in layout.boxes) for x in {box.x for box in layout.boxes}]
    assert max(per_layer) <= TALLEST


def test_a_hundred_steps_of_any_kind_are_drawn_one_by_one() -> None:
    chance = random.Random(7)
    steps = [
        step(n, [chance.randrange((n - 1) // 10 * 10 - 9, (n - 1) // 10 * 10 + 1)] if n > 10 else [])
        for n in range(1, 101)
    ]
    assert all(not group.folded for group in fold_within(steps, MOST, TALLEST))


def test_a_wide_fan_out_is_one_box() -> None:
    fetch, pages, merge = fold_within(fan_out(1000), MOST, TALLEST)
    assert (fetch.name, len(pages.steps), merge.after) == ("fetch-1", 998, [1])
    assert pages.name == "page"


def test_the_largest_drawing_is_computed_quickly() -> None:
    steps = chaos(10_000)
    began = time.thread_time()  # not the time in which other processes run
    groups = fold_within(steps, MOST, TALLEST)
    lay_out([group.after for group in groups], sizes(groups))  # type: ignore[arg-type]
    assert time.thread_time() - began < 2  # some 0.1 s
