"""The shapes of large workflows, kept: what comes after what stays as it is, however often a page asks again.

To read and fold the dependencies of ten thousand steps takes a while; a page that is open asks whenever a step ends.
With the shape at hand, only how the steps stand is read, and that as a few long lists of ids.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from dibs.errors import WorkflowNotFound
from dibs.model.task import State
from dibs.model.workflow import StepGroup, StepKind, Workflow, WorkflowOutline
from dibs.server.api.workflows import seen
from dibs.server.dashboard.page import Visit
from dibs.server.service import Service
from dibs.workflow.summary import Parents, common_name, folding_within, sort_of, word_for

MOST, TALLEST = 120, 24
"""Boxes of a picture, and those above each other in one layer."""

MOST_UNFOLDED = 500
"""Boxes of a picture in which somebody wants to see every step alone."""

LARGE = 300
"""Smaller workflows are not worth it."""

KEPT = 16


@dataclass(frozen=True, slots=True)
class Group:
    """The steps of a box by their ids, mostly one, and the groups directly before it by their number. `name`: what to
    call many; one has its own."""

    ids: Sequence[int]
    after: Sequence[int]
    name: str = ""
    is_finalizer: bool = False

    @property
    def folded(self) -> bool:
        """True where the box stands for many steps."""
        return len(self.ids) > 1


@dataclass(frozen=True, slots=True)
class Shape:
    """How the steps of a workflow hang together: which there are, in order; those before each, by their places; the
    groups of the picture, and the group of each step. `size`: how many steps the workflow had. `whole`: nothing was
    left out."""

    size: int
    ids: Sequence[int]
    parents: Parents
    groups: Sequence[Group]
    group_of: Mapping[int, int]
    whole: bool

    @property
    def folded(self) -> bool:
        """True where some box stands for many steps."""
        return any(group.folded for group in self.groups)

    def fits(self, states: Iterable[StepGroup]) -> bool:
        """True while no step was taken away."""
        return sum(len(alike.ids) for alike in states) == len(self.ids)

    def group_with(self, task_id: int | None) -> Group | None:
        """The box that this step is in."""
        number = self.group_of.get(task_id) if task_id is not None else None
        return None if number is None else self.groups[number]

    def before(self, task_id: int, most: int) -> tuple[list[int], int]:
        """The first `most` steps directly before this one, and how many there are in all."""
        parents = self.parents[bisect_left(self.ids, task_id)]
        return [self.ids[place] for place in parents[:most]], len(parents)


@dataclass(frozen=True, slots=True)
class Stand:
    """How the steps of a group stand: how many there are of each word. `passed`: what comes after need not wait."""

    words: Mapping[str, int]
    passed: bool


async def look(visit: Visit, flow: Workflow, *, unfold: bool) -> tuple[Shape, list[StepGroup]]:
    """The shape of the workflow, as it was kept if it still holds; and how its steps stand now."""
    shapes = _SHAPES.setdefault(visit.service, OrderedDict())
    known = shapes.get((flow.id, unfold))
    if known is not None and known.size == flow.steps:
        states = await _step_states(visit, flow.id, known)
        if known.fits(states):
            shapes.move_to_end((flow.id, unfold))
            return known, states
    outline = await visit.run(seen(visit, visit.service.store.workflows.outline(flow.id)))
    shape = await asyncio.to_thread(make, outline, flow.steps, unfold=unfold)  # others wait for the event loop
    states = await _step_states(visit, flow.id, shape)
    if not shape.fits(states):
        raise WorkflowNotFound(flow.id)  # it is being pruned
    _keep(shapes, (flow.id, unfold), shape)
    return shape, states


async def _step_states(visit: Visit, flow: int, shape: Shape) -> list[StepGroup]:
    if not shape.ids:
        return []
    return await visit.run(seen(visit, visit.service.store.workflows.step_states(flow, shape.ids[-1])))


def _keep(shapes: OrderedDict[tuple[int, bool], Shape], key: tuple[int, bool], shape: Shape) -> None:
    if shape.size >= LARGE:
        shapes[key] = shape
        shapes.move_to_end(key)
        while len(shapes) > KEPT:
            shapes.popitem(last=False)


def make(outline: WorkflowOutline, size: int, *, unfold: bool = False) -> Shape:
    """Fold the steps into as many groups as can be looked at; the finalizer has one of its own, after all that nothing
    else comes after."""
    groups = [*_groups(outline, *((MOST_UNFOLDED, MOST_UNFOLDED) if unfold else (MOST, TALLEST)))]
    waited_for = {each for group in groups for each in group.after}
    ends = [number for number in range(len(groups)) if number not in waited_for]
    if StepKind.FINALIZER in outline.kinds:
        groups.append(Group([outline.ids[outline.kinds.index(StepKind.FINALIZER)]], ends, is_finalizer=True))
    group_of = {task_id: number for number, group in enumerate(groups) for task_id in group.ids}
    return Shape(size, outline.ids, outline.parents, groups, group_of, outline.whole)


def stands(shape: Shape, states: Iterable[StepGroup]) -> list[Stand]:
    """How each group stands."""
    words = [Counter[str]() for _ in shape.groups]
    passed = [0] * len(shape.groups)
    for alike in states:
        word = word_for(alike.state, alike.on_failure)
        for number, count in Counter(map(shape.group_of.get, alike.ids)).items():
            if number is not None:
                words[number][word] += count
                passed[number] += count if alike.passed else 0
    sizes = [len(group.ids) for group in shape.groups]
    return [Stand(found, done == size) for found, done, size in zip(words, passed, sizes, strict=True)]


def in_state(states: Iterable[StepGroup], state: State) -> set[int]:
    """The steps that are in this state."""
    return {task_id for alike in states if alike.state is state for task_id in alike.ids}


def _groups(outline: WorkflowOutline, most: int, tallest: int) -> Iterable[Group]:
    others, parents = _others(outline)
    sorts = list(
        map(sort_of, *([column[each] for each in others] for column in (outline.kinds, outline.types, outline.names)))
    )
    folding = folding_within(sorts, parents, most - 1, tallest)
    for places, after in zip(folding.parts, folding.after, strict=True):
        members = [others[place] for place in places]
        yield Group([outline.ids[each] for each in members], after, _name(outline, members))


def _others(outline: WorkflowOutline) -> tuple[Sequence[int], Parents]:
    """The places of all but the finalizer, and those before each by their number among them."""
    if StepKind.FINALIZER not in outline.kinds:
        return range(len(outline.ids)), outline.parents
    others = [place for place, kind in enumerate(outline.kinds) if kind != StepKind.FINALIZER]
    numbers = {place: number for number, place in enumerate(others)}
    return others, [[numbers[each] for each in outline.parents[place]] for place in others]


def _name(outline: WorkflowOutline, places: Sequence[int]) -> str:
    if len(places) == 1:
        return outline.names[places[0]]
    return common_name([outline.names[each] for each in places], (outline.types[each] for each in places))


_SHAPES: WeakKeyDictionary[Service, OrderedDict[tuple[int, bool], Shape]] = WeakKeyDictionary()
