"""Steps that are equal in a picture, folded into one: a fan-out of a thousand is one node with its counts.

Two steps are equal if they are of one type and stand in equal places: after equal steps and before equal steps. So
parallel chains fold as well, link by link. What is still too much to look at is folded layer by layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dibs.model.task import State
from dibs.model.workflow import OnFailure, Step, StepKind

MANY = 6
"""Equal steps are folded from this number on; fewer are easier to read one by one."""

IGNORED = "ignored"
"""The word for a failure that its workflow does not mind."""

_RANK = ("failed", "claimed", "scheduled", "pending", "blocked", "cancelled", IGNORED, "completed")
_WORKFLOW = StepKind.WORKFLOW.value
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
        if not self.folded:
            return self.steps[0].name
        return common_name([step.name for step in self.steps], (step.type for step in self.steps))


def fold(steps: Sequence[Step], many: int = MANY) -> list[Group]:
    """The groups of a workflow's steps, each after the groups that it comes after."""
    graph = _Graph(*_read(steps))
    equal = graph.equal(many)
    assert equal is not None
    return graph.folding(equal).groups(steps)


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


def folding_within(sorts: Sequence[Hashable], parents: Parents, most: int, tallest: int) -> Folding:
    """The finest folding of steps of these sorts (see sort_of) with at most `most` groups, of which at most `tallest`
    stand beside each other in a layer.

    Every step alone; else equal steps as one; else those of one sort in one layer; else whole layers, some of them
    together where there are too many.
    """
    graph = _Graph(sorts, parents)
    return graph.folding(graph.finest(most, tallest) or graph.bands(most))


def fold_within(steps: Sequence[Step], most: int, tallest: int) -> list[Group]:
    """The groups of the finest folding that stays within this."""
    return folding_within(*_read(steps), most, tallest).groups(steps)


def sort_of(kind: str, type_name: str, name: str) -> Hashable:
    """What steps that go together have in common: their type; sub-workflows their name but for its number."""
    return (kind, family(name)) if kind == _WORKFLOW else type_name


def common_name(names: Sequence[str], types: Iterable[str]) -> str:
    """What to call many: the name that they have in common but for their number, else their type."""
    common = family(names[0])
    if all(family(name) == common for name in names):
        return common
    of_one_type = set(types)
    return of_one_type.pop() if len(of_one_type) == 1 else "steps"


def family(name: str) -> str:
    """The name without the number at its end."""
    return _NUMBER.sub("", name)


def word(step: Step) -> str:
    """How a step is shown: its state, unless its failure is ignored."""
    return word_for(step.state, step.on_failure)


def word_for(state: State, on_failure: OnFailure) -> str:
    """How a step in this state is shown."""
    return IGNORED if state is State.FAILED and on_failure is OnFailure.IGNORE else state.value


def worst(steps: Sequence[Step]) -> str:
    """The one state that stands for many: what needs somebody first, what is done last."""
    return worst_of({word(step) for step in steps})


def worst_of(words: Container[str]) -> str:
    """The one of these words that stands for all."""
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
    return _layers(parents, children_of(parents))


class _Graph:
    """The steps of a workflow by their places, and the ways to put them together."""

    def __init__(self, sorts: Sequence[Hashable], parents: Parents) -> None:
        self._sorts = sorts
        self._parents = parents
        self._children = children_of(parents)
        self._layers = _layers(parents, self._children)
        # Layer by layer, and within one in the order in which they were added: equal steps are in one layer, so that
        # a group as a whole comes after the groups that it comes after.
        self._order = sorted(range(len(sorts)), key=self._layers.__getitem__)

    def finest(self, most: int, tallest: int) -> Parts | None:
        """The finest parts that are few and low enough; None where all are too many or too high.

        Equal steps are of one sort in one layer. So where those are too many, there is no need to look for equals,
        which takes longest; and the look for them ends when they are too many.
        """
        if len(self._sorts) <= most and self._fit(alone := [[place] for place in self._order], most, tallest):
            return alone
        of_a_sort = self._together(list(zip(self._layers, self._sorts, strict=True)))
        if not self._fit(of_a_sort, most, tallest):
            return None
        equal = self.equal(MANY, most)
        return equal if equal is not None and self._fit(equal, most, tallest) else of_a_sort

    def bands(self, most: int) -> Parts:
        """Whole layers, and several of them as one where there are more than `most`."""
        deep = max(self._layers, default=0) // most + 1
        return self._together([layer // deep for layer in self._layers])

    def equal(self, many: int, most: int | None = None) -> Parts | None:
        """Equal steps, where there are many of them; None where there are more than `most` kinds of steps."""
        alike = self._alike(most)
        if alike is None:
            return None
        groups = self._together(alike)
        return [part for places in groups for part in ([places] if len(places) >= many else [[one] for one in places])]

    def folding(self, parts: Parts) -> Folding:
        """The parts with what each comes after."""
        group_of = [0] * len(self._sorts)
        for number, places in enumerate(parts):
            for place in places:
                group_of[place] = number
        above: list[set[int]] = [set() for _ in parts]
        for place, parents in enumerate(self._parents):
            above[group_of[place]].update(map(group_of.__getitem__, parents))
        after = [sorted(found - {number}) for number, found in enumerate(above)]
        return Folding(parts, [_direct(after, number) for number in range(len(parts))])

    def _fit(self, parts: Parts, most: int, tallest: int) -> bool:
        """True if there are at most `most` of them, and `tallest` in the largest layer."""
        return len(parts) <= most and self._height(parts) <= tallest

    def _height(self, parts: Parts) -> int:
        return max(Counter(self._layers[places[0]] for places in parts).values(), default=0)

    def _together(self, marks: Sequence[Hashable]) -> Parts:
        members: dict[Hashable, list[int]] = {}
        for place in self._order:
            members.setdefault(marks[place], []).append(place)
        return list(members.values())

    def _alike(self, most: int | None) -> list[Hashable] | None:
        """A mark for each step, the same for equal ones: one look from the beginning down, one from the end up."""
        down = _marks(self._order, self._parents, self._sorts, most)
        up = None if down is None else _marks(self._order[::-1], self._children, self._sorts, most)
        return None if down is None or up is None else list(zip(down, up, strict=True))


def _read(steps: Sequence[Step]) -> tuple[list[Hashable], Parents]:
    """The sort of each step, and which come before it."""
    places = {step.task_id: place for place, step in enumerate(steps)}
    parents = [[places[each] for each in step.after if each in places] for step in steps]
    return [sort_of(step.kind, step.type, step.name) for step in steps], parents


def _layers(parents: Parents, children: Parents) -> list[int]:
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


def _marks(
    order: Sequence[int], before: Parents, sorts: Sequence[Hashable], most: int | None = None
) -> list[int] | None:
    """Small numbers stand for whole histories, so that a long chain costs no more than its length. None as soon as
    there are more than `most`."""
    numbers: dict[Hashable, int] = {}
    marks = [0] * len(order)
    for place in order:
        mark = (sorts[place], frozenset(map(marks.__getitem__, before[place])))
        marks[place] = numbers.setdefault(mark, len(numbers))
        if most is not None and len(numbers) > most:
            return None
    return marks


def _direct(after: Parents, number: int) -> list[int]:
    """Without parents that are already a parent's parent. What waits for a step also waits for the steps that this one
    added: drawn, the line past them would only be in the way."""
    further = {each for parent in after[number] for each in after[parent]}
    return [parent for parent in after[number] if parent not in further]
