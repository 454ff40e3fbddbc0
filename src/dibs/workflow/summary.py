"""Summaries of workflow graphs: equal steps are folded into one node, such as a fan-out of a thousand steps.

Two steps are equal if they have the same type, equal parents and equal children. So parallel chains are folded as
well, step by step. A graph that is still too large is folded layer by layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dibs.model.task import State
from dibs.model.workflow import OnFailure, Step, StepKind

FOLD_FROM = 6
"""The number of equal steps from which on they are folded; fewer are easier to read one by one."""

IGNORED = "ignored"
"""The shown state of a failed step whose failure is ignored."""

_RANK = ("failed", "claimed", "scheduled", "pending", "blocked", "cancelled", IGNORED, "completed")
_WORKFLOW = StepKind.WORKFLOW.value
_NUMBER = re.compile(r"-\d+$")

ParentLists = Sequence[Sequence[int]]
"""A graph: for each node the numbers of its parents."""

StepGroups = Sequence[Sequence[int]]
"""Groups of steps, by their positions in the list of all steps."""


@dataclass(frozen=True)
class Group:
    """A node of the summary: one step or several equal ones, and the numbers of its parent groups."""

    steps: Sequence[Step]
    after: Sequence[int]

    @property
    def folded(self) -> bool:
        """True if the group has several steps."""
        return len(self.steps) > 1

    @property
    def name(self) -> str:
        """The name of the group: the common name of its steps without the number, else their type."""
        if not self.folded:
            return self.steps[0].name
        return common_name([step.name for step in self.steps], (step.type for step in self.steps))


def fold(steps: Sequence[Step], many: int = FOLD_FROM) -> list[Group]:
    """Fold equal steps into groups; every group is listed after its parents."""
    graph = _StepGraph(*_graph_of(steps))
    equal_steps = graph.equal_steps(many)
    assert equal_steps is not None
    return graph.folding(equal_steps).groups(steps)


@dataclass(frozen=True)
class Folding:
    """Groups of steps by their positions in the list of all steps, and the parents of each group. The folding stays
    valid until a step is added, whatever the states of the steps."""

    parts: StepGroups
    after: ParentLists

    def groups(self, steps: Sequence[Step]) -> list[Group]:
        """The groups with the given steps."""
        pairs = zip(self.parts, self.after, strict=True)
        return [Group([steps[place] for place in places], after) for places, after in pairs]


def folding_within(sorts: Sequence[Hashable], parents: ParentLists, most: int, tallest: int) -> Folding:
    """The finest folding of steps of these sorts (see sort_of) with at most `most` groups in all and at most `tallest`
    in a layer.

    In this order: every step alone; equal steps as one group; steps of one sort in one layer; whole layers, several of
    them as one group if there are too many.
    """
    graph = _StepGraph(sorts, parents)
    return graph.folding(graph.finest_partition(most, tallest) or graph.layer_bands(most))


def fold_within(steps: Sequence[Step], most: int, tallest: int) -> list[Group]:
    """The groups of the finest folding within these limits."""
    return folding_within(*_graph_of(steps), most, tallest).groups(steps)


def sort_of(kind: str, type_name: str, name: str) -> Hashable:
    """The sort of a step, which groups steps: its type; for sub-workflows the name without its number."""
    return (kind, name_without_number(name)) if kind == _WORKFLOW else type_name


def common_name(names: Sequence[str], types: Iterable[str]) -> str:
    """The common name of several steps without the number, else their type."""
    common = name_without_number(names[0])
    if all(name_without_number(name) == common for name in names):
        return common
    of_one_type = set(types)
    return of_one_type.pop() if len(of_one_type) == 1 else "steps"


def name_without_number(name: str) -> str:
    """The name without the number at its end."""
    return _NUMBER.sub("", name)


def shown_state(step: Step) -> str:
    """The shown state of a step: its state, or "ignored" for an ignored failure."""
    return shown_state_of(step.state, step.on_failure)


def shown_state_of(state: State, on_failure: OnFailure) -> str:
    """The shown state of a step with this state and policy."""
    return IGNORED if state is State.FAILED and on_failure is OnFailure.IGNORE else state.value


def most_urgent(steps: Sequence[Step]) -> str:
    """The shown state of a group: the most urgent of its steps. Failed is the most urgent, completed the least."""
    return most_urgent_of({shown_state(step) for step in steps})


def most_urgent_of(words: Container[str]) -> str:
    """The most urgent of these shown states."""
    return next(each for each in _RANK if each in words)


def count_by(steps: Sequence[Step], key: Callable[[Step], str]) -> Mapping[str, int]:
    """The number of steps for each value of `key`, in the order of first occurrence."""
    return dict(Counter(map(key, steps)))


def children_of(parents: ParentLists) -> list[list[int]]:
    """The children of each node."""
    children: list[list[int]] = [[] for _ in parents]
    for node, above in enumerate(parents):
        for parent in above:
            children[parent].append(node)
    return children


def layers_of(parents: ParentLists) -> list[int]:
    """The layer of each node: the length of the longest path to it."""
    return _layers(parents, children_of(parents))


class _StepGraph:
    """The steps of a workflow by position, and the ways to partition them."""

    def __init__(self, sorts: Sequence[Hashable], parents: ParentLists) -> None:
        self._sorts = sorts
        self._parents = parents
        self._children = children_of(parents)
        self._layers = _layers(parents, self._children)
        # Layer by layer, and within a layer in the order in which they were added. Equal steps are in one layer, so
        # every group is listed after its parents.
        self._order = sorted(range(len(sorts)), key=self._layers.__getitem__)

    def finest_partition(self, most: int, tallest: int) -> StepGroups | None:
        """The finest partition within these limits; None if every partition exceeds them.

        Equal steps are of one sort in one layer. So if the sorts in the layers are too many, the search for equal
        steps, which takes longest, is not needed; and the search ends as soon as it finds too many.
        """
        if len(self._sorts) <= most and self._fits(alone := [[place] for place in self._order], most, tallest):
            return alone
        of_a_sort = self._grouped_by(list(zip(self._layers, self._sorts, strict=True)))
        if not self._fits(of_a_sort, most, tallest):
            return None
        equal_steps = self.equal_steps(FOLD_FROM, most)
        return equal_steps if equal_steps is not None and self._fits(equal_steps, most, tallest) else of_a_sort

    def layer_bands(self, most: int) -> StepGroups:
        """Whole layers; several layers as one group if there are more than `most`."""
        deep = max(self._layers, default=0) // most + 1
        return self._grouped_by([layer // deep for layer in self._layers])

    def equal_steps(self, many: int, most: int | None = None) -> StepGroups | None:
        """Groups of at least `many` equal steps; None if there are more than `most` different steps."""
        alike = self._equality_marks(most)
        if alike is None:
            return None
        groups = self._grouped_by(alike)
        return [part for places in groups for part in ([places] if len(places) >= many else [[one] for one in places])]

    def folding(self, parts: StepGroups) -> Folding:
        """The folding with these groups: adds the parents of each."""
        group_of = [0] * len(self._sorts)
        for number, places in enumerate(parts):
            for place in places:
                group_of[place] = number
        above: list[set[int]] = [set() for _ in parts]
        for place, parents in enumerate(self._parents):
            above[group_of[place]].update(map(group_of.__getitem__, parents))
        after = [sorted(found - {number}) for number, found in enumerate(above)]
        return Folding(parts, [_direct_parents(after, number) for number in range(len(parts))])

    def _fits(self, parts: StepGroups, most: int, tallest: int) -> bool:
        """True if there are at most `most` groups, and at most `tallest` in the largest layer."""
        return len(parts) <= most and self._height(parts) <= tallest

    def _height(self, parts: StepGroups) -> int:
        return max(Counter(self._layers[places[0]] for places in parts).values(), default=0)

    def _grouped_by(self, marks: Sequence[Hashable]) -> StepGroups:
        members: dict[Hashable, list[int]] = {}
        for place in self._order:
            members.setdefault(marks[place], []).append(place)
        return list(members.values())

    def _equality_marks(self, most: int | None) -> list[Hashable] | None:
        """A mark for each step, the same for equal steps: from one pass over ancestors and one pass over
        descendants."""
        down = _canonical_numbers(self._order, self._parents, self._sorts, most)
        up = None if down is None else _canonical_numbers(self._order[::-1], self._children, self._sorts, most)
        return None if down is None or up is None else list(zip(down, up, strict=True))


def _graph_of(steps: Sequence[Step]) -> tuple[list[Hashable], ParentLists]:
    """The sort and the parents of each step."""
    places = {step.task_id: place for place, step in enumerate(steps)}
    parents = [[places[each] for each in step.after if each in places] for step in steps]
    return [sort_of(step.kind, step.type, step.name) for step in steps], parents


def _layers(parents: ParentLists, children: ParentLists) -> list[int]:
    waits = [len(above) for above in parents]
    layers = [0] * len(parents)
    order = [node for node, count in enumerate(waits) if count == 0]
    for node in order:  # it grows while it is read
        below = layers[node] + 1
        for child in children[node]:
            if layers[child] < below:  # noqa: PLR1730 (max takes three times as long)
                layers[child] = below
            waits[child] -= 1
            if waits[child] == 0:
                order.append(child)
    return layers


def _canonical_numbers(
    order: Sequence[int], before: ParentLists, sorts: Sequence[Hashable], most: int | None = None
) -> list[int] | None:
    """Number each step so that steps of the same sort with the same numbers before them have the same number.

    A number replaces a whole history, so a long chain takes linear time. None if there are more than `most` numbers."""
    numbers: dict[Hashable, int] = {}
    marks = [0] * len(order)
    for place in order:
        mark = (sorts[place], frozenset(map(marks.__getitem__, before[place])))
        marks[place] = numbers.setdefault(mark, len(numbers))
        if most is not None and len(numbers) > most:
            return None
    return marks


def _direct_parents(after: ParentLists, number: int) -> list[int]:
    """The parents of a group, except parents that are also a parent's parent.

    A step that waits for another also waits for the steps that the other has added: the edge past them is redundant."""
    further = {each for parent in after[number] for each in after[parent]}
    return [parent for parent in after[number] if parent not in further]
