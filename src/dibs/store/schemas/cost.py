"""An upper bound on the work of validating a value against a JSON Schema, computed before the validation.

The validator is native code that holds the interpreter's lock and cannot be interrupted. Whether a validation may run
in this process must therefore be known before it begins.

The bound is `peak * size`: `size` is the length of the value as JSON, and `peak` is the largest number of keywords that
can be applied to one and the same place of a value. It counts every branch, as if nothing stopped at the first failure
and nothing was remembered. A schema without references has a small peak. A reference that is used twice in one place
doubles the peak, and a recursive schema that does so doubles it with each level of the value: `peak` depends on how
deep the value is nested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any
from urllib.parse import unquote

LEVELS = 64
"""Values are not nested deeper (see json_values.MAX_DEPTH)."""

CEILING = 1e12
"""A peak above this is not computed any further."""

MOST_STEPS = 100_000
"""Steps of the computation itself. A schema that needs more has no bound."""

IN_PLACE = ("not", "if", "then", "else")
IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
TO_EACH = (
    "additionalProperties",
    "additionalItems",
    "contains",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
SIZED = ("properties", "required", "enum", "const", "dependentRequired", "dependencies", "type")
"""Keywords whose cost grows with their length, for every value."""

EXACT_DIVISION = 3000
"""The cost of one division by a fraction (0.1 ms for the largest numbers), in keywords."""

DYNAMIC = ("$dynamicRef", "$recursiveRef")

_BACKTRACKING = re.compile(r"\(\?[=!<>|(]|\\[1-9kKgG]|[+*?}]\+|\(\?P=")
_REPETITION = re.compile(r"\{(\d{0,6}),?(\d{0,6})\}")
_LARGE_CLASS = re.compile(r"\\[pPwWdDsSbB]|\(\?[a-z]*i")


@dataclass(frozen=True)
class Cost:
    """`peaks[n]`: the peak for values that are nested n levels deep; the last one holds for deeper values as well.
    `compiling`: the work of compiling the regular expressions. `branches`: errors are collected from alternatives."""

    peaks: list[float]
    compiling: float
    branches: bool

    def peak(self, depth: int) -> float:
        """The peak for a value of this depth."""
        return self.peaks[min(depth, len(self.peaks) - 1)]


UNBOUNDED = Cost([inf], inf, branches=True)


def cost_of(schema: Any) -> Cost:
    """The cost of a decoded JSON Schema."""
    graph = _Graph(schema)
    order = graph.in_place_order() if graph.bounded else None
    return UNBOUNDED if order is None else Cost(_peaks(graph.nodes, order), graph.compiling, graph.branches)


@dataclass
class _Node:
    """One subschema. `place`: subschemas for the same value. `each`: for each child of the value. `one`: subschemas of
    which at most one is applied to a child."""

    weight: float = 1
    place: list[int] = field(default_factory=list)
    each: list[int] = field(default_factory=list)
    one: list[int] = field(default_factory=list)
    factor: int = 1


class _Graph:
    """The subschemas that are reached from the root, with references resolved. The root is the first."""

    def __init__(self, root: Any) -> None:
        self.nodes: list[_Node] = []
        self.bounded = True
        self.compiling = 0.0
        self.branches = False
        self._root = root
        self._numbers: dict[int, int] = {}  # by identity: the schema was decoded from JSON, so nothing is shared
        self._left: list[Any] = []
        self._number(root)
        while self._left and self.bounded:
            schema = self._left.pop()
            self._read(schema, self.nodes[self._numbers[id(schema)]])

    def _number(self, schema: Any) -> int:
        if (number := self._numbers.get(id(schema))) is None:
            number = self._numbers[id(schema)] = len(self.nodes)
            self.nodes.append(_Node())
            if isinstance(schema, dict):
                self._left.append(schema)
        return number

    def _read(self, schema: dict[str, Any], node: _Node) -> None:
        node.weight = len(schema) + sum(len(schema[key]) for key in SIZED if isinstance(schema.get(key), (dict, list)))
        if isinstance(schema.get("multipleOf"), float):
            node.weight += EXACT_DIVISION
        if any(key in schema for key in DYNAMIC) or self._has_own_base(schema):
            self.bounded = False
            return
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            node.factor = 3  # the subschemas are evaluated again
        self.branches = self.branches or "anyOf" in schema or "oneOf" in schema or "contains" in schema
        self._read_patterns(schema, node)
        node.place += [self._number(each) for each in _in_place(schema)]
        if isinstance(reference := schema.get("$ref"), str):
            node.place += self._target(reference)
        node.each += [self._number(schema[key]) for key in TO_EACH if isinstance(schema.get(key), (dict, bool))]
        node.each += [self._number(each) for each in _map(schema, "patternProperties").values()]
        node.one += [self._number(each) for each in _map(schema, "properties").values()]
        node.one += [self._number(each) for key in ("prefixItems", "items") for each in _list(schema, key)]

    def _read_patterns(self, schema: dict[str, Any], node: _Node) -> None:
        patterns = [each for each in (schema.get("pattern"), *_map(schema, "patternProperties")) if type(each) is str]
        if schema.get("format") == "regex":  # each value is compiled
            self.bounded = False
        for pattern in patterns:
            work = _pattern_cost(pattern)
            self.compiling += work
            node.weight += work / 16  # a step of an automaton is shorter than a keyword
            self.bounded = self.bounded and work != inf

    def _target(self, reference: str) -> list[int]:
        """The subschema that a reference names, if it is a place in this schema."""
        found: Any = self._root
        if reference[:1] != "#" or reference[1:2] not in ("", "/"):
            self.bounded = False
            return []
        for part in unquote(reference[2:]).split("/") if len(reference) > 1 else ():
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found and not self._has_own_base(found):
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:  # the compiler refuses it, or understands it in another way
                self.bounded = False
                return []
        return [self._number(found)]

    def _has_own_base(self, schema: dict[str, Any]) -> bool:
        """True if references in the schema are not relative to the root. In draft 4 the keyword is `id`."""
        return schema is not self._root and any(isinstance(schema.get(key), str) for key in ("$id", "id"))

    def in_place_order(self) -> list[int] | None:
        """The nodes in topological order: each after the nodes in its `place`. None if there is a cycle."""
        order: list[int] = []
        state = [0] * len(self.nodes)  # 1: begun, 2: done
        for start in range(len(self.nodes)):
            stack = [start]
            while stack:
                number = stack[-1]
                if state[number] == 0:
                    state[number] = 1
                    inner = [each for each in self.nodes[number].place if state[each] != 2]
                    if any(state[each] == 1 for each in inner):
                        return None
                    stack += inner
                else:
                    stack.pop()
                    if state[number] == 1:
                        state[number] = 2
                        order.append(number)
        return order


def _peaks(nodes: list[_Node], order: list[int]) -> list[float]:
    """The peak of the root for values of each depth, as far as it changes."""
    here = [0.0] * len(nodes)
    for number in order:
        node = nodes[number]
        here[number] = node.factor * (node.weight + sum(here[each] for each in node.place))
    peaks, now = [here[0]], here
    edges = sum(1 + len(node.place) + len(node.each) + len(node.one) for node in nodes)
    for level in range(1, LEVELS + 1):
        now = _deeper(nodes, order, here, before := now)
        if now == before:
            return peaks
        peaks.append(now[0])
        if now[0] > CEILING or edges * level > MOST_STEPS:
            break
    return [*peaks, inf] if len(peaks) <= LEVELS else peaks


def _deeper(nodes: list[_Node], order: list[int], here: list[float], before: list[float]) -> list[float]:
    """The peaks of all nodes for values that are nested one level deeper than before."""
    below = [0.0] * len(nodes)
    for number in order:
        node = nodes[number]
        of_children = sum(before[each] for each in node.each) + max((before[each] for each in node.one), default=0.0)
        below[number] = node.factor * (of_children + sum(below[each] for each in node.place))
    return [max(pair) for pair in zip(here, below, strict=True)]


def _pattern_cost(pattern: str) -> float:
    """The size of the automaton of a regular expression; inf for one that needs backtracking."""
    if _BACKTRACKING.search(pattern):
        return inf
    size = float(len(pattern)) * (50 if _LARGE_CLASS.search(pattern) or not pattern.isascii() else 1)
    for least, most in _REPETITION.findall(pattern):
        size *= max(1, int(least or 0), int(most or 0))
    return size


def _in_place(schema: dict[str, Any]) -> Iterator[Any]:
    for key in IN_PLACE:
        if isinstance(schema.get(key), (dict, bool)):
            yield schema[key]
    for key in IN_PLACE_LISTS:
        yield from _list(schema, key)
    for key in IN_PLACE_MAPS:
        yield from (each for each in _map(schema, key).values() if isinstance(each, (dict, bool)))


def _map(schema: dict[str, Any], key: str) -> dict[str, Any]:
    found = schema.get(key)
    return found if isinstance(found, dict) else {}


def _list(schema: dict[str, Any], key: str) -> list[Any]:
    found = schema.get(key)
    return found if isinstance(found, list) else []
