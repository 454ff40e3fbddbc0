"""Steps that are equal in a picture, folded into one: a fan-out of a thousand is one node with its counts.

Two steps are equal if they are of one type and stand in equal places: after equal steps and before equal steps. So
parallel chains fold as well, link by link. What is still too much to look at is folded layer by layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dibs.step import Kind, OnFailure, Step
from dibs.task import State

MANY = 6
"""Equal steps are folded from this number on; fewer are easier to read one by one."""

IGNORED = "ignored"
"""The word for a failure that its workflow does not mind."""

_RANK = ("failed", "claimed", "scheduled", "pending", "blocked", "cancelled", IGNORED, "completed")
_NUMBER = re.compile(r"-\d+$")

Parents = Sequence[Sequence[int]]
"""A graph: for each node, by their numbers, those directly before it."""

Parts = Sequence[Sequence[int]]
"""Which steps belong together, by their places in the list of all."""


@dataclass(frozen=True)
class Group:
    """Equal steps, mostly one, and the groups that come directly before it by their number."""

    steps: Sequence[Step]
    after: Sequence[int]

    @property
    def folded(self) -> bool:
        """True where the picture shows it as one for many."""
        return len(self.steps) > 1

    @property
    def name(self) -> str:
        """What to call it: the name that its steps have in common but for their number, else their type."""
        first = self.steps[0]
        if not self.folded:
            return first.name
        common = _family(first.name)
        if all(_family(step.name) == common for step in self.steps):
            return common
        return first.type if all(step.type == first.type for step in self.steps) else "steps"


def fold(steps: Sequence[Step], many: int = MANY) -> list[Group]:
    """The groups of a workflow's steps, each after the groups that it comes after."""
    graph = _Graph(steps)
    return graph.folding(graph.equal(many)).groups(steps)


@dataclass(frozen=True)
class Folding:
    """Which steps go together, by their places in the list of all, and which groups come before each. It stays true,
    whatever becomes of the steps, until one is added."""

    parts: Parts
    after: Parents

    def groups(self, steps: Sequence[Step]) -> list[Group]:
        """The groups as their steps are now."""
        pairs = zip(self.parts, self.after, strict=True)
        return [Group([steps[place] for place in places], after) for places, after in pairs]


def folding_within(steps: Sequence[Step], most: int, tallest: int) -> Folding:
    """The finest folding with at most `most` groups, of which at most `tallest` stand beside each other in a layer.

    Every step alone; else equal steps as one; else those of one type in one layer; else whole layers, some of them
    together where there are too many.
    """
    graph = _Graph(steps)
    for parts in graph.foldings(most):
        if len(parts) <= most and graph.height(parts) <= tallest:
            return graph.folding(parts)
    return graph.folding(graph.bands(most))


def fold_within(steps: Sequence[Step], most: int, tallest: int) -> list[Group]:
    """The groups of the finest folding that stays within this."""
    return folding_within(steps, most, tallest).groups(steps)


def word(step: Step) -> str:
    """How a step is shown: its state, unless its failure is ignored."""
    ignored = step.state is State.FAILED and step.on_failure is OnFailure.IGNORE
    return IGNORED if ignored else step.state.value


def worst(steps: Sequence[Step]) -> str:
    """The one state that stands for many: what needs somebody first, what is done last."""
    words = {word(step) for step in steps}
    return next(each for each in _RANK if each in words)


def counted(steps: Sequence[Step], word: Callable[[Step], str]) -> Mapping[str, int]:
    """How many steps there are of each word, in the order of their first."""
    return dict(Counter(map(word, steps)))


def children_of(parents: Parents) -> list[list[int]]:
    """The other direction of the same edges."""
    children: list[list[int]] = [[] for _ in parents]
    for node, above in enumerate(parents):
        for parent in above:
            children[parent].append(node)
    return children


def layers_of(parents: Parents) -> list[int]:
    """For each node how many come before it one after the other, at most."""
    children = children_of(parents)
    waits = [len(above) for above in parents]
    layers = [0] * len(parents)
    order = [node for node, count in enumerate(waits) if count == 0]
    for node in order:  # it grows while it is read
        for child in children[node]:
            layers[child] = max(layers[child], layers[node] + 1)
            waits[child] -= 1
            if waits[child] == 0:
                order.append(child)
    return layers


class _Graph:
    """The steps of a workflow by their places, and the ways to put them together."""

    def __init__(self, steps: Sequence[Step]) -> None:
        places = {step.task_id: place for place, step in enumerate(steps)}
        self._steps = steps
        self._parents = [[places[each] for each in step.after if each in places] for step in steps]
        self._layers = layers_of(self._parents)
        # Layer by layer, and within one in the order in which they were added: equal steps are in one layer, so that
        # a group as a whole comes after the groups that it comes after.
        self._order = sorted(range(len(steps)), key=lambda place: (self._layers[place], place))

    def foldings(self, most: int) -> Iterator[Parts]:
        """From the finest on, without what has too many parts in any case."""
        if len(self._steps) <= most:
            yield [[place] for place in self._order]
        yield self.equal(MANY)
        yield self._together(lambda place: (self._layers[place], _sort(self._steps[place])))

    def bands(self, most: int) -> Parts:
        """Whole layers, and several of them as one where there are more than `most`."""
        deep = max(self._layers, default=0) // most + 1
        return self._together(lambda place: self._layers[place] // deep)

    def equal(self, many: int) -> Parts:
        """Equal steps, where there are many of them."""
        alike = self._alike()
        groups = self._together(lambda place: alike[place])
        return [part for places in groups for part in ([places] if len(places) >= many else [[one] for one in places])]

    def height(self, parts: Parts) -> int:
        """How many of them there are in the largest layer."""
        return max(Counter(self._layers[places[0]] for places in parts).values(), default=0)

    def folding(self, parts: Parts) -> Folding:
        """The parts with what each comes after."""
        group_of = {place: number for number, places in enumerate(parts) for place in places}
        above = [{group_of[each] for place in places for each in self._parents[place]} for places in parts]
        after = [sorted(found - {number}) for number, found in enumerate(above)]
        return Folding(parts, [_direct(after, number) for number in range(len(parts))])

    def _together(self, mark: Callable[[int], Hashable]) -> Parts:
        members: dict[Hashable, list[int]] = {}
        for place in self._order:
            members.setdefault(mark(place), []).append(place)
        return list(members.values())

    def _alike(self) -> list[Hashable]:
        """A mark for each step, the same for equal ones: one look from the beginning down, one from the end up."""
        numbers: dict[Hashable, int] = {}
        sorts = [_sort(step) for step in self._steps]
        down = _marks(self._order, self._parents, sorts, numbers)
        up = _marks(self._order[::-1], children_of(self._parents), sorts, numbers)
        return list(zip(down, up, strict=True))


def _marks(order: Sequence[int], before: Parents, sorts: Sequence[Hashable], numbers: dict[Hashable, int]) -> list[int]:
    """Small numbers stand for whole histories, so that a long chain costs no more than its length."""
    marks = [0] * len(order)
    for place in order:
        mark = (sorts[place], frozenset([marks[each] for each in before[place]]))
        marks[place] = numbers.setdefault(mark, len(numbers))
    return marks


def _sort(step: Step) -> Hashable:
    return (step.kind, _family(step.name)) if step.kind is Kind.WORKFLOW else step.type


def _family(name: str) -> str:
    return _NUMBER.sub("", name)


def _direct(after: Parents, number: int) -> list[int]:
    """Without parents that are already a parent's parent. What waits for a step also waits for the steps that this one
    added: drawn, the line past them would only be in the way."""
    further = {each for parent in after[number] for each in after[parent]}
    return [parent for parent in after[number] if parent not in further]
