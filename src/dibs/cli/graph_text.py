"""Draw a directed acyclic graph as text: each node has its own line, and edges run downwards in columns.

An edge leads from a node down to a node that depends on the node. In each line, the edges
in one column lead to the same node. Where two edges cross, the vertical edge is drawn unbroken; edges that lead to the
same node are joined above the node.

The drawing must contain every edge of the graph and no other: tests/cli/test_drawing.py reads the edges back from the
drawings of random graphs. This module knows nodes only as numbers; `workflow_text` adds the text of the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dibs.workflow.summary import children_of

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
VERTICAL, HORIZONTAL = UP | DOWN, LEFT | RIGHT
"""The directions in which lines leave a cell. A cell is a set of directions, as bits."""

LINES = {
    0: " ", VERTICAL: "│", HORIZONTAL: "─",
    VERTICAL | RIGHT: "├", VERTICAL | LEFT: "┤", VERTICAL | HORIZONTAL: "┼",
    DOWN | LEFT: "╮", DOWN | HORIZONTAL: "┬",
    UP | LEFT: "╯", UP | HORIZONTAL: "┴",
    UP | RIGHT: "╰", DOWN | RIGHT: "╭",
}  # fmt: skip
ASCII_LINES = dict.fromkeys(LINES, "+") | {0: " ", VERTICAL: "|", HORIZONTAL: "-"}


class TooWide(Exception):
    """The graph needs more columns than the limit."""


@dataclass(frozen=True)
class GraphLine:
    """One line of the drawing: its cells from left to right, one for each column.

    `node`: the node in this line, which is drawn in column `column`; None for a line that only has edges. `below`: the
    cells for further lines of text between this line and the next one.
    """

    cells: tuple[int, ...]
    node: int | None = None
    column: int = 0
    below: tuple[int, ...] = ()


def graph_lines(parents: Sequence[Sequence[int]], max_columns: int) -> Iterator[GraphLine]:
    """Yield the lines of a graph. Nodes are the indexes of `parents`; each node appears once, after all its parents.

    Raises TooWide, possibly after some lines.
    """
    return _Columns(parents, max_columns).lines()


class _Columns:
    """The state of the drawing between two lines: the node to which the edge in each column leads, or None."""

    def __init__(self, parents: Sequence[Sequence[int]], max_columns: int) -> None:
        self._max_columns = max_columns
        self._targets: list[int | None] = []
        self._childless: int | None = None  # the column of the node drawn last, if this node has no children
        self._parents_left = [len(above) for above in parents]  # of each node, the parents that are not drawn yet
        self._children = children_of(parents)
        self._roots = [node for node, above in enumerate(parents) if not above][::-1]

    def lines(self) -> Iterator[GraphLine]:
        for _ in self._parents_left:
            node = self._next()
            columns = [at for at, target in enumerate(self._targets) if target == node] or [self._free_column(0)]
            if len(columns) > 1:
                yield self._join_edges(columns)
            elif self._childless == columns[0]:
                yield GraphLine(tuple(self._edges()))  # without an empty line, the two nodes would look connected
            yield self._draw_node(node, columns[0])
            if branches := self._branch(node, columns[0]):
                yield branches
            for child in self._children[node]:
                self._parents_left[child] -= 1

    def _next(self) -> int:
        """Return the next node: leftmost column first, so that a branch is drawn to its end before the next branch."""
        for target in self._targets:
            if target is not None and self._parents_left[target] == 0:
                return target
        return self._roots.pop()

    def _join_edges(self, columns: Sequence[int]) -> GraphLine:
        """Join the edges in these columns, which lead to the same node, into the first column."""
        cells = self._edges()
        _connect(cells, dict.fromkeys(columns[1:], UP) | {columns[0]: VERTICAL})
        for column in columns[1:]:
            self._targets[column] = None
        return GraphLine(tuple(cells))

    def _draw_node(self, node: int, column: int) -> GraphLine:
        self._targets[column] = node
        below = self._edges()
        below[column] = VERTICAL if self._children[node] else 0
        return GraphLine(tuple(self._edges()), node, column, tuple(below))

    def _branch(self, node: int, column: int) -> GraphLine | None:
        """Continue the column of the node to one child, and draw a branch to the column of each other child."""
        children = self._children[node]
        self._targets[column] = None
        self._childless = None if children else column
        if not children:
            self._remove_empty_columns()
            return None
        new_children = [child for child in children if child not in self._targets]
        main_child = new_children[0] if new_children else children[0]
        self._targets[column] = main_child
        cells = self._edges()
        others = {self._column_to(child, column): child in new_children for child in children if child != main_child}
        cells += [0] * (len(self._targets) - len(cells))
        _connect(cells, {at: DOWN if is_new else VERTICAL for at, is_new in others.items()} | {column: VERTICAL})
        return GraphLine(tuple(cells)) if others else None

    def _column_to(self, child: int, start: int) -> int:
        """Return the first column with an edge to the child, else a free column from `start` on."""
        if child in self._targets:
            return self._targets.index(child)
        column = self._free_column(start)
        self._targets[column] = child
        return column

    def _free_column(self, start: int) -> int:
        for column in range(start, len(self._targets)):
            if self._targets[column] is None:
                return column
        if len(self._targets) == self._max_columns:
            raise TooWide
        self._targets.append(None)
        return len(self._targets) - 1

    def _edges(self) -> list[int]:
        """Return the cells of a line in which every edge continues downwards."""
        return [0 if target is None else VERTICAL for target in self._targets]

    def _remove_empty_columns(self) -> None:
        """Remove the empty columns at the right end."""
        while self._targets and self._targets[-1] is None:
            self._targets.pop()


def _connect(cells: list[int], ends: Mapping[int, int]) -> None:
    """Connect the columns in `ends` by a horizontal line; an edge that the line only crosses stays unbroken.

    `ends`: the vertical directions of the cell in each connected column.
    """
    first, last = min(ends), max(ends)
    for column in range(first, last + 1):
        sides = (LEFT if column > first else 0) | (RIGHT if column < last else 0)
        if column in ends:
            cells[column] = ends[column] | sides
        elif not cells[column]:
            cells[column] = sides


def draw_cells(cells: Sequence[int], connected: bool, lines: Mapping[int, str]) -> str:
    """Return the cells as text, two characters each. `connected`: draw the horizontal line between its two ends."""
    text = ""
    ends = [column for column, cell in enumerate(cells) if cell & HORIZONTAL] if connected else []
    for column, cell in enumerate(cells):
        between = bool(ends) and ends[0] <= column < ends[-1]
        text += lines[cell] + (lines[HORIZONTAL] if between else " ")
    return text
