"""Limits and the turns of groups in plain Python, as documented: what two models of a store share.

There are no backlogs: a choice looks at every task that waits, again for each task that it takes. A rate is a bucket
that leaks: each start pours in the time of one start, and a start is allowed if the bucket holds no more than the burst
without that start.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar

SECOND = 1_000_000

LEVELS = {"priority": -1, "priority_lifo": -1, "priority_asc": 1}
"""Orders by priority, within which groups take turns, and whether the highest or the lowest is first."""

CounterName = tuple[str, str | None]
"""A limit, and the group for which it holds."""

Order = Callable[[Any], tuple[int, ...]]


class Waiting(Protocol):
    """A task, as far as a choice looks at it."""

    @property
    def queue(self) -> str:
        """Its queue."""

    @property
    def group(self) -> str | None:
        """Its group."""

    @property
    def priority(self) -> int:
        """Its priority."""

    @property
    def counters(self) -> tuple[CounterName, ...]:
        """What a claim of it counts towards."""


AnyTask = TypeVar("AnyTask", bound=Waiting)


class ModelLimit(NamedTuple):
    """How many claims may be live, and how many may start in a period of so many seconds."""

    max: int | None = None
    starts: int | None = None
    period: int = 1
    burst: int = 1

    @property
    def interval(self) -> int:
        """Microseconds for each start."""
        return 0 if self.starts is None else math.ceil(self.period * SECOND / self.starts)

    @property
    def rate(self) -> str | None:
        """As text."""
        return None if self.starts is None else f"{self.starts}/{PERIODS[self.period]}"


PERIODS = {1: "second", 60: "minute"}


@dataclass
class Use:
    """What limits have left: the live claims, and how full the bucket of each rate was at which time."""

    limits: dict[str, ModelLimit] = field(default_factory=dict)
    live: Counter[CounterName] = field(default_factory=Counter)
    buckets: dict[CounterName, tuple[int, int]] = field(default_factory=dict)
    now: int = 0

    def at(self, now: int, live: Iterable[Waiting]) -> Use:
        """A copy to choose from, at this time, with these claims."""
        counted = Counter(chain.from_iterable(task.counters for task in live))
        return Use(self.limits, counted, dict(self.buckets), now)

    def has_room(self, task: Waiting) -> bool:
        """Whether all limits of the task allow another claim. A limit that was removed allows all."""
        return all(self._allows(name, self.limits[name[0]]) for name in task.counters if name[0] in self.limits)

    def _allows(self, name: CounterName, limit: ModelLimit) -> bool:
        below = limit.max is None or self.live[name] < limit.max
        return below and (limit.starts is None or self._filled(name) <= (limit.burst - 1) * limit.interval)

    def _filled(self, name: CounterName) -> int:
        filled, when = self.buckets.get(name, (0, self.now))
        return max(filled - (self.now - when), 0)

    def take(self, task: Waiting) -> None:
        """A claim of the task begins."""
        self.live.update(task.counters)
        for name in task.counters:
            if name[0] in self.limits and self.limits[name[0]].starts is not None:
                self.buckets[name] = self._filled(name) + self.limits[name[0]].interval, self.now


@dataclass
class Turns:
    """Whose turn it is in the fair queues: the group with the lowest number."""

    of_group: dict[tuple[str, str], float] = field(default_factory=dict)
    reached: dict[str, float] = field(default_factory=dict)
    """Of each fair queue the turn that was served last."""
    weights: dict[tuple[str, str], float] = field(default_factory=dict)

    def turn(self, queue: str, group: str | None) -> float:
        """The turn of a group. Tasks without a group are one group."""
        return self.of_group.get((queue, group or ""), 0.0)

    def serve(self, task: Waiting) -> None:
        """The group of the task has had its turn. A group of weight 2 has its next one half as late."""
        if task.queue in self.reached:
            turn, name = self.turn(task.queue, task.group), (task.queue, task.group or "")
            self.of_group[name] = turn + 1 / self.weights.get(name, 1)
            self.reached[task.queue] = max(self.reached[task.queue], turn)

    def begin(self, queue: str, group: str) -> None:
        """Tasks of the group begin to wait: it has saved nothing up."""
        self.of_group[queue, group] = max(self.turn(queue, group), self.reached[queue])


def choose(tasks: Iterable[AnyTask], count: int, order: str, key: Order, use: Use, turns: Turns) -> list[AnyTask]:
    """The tasks that a claim takes, in that order: again and again the first one that has room. In a fair queue that is
    the first one of the group that has its turn."""
    plain: deque[AnyTask] = deque()
    fair: dict[str, list[AnyTask]] = {queue: [] for queue in turns.reached}
    for task in sorted(tasks, key=key):
        fair.get(task.queue, plain).append(task)
    chosen: list[AnyTask] = []
    while len(chosen) < count and (firsts := list(_firsts(plain, fair, order, use, turns))):
        first = min(firsts, key=key)
        fair.get(first.queue, plain).remove(first)
        use.take(first)
        turns.serve(first)
        chosen.append(first)
    return chosen


def _firsts(
    plain: deque[AnyTask], fair: dict[str, list[AnyTask]], order: str, use: Use, turns: Turns
) -> Iterable[AnyTask]:
    while plain and not use.has_room(plain[0]):  # nor will it have room later in the claim
        plain.popleft()
    if plain:
        yield plain[0]
    for some in fair.values():
        startable = [task for task in some if use.has_room(task)]
        if startable:  # `min` keeps the order of equal ones
            level = LEVELS.get(order, 0)
            yield min(startable, key=lambda task: (level * task.priority, turns.turn(task.queue, task.group)))


Kind = tuple[str, str, str, tuple[CounterName, ...]]
"""Queue, type, group and limits: tasks that wait together."""


class FairQueues:
    """The turns in fair queues, as far as they are known.

    A group of which no task waits begins with the present turn when others come. A claim that takes the last task need
    not notice that no other is left; the next claim that looks for the group's tasks does. If others have come before,
    there are two possible turns: those with which the store's choices do not agree are dropped.
    """

    def __init__(self) -> None:
        self.worlds = [Turns()]
        self._known: set[Kind] = set()
        self._unsure: set[Kind] = set()
        self._doubtful: set[Kind] = set()

    def add(self, queue: str) -> None:
        """The queue is fair from now on; no task waits in it."""
        for turns in self.worlds:
            turns.reached[queue] = 0.0

    def weigh(self, queue: str, group: str, weight: float) -> None:
        """Set the weight of a group."""
        for turns in self.worlds:
            turns.weights[queue, group] = weight

    def begin(self, waiting: set[Kind], expired: Iterable[Kind] = ()) -> list[Turns]:
        """The possible turns at the beginning of a claim, while tasks of these kinds wait. Of some kinds a task has
        expired: whether tasks of the kind waited all the time is in doubt from now on."""
        self._unsure.update(expired)
        sure = {(kind[0], kind[2]) for kind in waiting - self._known - self._doubtful - self._unsure}
        perhaps = {(kind[0], kind[2]) for kind in (waiting & self._doubtful) | self._unsure} - sure
        worlds = copy.deepcopy(self.worlds)
        for turns in worlds:
            for group in sure:
                turns.begin(*group)
        for group in sorted(perhaps):
            others = [copy.deepcopy(turns) for turns in worlds if turns.turn(*group) < turns.reached[group[0]]]
            for turns in others:
                turns.begin(*group)
            worlds += [turns for turns in others if turns not in worlds]
        return worlds

    def end(self, worlds: list[Turns], before: set[Kind], after: set[Kind], seen: Callable[[Kind], bool]) -> None:
        """A claim has left these possible turns. Tasks of the kinds `before` waited when it began, and those of `after`
        wait still. `seen`: whether the claim has looked for tasks of the kind."""
        gone = {kind for kind in self._known | self._doubtful if kind not in before}
        noticed = {kind for kind in gone if seen(kind)}
        self.worlds = worlds
        self._doubtful = (gone | (before - after)) - noticed
        self._known = set(after)
