"""Where the boxes and lines of a graph stand: layers from left to right, few crossings, nothing over anything else.

A pure function of the graph: the same picture every time, so that a page that asks again changes only where something
happened. A line that leads past layers gets a place of its own in each of them, like a thin box.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dibs.workflow.summary import Parents, layers_of

BESIDE, FURTHER, STEEP = 44.0, 56.0, 0.12
"""Between two layers, for the lines: more of it where they lead far up or down, so that none is too steep to follow."""

BETWEEN = 14.0
"""Between two boxes of a layer."""

THIN = 6.0
"""The height of a line's place between boxes."""

MOST_PLACES = 1500
"""With more places of lines than this, they lead straight to their ends: nobody could follow them anyway."""

ROUNDS = 6

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """Where a node stands, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """From one node to another: level at each point, and smooth between them."""

    start: int
    end: int
    points: tuple[Point, ...]

    @property
    def path(self) -> str:
        """In the words of SVG."""
        (x, y), *_ = self.points
        return f"M{x:g} {y:g}" + "".join(_curve(one, other) for one, other in pairwise(self.points))


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole picture: a box for each node, and the lines between them."""

    width: float
    height: float
    boxes: Sequence[Box]
    lines: Sequence[Line]


def lay_out(parents: Parents, sizes: Sequence[tuple[float, float]]) -> Layout:
    """A place for each node (of this width and height) and each edge of a graph without circles."""
    if not parents:
        return Layout(0.0, 0.0, (), ())
    plan = _Plan(direct(parents), [height for _, height in sizes])
    order = _ordered(plan)
    centres = _placed(plan, order)
    return _drawn(plan, order, centres, sizes)


def direct(parents: Parents) -> list[list[int]]:
    """Without the edges that say nothing new: to what comes before something that is also before it."""
    before = [0] * len(parents)  # sets of nodes as bits
    for node in _in_layers(parents):
        for parent in parents[node]:
            before[node] |= before[parent] | 1 << parent
    return [[each for each in above if not any(before[other] >> each & 1 for other in above)] for above in parents]


def _in_layers(parents: Parents) -> list[int]:
    layers = layers_of(parents)
    return sorted(range(len(parents)), key=layers.__getitem__)


class _Plan:
    """The graph with the places of its long lines as nodes: every edge leads from a layer to the next."""

    def __init__(self, parents: Parents, heights: Sequence[float]) -> None:
        self.edges = [(parent, node) for node, above in enumerate(parents) for parent in sorted(above)]
        self.layers = layers_of(parents)
        self.heights = list(heights)
        self._thin: dict[tuple[int, int], int] = {}
        places = {
            (parent, layer)
            for parent, child in self.edges
            for layer in range(self.layers[parent] + 1, self.layers[child])
        }
        if len(places) <= MOST_PLACES:
            for place in sorted(places):
                self._add(place)
        self.routes = [self._route(parent, child) for parent, child in self.edges]
        self.left, self.right = self._neighbours()

    def _add(self, place: tuple[int, int]) -> None:
        """Lines that come from one node share their place until they part."""
        self._thin[place] = len(self.layers)
        self.layers.append(place[1])
        self.heights.append(THIN)

    def _route(self, parent: int, child: int) -> list[int]:
        between = range(self.layers[parent] + 1, self.layers[child])
        return [parent, *(self._thin[parent, layer] for layer in between if (parent, layer) in self._thin), child]

    def _neighbours(self) -> tuple[list[list[int]], list[list[int]]]:
        left: list[list[int]] = [[] for _ in self.layers]
        right: list[list[int]] = [[] for _ in self.layers]
        for one, other in sorted({pair for route in self.routes for pair in pairwise(route)}):
            left[other].append(one)
            right[one].append(other)
        return left, right

    def in_layers(self) -> list[list[int]]:
        """The nodes of each layer, as they were given."""
        found: list[list[int]] = [[] for _ in range(max(self.layers) + 1)]
        for node, layer in enumerate(self.layers):
            found[layer].append(node)
        return found


# Order


def _ordered(plan: _Plan) -> list[list[int]]:
    """The nodes of each layer from top to bottom, each near the middle of its neighbours: the best of some rounds."""
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


def _sweep(order: Sequence[list[int]], neighbours: Parents) -> None:
    """Sort each layer (in place) by the middle of its neighbours in the layers before."""
    position: dict[int, float] = {}
    for layer in order:
        size = max(1, len(layer) - 1)
        here = {node: place / size for place, node in enumerate(layer)}
        middle = {node: _middle(node, neighbours, position, here) for node in layer}
        layer.sort(key=lambda node: (middle[node], here[node]))
        position |= {node: place / size for place, node in enumerate(layer)}


def _middle(node: int, neighbours: Parents, position: dict[int, float], here: dict[int, float]) -> float:
    places = [position[each] for each in neighbours[node] if each in position]
    return sum(places) / len(places) if places else here[node]


def _crossings(plan: _Plan, order: Sequence[Sequence[int]]) -> int:
    place = {node: number for layer in order for number, node in enumerate(layer)}
    return sum(_crossings_after(layer, plan.right, place) for layer in order)


def _crossings_after(layer: Sequence[int], right: Parents, place: dict[int, int]) -> int:
    crossings, ends = 0, list[int]()
    for node in layer:
        targets = sorted(place[each] for each in right[node])
        crossings += sum(len(ends) - bisect_right(ends, target) for target in targets)
        for target in targets:
            insort(ends, target)
    return crossings


# Places


def _placed(plan: _Plan, order: Sequence[Sequence[int]]) -> list[float]:
    """The height of each node's centre: near its neighbours, in its order, apart from the next."""
    centres = [0.0] * len(plan.layers)
    gaps = [[_apart(plan, one, other) for one, other in pairwise(layer)] for layer in order]
    both = [[*left, *right] for left, right in zip(plan.left, plan.right, strict=True)]
    layers = list(zip(order, gaps, strict=True))
    for layer, apart in layers:
        _settle(centres, layer, [0.0] * len(layer), apart)
    for sides, turn in ((plan.left, 1), (plan.right, -1), (plan.left, 1), (plan.right, -1), (both, 1), (both, -1)):
        for layer, apart in layers[::turn]:
            _settle(centres, layer, [_wish(node, sides, centres) for node in layer], apart)
    top = min(centre - height / 2 for centre, height in zip(centres, plan.heights, strict=True))
    return [centre - top for centre in centres]


def _apart(plan: _Plan, one: int, other: int) -> float:
    return (plan.heights[one] + plan.heights[other]) / 2 + BETWEEN


def _wish(node: int, sides: Parents, centres: Sequence[float]) -> float:
    near = sides[node]
    return sum(centres[each] for each in near) / len(near) if near else centres[node]


def _settle(centres: list[float], layer: Sequence[int], wishes: Sequence[float], gaps: Sequence[float]) -> None:
    """As near to the wishes as order and gaps allow: those that would collide share the middle of what they want."""
    offset, offsets = 0.0, [0.0]
    for gap in gaps:
        offset += gap
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []  # (sum of wishes, how many)
    for wish, shift in zip(wishes, offsets, strict=True):
        total, count = wish - shift, 1
        while blocks and blocks[-1][0] * count > total * blocks[-1][1]:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    settled = [total / count for total, count in blocks for _ in range(count)]
    for node, base, shift in zip(layer, settled, offsets, strict=True):
        centres[node] = base + shift


# Drawing


def _drawn(
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
    lines = [Line(route[0], route[-1], _points(route, ends, centres)) for route in plan.routes]
    lowest = max(centre + height / 2 for centre, height in zip(centres, plan.heights, strict=True))
    return Layout(lefts[-1], round(lowest, 1), boxes, lines)


def _gaps(plan: _Plan, order: Sequence[Sequence[int]], centres: Sequence[float]) -> list[float]:
    """What is between each layer and the next; nothing after the last."""
    far = [
        max((abs(centres[one] - centres[other]) for one in layer for other in plan.right[one]), default=0.0)
        for layer in order[:-1]
    ]
    return [*(round(BESIDE + min(FURTHER, STEEP * reach)) for reach in far), 0.0]


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
