"""Steps that are equal in a picture, folded into one: a fan-out of a thousand is one line with its counts.

Two steps are equal if they are of one type and stand in equal places: after equal steps and before equal steps. So
parallel chains fold as well, link by link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from dibs.cli.lanes import children_of
from dibs.step import Kind, Step

MANY = 6
"""Equal steps are folded from this number on; fewer are easier to read one by one."""

_NUMBER = re.compile(r"-\d+$")


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
        """What to call it: the name that its steps have in common but for their number."""
        first = self.steps[0]
        common = _family(first.name)
        if not self.folded:
            return first.name
        return common if all(_family(step.name) == common for step in self.steps) else first.type


def fold(steps: Sequence[Step], many: int = MANY) -> list[Group]:
    """The groups of a workflow's steps, each after the groups that it comes after."""
    parents = _parents(steps)
    order = _in_order(parents)
    alike = _alike(steps, parents, order)
    members: dict[Hashable, list[int]] = {}
    for place in order:
        members.setdefault(alike[place], []).append(place)
    groups = [part for places in members.values() for part in _split(places, many)]
    return _connected(steps, parents, groups)


def _parents(steps: Sequence[Step]) -> list[list[int]]:
    places = {step.task_id: place for place, step in enumerate(steps)}
    return [[places[each] for each in step.after if each in places] for step in steps]


def _split(places: list[int], many: int) -> list[list[int]]:
    return [places] if len(places) >= many else [[place] for place in places]


def _alike(steps: Sequence[Step], parents: Sequence[Sequence[int]], order: Sequence[int]) -> list[Hashable]:
    """A mark for each step, the same for equal ones: one look from the beginning down, one from the end up."""
    numbers: dict[Hashable, int] = {}
    down = _marks(order, parents, lambda place: _sort(steps[place]), numbers)
    up = _marks(order[::-1], children_of(parents), lambda place: _sort(steps[place]), numbers)
    return list(zip(down, up, strict=True))


def _marks(
    order: Sequence[int],
    before: Sequence[Sequence[int]],
    sort: Callable[[int], Hashable],
    numbers: dict[Hashable, int],
) -> list[int]:
    """Small numbers stand for whole histories, so that a long chain costs no more than its length."""
    marks = [0] * len(order)
    for place in order:
        mark = (sort(place), frozenset(marks[each] for each in before[place]))
        marks[place] = numbers.setdefault(mark, len(numbers))
    return marks


def _sort(step: Step) -> Hashable:
    return step.kind, _family(step.name) if step.kind is Kind.WORKFLOW else step.type


def _family(name: str) -> str:
    return _NUMBER.sub("", name)


def _in_order(parents: Sequence[Sequence[int]]) -> list[int]:
    """Layer by layer, as many steps from a beginning; within a layer in the order in which they were added.

    Equal steps are in one layer, so that a group as a whole comes after the groups that it comes after.
    """
    children = children_of(parents)
    waits = [len(above) for above in parents]
    layers = [0] * len(parents)
    order = [place for place, count in enumerate(waits) if count == 0]
    for place in order:  # it grows while it is read
        for child in children[place]:
            layers[child] = max(layers[child], layers[place] + 1)
            waits[child] -= 1
            if waits[child] == 0:
                order.append(child)
    return sorted(order, key=lambda place: (layers[place], place))


def _connected(steps: Sequence[Step], parents: Sequence[Sequence[int]], groups: Sequence[list[int]]) -> list[Group]:
    group_of = {place: number for number, places in enumerate(groups) for place in places}
    after = [sorted({group_of[each] for place in places for each in parents[place]}) for places in groups]
    return [Group([steps[place] for place in places], _direct(after, number)) for number, places in enumerate(groups)]


def _direct(after: Sequence[Sequence[int]], number: int) -> list[int]:
    """Without parents that are already a parent's parent. What waits for a step also waits for the steps that this one
    added: drawn, the line past them would only be in the way."""
    further = {each for parent in after[number] for each in after[parent]}
    return [parent for parent in after[number] if parent not in further]


def counted(steps: Sequence[Step], word: Callable[[Step], str]) -> Mapping[str, int]:
    """How many steps there are of each word, in the order of their first."""
    counts: dict[str, int] = {}
    for step in steps:
        counts[word(step)] = counts.get(word(step), 0) + 1
    return counts
