"""Draw a directed acyclic graph as text: one node a line, with its edges in lanes from left to right.

An edge leads from a node down to a node that depends on it. Where two edges only cross, the vertical one is drawn
unbroken; where edges have the same target, they are joined.
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
    """The graph needs more parallel lanes than the limit."""


@dataclass(frozen=True)
class GraphLine:
    """One line of the drawing: the lanes from left to right as sets of directions, and the node in lane `place`.

    `beneath`: the lanes that continue below, for text between this line and the next.
    """

    cells: tuple[int, ...]
    node: int | None = None
    place: int = 0
    beneath: tuple[int, ...] = ()


def rows(parents: Sequence[Sequence[int]], max_lanes: int) -> Iterator[GraphLine]:
    """Yield the lines of a graph. Nodes are the indexes of `parents`; each node appears once, after all its parents."""
    return _Lanes(parents, max_lanes).rows()


class _Lanes:
    """The target node of each lane, while the lines are drawn from top to bottom."""

    def __init__(self, parents: Sequence[Sequence[int]], max_lanes: int) -> None:
        self._max_lanes = max_lanes
        self._lanes: list[int | None] = []
        self._ended: int | None = None  # the lane in which the last line ended a branch
        self._open_parents = [len(above) for above in parents]
        self._children = children_of(parents)
        self._roots = [node for node, above in enumerate(parents) if not above][::-1]

    def rows(self) -> Iterator[GraphLine]:
        for _ in self._open_parents:
            node = self._next()
            places = [place for place, target in enumerate(self._lanes) if target == node] or [self._free_lane(0)]
            if len(places) > 1:
                yield self._join_lanes(places)
            elif self._ended == places[0]:
                yield GraphLine(tuple(self._vertical()))  # without an empty line, the two nodes would look connected
            yield self._place_node(node, places[0])
            if branches := self._branch(node, places[0]):
                yield branches
            for child in self._children[node]:
                self._open_parents[child] -= 1

    def _next(self) -> int:
        """Return the next node: leftmost lane first, so that a branch is drawn to its end before the next."""
        for target in self._lanes:
            if target is not None and self._open_parents[target] == 0:
                return target
        return self._roots.pop()

    def _join_lanes(self, places: Sequence[int]) -> GraphLine:
        cells = self._vertical()
        _join(cells, dict.fromkeys(places[1:], UP) | {places[0]: ALONG})
        for place in places[1:]:
            self._lanes[place] = None
        return GraphLine(tuple(cells))

    def _place_node(self, node: int, place: int) -> GraphLine:
        self._lanes[place] = node
        beneath = self._vertical()
        beneath[place] = ALONG if self._children[node] else 0
        return GraphLine(tuple(self._vertical()), node, place, tuple(beneath))

    def _branch(self, node: int, place: int) -> GraphLine | None:
        """Continue the lane to one child, and branch off a lane for each of the other children."""
        children = self._children[node]
        self._lanes[place] = None
        self._ended = None if children else place
        if not children:
            self._trim()
            return None
        new_children = [child for child in children if child not in self._lanes]
        main_child = new_children[0] if new_children else children[0]
        self._lanes[place] = main_child
        cells = self._vertical()
        touched = {self._lane_to(child, place): child in new_children for child in children if child != main_child}
        cells += [0] * (len(self._lanes) - len(cells))
        _join(cells, {lane: DOWN if new else ALONG for lane, new in touched.items()} | {place: ALONG})
        return GraphLine(tuple(cells)) if touched else None

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
        if len(self._lanes) == self._max_lanes:
            raise TooWide
        self._lanes.append(None)
        return len(self._lanes) - 1

    def _vertical(self) -> list[int]:
        return [0 if target is None else ALONG for target in self._lanes]

    def _trim(self) -> None:
        while self._lanes and self._lanes[-1] is None:
            self._lanes.pop()


def _join(cells: list[int], ends: Mapping[int, int]) -> None:
    """Connect the lanes in `ends` by a horizontal line; lanes that it only crosses stay unchanged."""
    first, last = min(ends), max(ends)
    for place in range(first, last + 1):
        sides = (LEFT if place > first else 0) | (RIGHT if place < last else 0)
        if place in ends:
            cells[place] = ends[place] | sides
        elif not cells[place]:
            cells[place] = sides


def draw_cells(cells: Sequence[int], level: bool, lines: Mapping[int, str]) -> str:
    """Return the lanes as text, two columns each. `level`: draw horizontal lines between the lanes."""
    text = ""
    reach = [place for place, cell in enumerate(cells) if cell & ACROSS] if level else []
    for place, cell in enumerate(cells):
        between = bool(reach) and reach[0] <= place < reach[-1]
        text += lines[cell] + (lines[ACROSS] if between else " ")
    return text
