"""The layout of a graph: boxes in layers from left to right, few crossings of edges, no overlaps.

The layout is a pure function of the graph: a page that reloads changes only where a step has changed. An edge that
spans several layers gets a bend in each of them, which the layout treats like a thin box.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dibs.workflow.summary import ParentLists, layers_of

LAYER_GAP, MAX_EXTRA_GAP, GAP_PER_HEIGHT = 44.0, 56.0, 0.12
"""The gap between two layers, the maximum extra gap, and the extra gap per height of an edge: steep edges get more."""

BOX_GAP = 14.0
"""The gap between two boxes of a layer."""

EDGE_HEIGHT = 6.0
"""The height that a bend of an edge takes between boxes."""

MAX_BENDS = 1500
"""With more bends than this, edges have no bends: the drawing would be too dense to read anyway."""

ROUNDS = 6

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """The rectangle of a node; x and y are its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Edge:
    """A curve from one node to another, horizontal at each point."""

    start: int
    end: int
    points: tuple[Point, ...]

    @property
    def path(self) -> str:
        """The path in SVG syntax."""
        (x, y), *_ = self.points
        return f"M{x:g} {y:g}" + "".join(_curve(one, other) for one, other in pairwise(self.points))


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole layout: a box for each node, and the edges."""

    width: float
    height: float
    boxes: Sequence[Box]
    edges: Sequence[Edge]


def lay_out(parents: ParentLists, sizes: Sequence[tuple[float, float]]) -> Layout:
    """Lay out an acyclic graph. `sizes`: the width and height of each node."""
    if not parents:
        return Layout(0.0, 0.0, (), ())
    plan = _Plan(direct(parents), [height for _, height in sizes])
    order = _ordered(plan)
    centres = _placed(plan, order)
    return _to_layout(plan, order, centres, sizes)


def direct(parents: ParentLists) -> list[list[int]]:
    """Remove redundant edges: an edge to a node that another parent already depends on."""
    before = [0] * len(parents)  # ancestors of each node, as bit sets
    for node in _in_layers(parents):
        for parent in parents[node]:
            before[node] |= before[parent] | 1 << parent
    return [[each for each in above if not any(before[other] >> each & 1 for other in above)] for above in parents]


def _in_layers(parents: ParentLists) -> list[int]:
    layers = layers_of(parents)
    return sorted(range(len(parents)), key=layers.__getitem__)


class _Plan:
    """The graph with bends of long edges as nodes: every edge leads from a layer to the next."""

    def __init__(self, parents: ParentLists, heights: Sequence[float]) -> None:
        self.edges = [(parent, node) for node, above in enumerate(parents) for parent in sorted(above)]
        self.layers = layers_of(parents)
        self.heights = list(heights)
        self._bends: dict[tuple[int, int], int] = {}
        places = {
            (parent, layer)
            for parent, child in self.edges
            for layer in range(self.layers[parent] + 1, self.layers[child])
        }
        if len(places) <= MAX_BENDS:
            for place in sorted(places):
                self._add(place)
        self.routes = [self._route(parent, child) for parent, child in self.edges]
        self.left, self.right = self._neighbours()

    def _add(self, place: tuple[int, int]) -> None:
        """Add a bend. Edges from the same node share their bends."""
        self._bends[place] = len(self.layers)
        self.layers.append(place[1])
        self.heights.append(EDGE_HEIGHT)

    def _route(self, parent: int, child: int) -> list[int]:
        between = range(self.layers[parent] + 1, self.layers[child])
        return [parent, *(self._bends[parent, layer] for layer in between if (parent, layer) in self._bends), child]

    def _neighbours(self) -> tuple[list[list[int]], list[list[int]]]:
        left: list[list[int]] = [[] for _ in self.layers]
        right: list[list[int]] = [[] for _ in self.layers]
        for one, other in sorted({pair for route in self.routes for pair in pairwise(route)}):
            left[other].append(one)
            right[one].append(other)
        return left, right

    def in_layers(self) -> list[list[int]]:
        """Return the nodes of each layer, in their original order."""
        found: list[list[int]] = [[] for _ in range(max(self.layers) + 1)]
        for node, layer in enumerate(self.layers):
            found[layer].append(node)
        return found


# Order


def _ordered(plan: _Plan) -> list[list[int]]:
    """Order the nodes of each layer by the mean of their neighbours; keep the best of several rounds."""
    order = plan.in_layers()
    best, least = [list(layer) for layer in order], _crossings(plan, order)
    for _ in range(ROUNDS):
        if least == 0:
            break
        _sweep(order, plan.left)
        _sweep(order[::-1], plan.right)
        if (count := _crossings(plan, order)) < least:
            best, least = [list(layer) for layer in order], count
    return best


def _sweep(order: Sequence[list[int]], neighbours: ParentLists) -> None:
    """Sort each layer in place by the mean position of its neighbours in the previous layers."""
    position: dict[int, float] = {}
    for layer in order:
        size = max(1, len(layer) - 1)
        here = {node: place / size for place, node in enumerate(layer)}
        middle = {node: _middle(node, neighbours, position, here) for node in layer}
        layer.sort(key=lambda node: (middle[node], here[node]))
        position |= {node: place / size for place, node in enumerate(layer)}


def _middle(node: int, neighbours: ParentLists, position: dict[int, float], here: dict[int, float]) -> float:
    places = [position[each] for each in neighbours[node] if each in position]
    return sum(places) / len(places) if places else here[node]


def _crossings(plan: _Plan, order: Sequence[Sequence[int]]) -> int:
    place = {node: number for layer in order for number, node in enumerate(layer)}
    return sum(_crossings_after(layer, plan.right, place) for layer in order)


def _crossings_after(layer: Sequence[int], right: ParentLists, place: dict[int, int]) -> int:
    crossings, ends = 0, list[int]()
    for node in layer:
        targets = sorted(place[each] for each in right[node])
        crossings += sum(len(ends) - bisect_right(ends, target) for target in targets)
        for target in targets:
            insort(ends, target)
    return crossings


# Places


def _placed(plan: _Plan, order: Sequence[Sequence[int]]) -> list[float]:
    """Return the y coordinate of each node's centre: near its neighbours, in order, without overlaps."""
    centres = [0.0] * len(plan.layers)
    gaps = [[_distance(plan, one, other) for one, other in pairwise(layer)] for layer in order]
    both = [[*left, *right] for left, right in zip(plan.left, plan.right, strict=True)]
    layers = list(zip(order, gaps, strict=True))
    for layer, apart in layers:
        _place_layer(centres, layer, [0.0] * len(layer), apart)
    for sides, turn in ((plan.left, 1), (plan.right, -1), (plan.left, 1), (plan.right, -1), (both, 1), (both, -1)):
        for layer, apart in layers[::turn]:
            _place_layer(centres, layer, [_wanted_centre(node, sides, centres) for node in layer], apart)
    top = min(centre - height / 2 for centre, height in zip(centres, plan.heights, strict=True))
    return [centre - top for centre in centres]


def _distance(plan: _Plan, one: int, other: int) -> float:
    return (plan.heights[one] + plan.heights[other]) / 2 + BOX_GAP


def _wanted_centre(node: int, sides: ParentLists, centres: Sequence[float]) -> float:
    near = sides[node]
    return sum(centres[each] for each in near) / len(near) if near else centres[node]


def _place_layer(centres: list[float], layer: Sequence[int], wanted: Sequence[float], gaps: Sequence[float]) -> None:
    """Place nodes as near to the wanted centres as order and gaps allow; nodes that would overlap share a mean."""
    offset, offsets = 0.0, [0.0]
    for gap in gaps:
        offset += gap
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []  # (sum of wanted centres, number of nodes)
    for centre, shift in zip(wanted, offsets, strict=True):
        total, count = centre - shift, 1
        while blocks and blocks[-1][0] * count > total * blocks[-1][1]:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    settled = [total / count for total, count in blocks for _ in range(count)]
    for node, base, shift in zip(layer, settled, offsets, strict=True):
        centres[node] = base + shift


# Drawing


def _to_layout(
    plan: _Plan, order: Sequence[Sequence[int]], centres: Sequence[float], sizes: Sequence[tuple[float, float]]
) -> Layout:
    widths = [max((sizes[node][0] for node in layer if node < len(sizes)), default=0.0) for layer in order]
    lefts = [0.0]
    for width, beside in zip(widths, _gaps(plan, order, centres), strict=True):
        lefts.append(lefts[-1] + width + beside)
    boxes = [
        Box(lefts[layer], round(centre - height / 2, 1), widths[layer], height)
        for layer, centre, (_, height) in zip(plan.layers, centres, sizes, strict=False)
    ]
    ends = [(lefts[layer], lefts[layer] + widths[layer]) for layer in plan.layers]
    edges = [Edge(route[0], route[-1], _points(route, ends, centres)) for route in plan.routes]
    lowest = max(centre + height / 2 for centre, height in zip(centres, plan.heights, strict=True))
    return Layout(lefts[-1], round(lowest, 1), boxes, edges)


def _gaps(plan: _Plan, order: Sequence[Sequence[int]], centres: Sequence[float]) -> list[float]:
    """Return the gap between each layer and the next; 0 after the last layer."""
    far = [
        max((abs(centres[one] - centres[other]) for one in layer for other in plan.right[one]), default=0.0)
        for layer in order[:-1]
    ]
    return [*(round(LAYER_GAP + min(MAX_EXTRA_GAP, GAP_PER_HEIGHT * reach)) for reach in far), 0.0]


def _points(route: Sequence[int], ends: Sequence[tuple[float, float]], centres: Sequence[float]) -> tuple[Point, ...]:
    start, *between, end = route
    level = [(x, round(centres[node], 1)) for node in between for x in ends[node]]
    return ((ends[start][1], round(centres[start], 1)), *level, (ends[end][0], round(centres[end], 1)))


def _curve(one: Point, other: Point) -> str:
    (x, y), (to_x, to_y) = one, other
    if y == to_y:
        return f"H{to_x:g}"
    middle = round((x + to_x) / 2, 1)
    return f"C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}"
