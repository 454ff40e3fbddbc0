"""A cache of the shapes of large workflows: their steps, dependencies and groups, which rarely change.

Reading and folding the dependencies of ten thousand steps takes long, and an open page reloads whenever a step ends.
With a cached shape, only the states of the steps are read, as a few lists of ids.
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
from dibs.server.api.workflows import if_visible
from dibs.server.dashboard.page import PageRequest
from dibs.server.service import Service
from dibs.workflow.summary import ParentLists, common_name, folding_within, shown_state_of, sort_of

MAX_BOXES, MAX_PER_LAYER = 120, 24
"""Maximum number of boxes in a picture, and in one layer."""

MAX_UNFOLDED = 500
"""Maximum number of boxes in an unfolded picture."""

MIN_CACHED_STEPS = 300
"""Workflows with fewer steps are not cached."""

MAX_CACHED = 16


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The steps of one box, by id, and the indexes of the groups directly before it. `name`: the common name of
    folded steps."""

    ids: Sequence[int]
    after: Sequence[int]
    name: str = ""
    is_finalizer: bool = False

    @property
    def folded(self) -> bool:
        """True if the box contains several steps."""
        return len(self.ids) > 1


@dataclass(frozen=True, slots=True)
class GraphShape:
    """The structure of a workflow: its steps in order, their parents by index, the groups of the picture, and the
    group of each step. `size`: the number of steps of the workflow. `whole`: no step was left out."""

    size: int
    ids: Sequence[int]
    parents: ParentLists
    groups: Sequence[NodeGroup]
    group_of: Mapping[int, int]
    whole: bool

    @property
    def folded(self) -> bool:
        """True if any box contains several steps."""
        return any(group.folded for group in self.groups)

    def has_finalizer(self, task_id: int | None) -> bool:
        """Return True unless the workflow has another finalizer by now, because it was retried."""
        finalizers = [group.ids[0] for group in self.groups[-1:] if group.is_finalizer]
        return not finalizers or finalizers == [task_id]

    def fits(self, states: Iterable[StepGroup]) -> bool:
        """Return True unless a step was pruned."""
        return sum(len(alike.ids) for alike in states) == len(self.ids)

    def group_with(self, task_id: int | None) -> NodeGroup | None:
        """Return the group of a step."""
        number = self.group_of.get(task_id) if task_id is not None else None
        return None if number is None else self.groups[number]

    def before(self, task_id: int, most: int) -> tuple[list[int], int]:
        """Return the first `most` parents of a step, and the number of its parents."""
        parents = self.parents[bisect_left(self.ids, task_id)]
        return [self.ids[place] for place in parents[:most]], len(parents)


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The number of steps of a group in each state that is shown. `passed`: the group no longer blocks later steps."""

    counts: Mapping[str, int]
    passed: bool


async def read_shape(request: PageRequest, flow: Workflow, *, unfold: bool) -> tuple[GraphShape, list[StepGroup]]:
    """Return the shape of the workflow, from the cache if it is valid, and the current states of its steps."""
    shapes = _SHAPES.setdefault(request.service, OrderedDict())
    known = shapes.get((flow.id, unfold))
    if known is not None and known.size == flow.steps and known.has_finalizer(flow.finalizer_id):
        states = await _step_states(request, flow.id, known)
        if known.fits(states):
            shapes.move_to_end((flow.id, unfold))
            return known, states
    outline = await request.run(if_visible(request, request.service.store.workflows.outline(flow.id)))
    shape = await asyncio.to_thread(make, outline, flow.steps, unfold=unfold)  # folding would block the event loop
    states = await _step_states(request, flow.id, shape)
    if not shape.fits(states):
        raise WorkflowNotFound(flow.id)  # upkeep is pruning the workflow
    _keep(shapes, (flow.id, unfold), shape)
    return shape, states


async def _step_states(request: PageRequest, flow: int, shape: GraphShape) -> list[StepGroup]:
    if not shape.ids:
        return []
    return await request.run(if_visible(request, request.service.store.workflows.step_states(flow, shape.ids[-1])))


def _keep(shapes: OrderedDict[tuple[int, bool], GraphShape], key: tuple[int, bool], shape: GraphShape) -> None:
    if shape.size >= MIN_CACHED_STEPS:
        shapes[key] = shape
        shapes.move_to_end(key)
        while len(shapes) > MAX_CACHED:
            shapes.popitem(last=False)


def make(outline: WorkflowOutline, size: int, *, unfold: bool = False) -> GraphShape:
    """Fold the steps into a limited number of groups. The finalizer has its own group, after all final groups. A
    finalizer that has run for an earlier end of the workflow is left out."""
    groups = [*_groups(outline, *((MAX_UNFOLDED, MAX_UNFOLDED) if unfold else (MAX_BOXES, MAX_PER_LAYER)))]
    has_children = {each for group in groups for each in group.after}
    ends = [number for number in range(len(groups)) if number not in has_children]
    finalizers = [each for each, kind in zip(outline.ids, outline.kinds, strict=True) if kind == StepKind.FINALIZER]
    if finalizers:
        groups.append(NodeGroup([max(finalizers)], ends, is_finalizer=True))
    group_of = {task_id: number for number, group in enumerate(groups) for task_id in group.ids}
    return GraphShape(size, outline.ids, outline.parents, groups, group_of, outline.whole)


def group_statuses(shape: GraphShape, states: Iterable[StepGroup]) -> list[GroupStatus]:
    """Return the status of each group."""
    counts = [Counter[str]() for _ in shape.groups]
    passed = [0] * len(shape.groups)
    for alike in states:
        shown = shown_state_of(alike.state, alike.on_failure)
        for number, count in Counter(map(shape.group_of.get, alike.ids)).items():
            if number is not None:
                counts[number][shown] += count
                passed[number] += count if alike.passed else 0
    sizes = [len(group.ids) for group in shape.groups]
    return [GroupStatus(found, done == size) for found, done, size in zip(counts, passed, sizes, strict=True)]


def in_state(states: Iterable[StepGroup], state: State) -> set[int]:
    """Return the steps in this state."""
    return {task_id for alike in states if alike.state is state for task_id in alike.ids}


def _groups(outline: WorkflowOutline, max_groups: int, max_per_layer: int) -> Iterable[NodeGroup]:
    others, parents = _others(outline)
    sorts = list(
        map(sort_of, *([column[each] for each in others] for column in (outline.kinds, outline.types, outline.names)))
    )
    folding = folding_within(sorts, parents, max_groups - 1, max_per_layer)
    for places, after in zip(folding.parts, folding.after, strict=True):
        members = [others[place] for place in places]
        yield NodeGroup([outline.ids[each] for each in members], after, _name(outline, members))


def _others(outline: WorkflowOutline) -> tuple[Sequence[int], ParentLists]:
    """Return the indexes of all steps but the finalizer, and their parents by index in this list."""
    if StepKind.FINALIZER not in outline.kinds:
        return range(len(outline.ids)), outline.parents
    others = [place for place, kind in enumerate(outline.kinds) if kind != StepKind.FINALIZER]
    numbers = {place: number for number, place in enumerate(others)}
    return others, [[numbers[each] for each in outline.parents[place]] for place in others]


def _name(outline: WorkflowOutline, places: Sequence[int]) -> str:
    if len(places) == 1:
        return outline.names[places[0]]
    return common_name([outline.names[each] for each in places], (outline.types[each] for each in places))


_SHAPES: WeakKeyDictionary[Service, OrderedDict[tuple[int, bool], GraphShape]] = WeakKeyDictionary()
