"""A graph as rows of lanes: a node a row, and between them the lines that part and meet.

Every line leads from a node down to one that comes after it, and a row never says more than the graph does: where lines
only cross, the upright one is whole; where they meet, they are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dibs.workflow.summary import children_of

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
ALONG, ACROSS = UP | DOWN, LEFT | RIGHT

LINES = {
    0: " ", ALONG: "│", ACROSS: "─",
    ALONG | RIGHT: "├", ALONG | LEFT: "┤", ALONG | ACROSS: "┼",
    DOWN | LEFT: "╮", DOWN | ACROSS: "┬",
    UP | LEFT: "╯", UP | ACROSS: "┴",
    UP | RIGHT: "╰", DOWN | RIGHT: "╭",
}  # fmt: skip
ASCII_LINES = dict.fromkeys(LINES, "+") | {0: " ", ALONG: "|", ACROSS: "-"}


class TooWide(Exception):
    """More lines at once than anybody could follow."""


@dataclass(frozen=True)
class Row:
    """One row: the lanes from left to right as sets of directions. `node` stands in the lane `place`.

    `beneath`: which lanes go on below, for what is written between this row and the next.
    """

    cells: tuple[int, ...]
    node: int | None = None
    place: int = 0
    beneath: tuple[int, ...] = ()


def rows(parents: Sequence[Sequence[int]], most: int) -> Iterator[Row]:
    """The rows of a graph whose nodes are the numbers of `parents`: each node once, after all its parents."""
    return _Lanes(parents, most).rows()


class _Lanes:
    """What each lane leads to, while the rows are made from top to bottom."""

    def __init__(self, parents: Sequence[Sequence[int]], most: int) -> None:
        self._most = most
        self._lanes: list[int | None] = []
        self._ended: int | None = None  # the lane in which the last row was the end of a branch
        self._waits = [len(above) for above in parents]
        self._children = children_of(parents)
        self._roots = [node for node, above in enumerate(parents) if not above][::-1]

    def rows(self) -> Iterator[Row]:
        for _ in self._waits:
            node = self._next()
            places = [place for place, target in enumerate(self._lanes) if target == node] or [self._free_lane(0)]
            if len(places) > 1:
                yield self._meet(places)
            elif self._ended == places[0]:
                yield Row(tuple(self._upright()))  # one right below the other would look like one after the other
            yield self._stand(node, places[0])
            if parting := self._leave(node, places[0]):
                yield parting
            for child in self._children[node]:
                self._waits[child] -= 1

    def _next(self) -> int:
        """What may come now, leftmost lane first: so a branch is followed to its end before the next one begins."""
        for target in self._lanes:
            if target is not None and self._waits[target] == 0:
                return target
        return self._roots.pop()

    def _meet(self, places: Sequence[int]) -> Row:
        cells = self._upright()
        _join(cells, dict.fromkeys(places[1:], UP) | {places[0]: ALONG})
        for place in places[1:]:
            self._lanes[place] = None
        return Row(tuple(cells))

    def _stand(self, node: int, place: int) -> Row:
        self._lanes[place] = node
        beneath = self._upright()
        beneath[place] = ALONG if self._children[node] else 0
        return Row(tuple(self._upright()), node, place, tuple(beneath))

    def _leave(self, node: int, place: int) -> Row | None:
        """The lane goes on to one of the children, and a line parts for each of the others."""
        children = self._children[node]
        self._lanes[place] = None
        self._ended = None if children else place
        if not children:
            self._trim()
            return None
        fresh = [child for child in children if child not in self._lanes]
        heir = fresh[0] if fresh else children[0]
        self._lanes[place] = heir
        cells = self._upright()
        touched = {self._lane_to(child, place): child in fresh for child in children if child != heir}
        cells += [0] * (len(self._lanes) - len(cells))
        _join(cells, {lane: DOWN if new else ALONG for lane, new in touched.items()} | {place: ALONG})
        return Row(tuple(cells)) if touched else None

    def _lane_to(self, child: int, beyond: int) -> int:
        if child in self._lanes:
            return self._lanes.index(child)
        lane = self._free_lane(beyond)
        self._lanes[lane] = child
        return lane

    def _free_lane(self, beyond: int) -> int:
        for place in range(beyond, len(self._lanes)):
            if self._lanes[place] is None:
                return place
        if len(self._lanes) == self._most:
            raise TooWide
        self._lanes.append(None)
        return len(self._lanes) - 1

    def _upright(self) -> list[int]:
        return [0 if target is None else ALONG for target in self._lanes]

    def _trim(self) -> None:
        while self._lanes and self._lanes[-1] is None:
            self._lanes.pop()


def _join(cells: list[int], ends: Mapping[int, int]) -> None:
    """Connect the lanes in `ends` by a level line; lanes that it only crosses stay as they are."""
    first, last = min(ends), max(ends)
    for place in range(first, last + 1):
        sides = (LEFT if place > first else 0) | (RIGHT if place < last else 0)
        if place in ends:
            cells[place] = ends[place] | sides
        elif not cells[place]:
            cells[place] = sides


def drawn(cells: Sequence[int], level: bool, lines: Mapping[int, str]) -> str:
    """The lanes as text, two columns each. `level`: there may be a line between them from left to right."""
    text = ""
    reach = [place for place, cell in enumerate(cells) if cell & ACROSS] if level else []
    for place, cell in enumerate(cells):
        between = bool(reach) and reach[0] <= place < reach[-1]
        text += lines[cell] + (lines[ACROSS] if between else " ")
    return text
