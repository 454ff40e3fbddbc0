"""The board: how many tasks each queue holds in each state, kept up by adding to a count what moved since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import msgspec

from dibs.model.registry import WorkerInfo, WorkerState
from dibs.model.statistics import TaskCounts, TransitionCount, WorkersAndPauses
from dibs.model.task import Event, State

STATES = tuple(State)
FLOWS = ("enqueued", "claimed", "completed", "failed", "dead")
"""What is counted as it happens. `failed`: attempts; `dead`: tasks that went to the dead letter."""

Queue = str | None
"""None for tasks that were pruned since: whose they were, nobody knows any more."""


class Reading(msgspec.Struct, array_like=True):
    """Numbers of one queue, or of several: depth by state, what happened, how long the oldest has been pending."""

    depth: list[int]
    flow: list[int]
    oldest: float | None = None


class Staff:
    """Who serves which queue: found out once, so that the workers are not gone through again for each queue."""

    def __init__(self, workers: Sequence[WorkerInfo] = ()) -> None:
        self._workers = workers

    @cached_property
    def heartbeat(self) -> datetime | None:
        """The last sign of life of any of them."""
        return _last_heard(self._workers)

    @cached_property
    def _everywhere(self) -> list[WorkerInfo]:
        return [worker for worker in self._workers if worker.queues is None]

    @cached_property
    def _at(self) -> dict[str, list[WorkerInfo]]:
        at: dict[str, list[WorkerInfo]] = {}
        for worker in self._workers:
            for queue in set(worker.queues or ()):
                at.setdefault(queue, []).append(worker)
        return at

    def of(self, queues: Sequence[str] | None = None) -> Sequence[WorkerInfo]:
        """Those who serve one of these queues; without any named, all."""
        if queues is None:
            return self._workers
        found = [*self._everywhere, *(worker for queue in queues for worker in self._at.get(queue, ()))]
        return list({id(worker): worker for worker in found}.values())  # two limits may use the same id and incarnation

    def serving(self, queue: str) -> int:
        """How many serve the queue."""
        return len(self._everywhere) + len(self._at.get(queue, ()))


def _last_heard(workers: Iterable[WorkerInfo]) -> datetime | None:
    return max((worker.heartbeat_at for worker in workers), default=None)


def _living(workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    return [worker for worker in workers if worker.state == WorkerState.ACTIVE]


class Board:
    """The depth of every queue, and when anything last changed in it."""

    def __init__(self) -> None:
        self.depth: dict[Queue, Counter[str]] = {}
        self.set_aside: Counter[Queue] = Counter()
        """Failed tasks that are not in the dead letter. What is pruned is subtracted with the next count."""

        self.changes: Counter[Queue] = Counter()
        self.paused: Mapping[str, datetime] = {}
        self.staff = Staff()
        """Everybody who was heard of."""

        self.living = Staff()
        """Those of them who can be counted on."""

        self.at = 0
        self.counted_at = 0
        self.known = False
        """False before the first count. What it says until then is how it was at `at`."""

        self._oldest: dict[str, float] = {}
        self._filled_at: dict[str, int] = {}
        self._claimed: set[Queue] = set()
        self._signs: set[_Sign] = set()
        self._added_up: _Whole | None = None

    def seed(self, at: int, readings: Mapping[Queue, Reading]) -> None:
        """Begin with how it was at this time, until the first count."""
        self.at = self.counted_at = at
        self._added_up = None
        self.depth = {queue: Counter(dict(zip(STATES, each.depth, strict=True))) for queue, each in readings.items()}
        self._oldest = {queue: each.oldest for queue, each in readings.items() if queue and each.oldest is not None}

    def count(self, tally: TaskCounts) -> None:
        """Begin anew, from a count."""
        depth: dict[Queue, Counter[str]] = {}
        self._oldest, self._filled_at, self._claimed = {}, {}, set()
        self.set_aside = Counter()
        for each in tally.counts:
            self.set_aside[each.queue] += each.set_aside
            depth.setdefault(each.queue, Counter())[each.state] += each.count
            if each.oldest_age is not None:
                self._oldest[each.queue] = max(each.oldest_age, self._oldest.get(each.queue, 0.0))
        if not self.known:
            self.changes[None] += 1
        self.known, self.counted_at = True, tally.at
        self.at = max(self.at, tally.at)
        self._added_up = None
        self._replace(depth)

    def move(self, moves: Sequence[TransitionCount], at: int) -> None:
        """Add what happened since, up to this time."""
        self.at = at
        self._added_up = None
        for move in moves:
            depth = self.depth.setdefault(move.queue, Counter())
            if move.from_state is not None:
                depth[move.from_state] -= move.count
            if move.event != Event.PRUNED:
                depth[move.to_state] += move.count
            self.set_aside[move.queue] += move.count * _ASIDE.get(move.event, 0)
            if move.event == Event.CLAIMED:
                self._claimed.add(move.queue)
            self.changes[move.queue] += 1
        for queue in {move.queue for move in moves}:
            self._note_pending(queue)

    def _note_pending(self, queue: Queue) -> None:
        """A queue that was empty in between has no task that waited before that."""
        if queue is None:
            return
        if self.depth[queue]["pending"] <= 0:
            self._oldest.pop(queue, None)
            self._filled_at.pop(queue, None)
        elif queue not in self._oldest:
            self._filled_at.setdefault(queue, self.at)

    def call(self, roll: WorkersAndPauses) -> None:
        """Who is there now. It is news to those alone who may see one of the worker's queues."""
        signs = {_sign(worker) for worker in roll.workers}
        for *_, queues in signs ^ self._signs:
            self.changes.update((None,) if queues is None else queues)
        self.changes.update(set(roll.paused) ^ set(self.paused))
        self._signs, self.paused = signs, roll.paused
        self.staff, self.living = Staff(roll.workers), Staff(_living(roll.workers))

    def _replace(self, depth: dict[Queue, Counter[str]]) -> None:
        for queue in {*depth, *self.depth}:
            now, before = depth.get(queue, _NOTHING), self.depth.get(queue, _NOTHING)
            if not dict.__eq__(now, before) and +now != +before:
                self.changes[queue] += 1
        self.depth = depth

    # Looking

    def queues(self) -> list[str]:
        """Every queue that holds a task or is paused, by name."""
        holding = (name for name, depth in self.depth.items() if name is not None and any(depth.values()))
        return sorted({*holding, *self.paused})

    def busiest(self, most: int) -> list[str]:
        """The names of those queues that hold the most tasks."""
        names = self.queues()
        if len(names) <= most:
            return names
        return sorted(names, key=lambda name: -self.size(name))[:most]

    def size(self, queue: str) -> int:
        """How many tasks the queue holds, in whatever state."""
        return sum(self.depth[queue].values()) if queue in self.depth else 0

    def pending(self, queue: str) -> bool:
        """True if a task waits in the queue that could run."""
        return queue in self.depth and self.depth[queue]["pending"] > 0

    def tells_of(self, queues: Sequence[str] | None = None) -> bool:
        """True if there is something to say, be it how it was when this server began."""
        return self.known or (self.counted_at > 0 and (queues is None or all(name in self.depth for name in queues)))

    def of(self, queues: Sequence[str] | None = None) -> dict[str, int]:
        """The depth by state, of all queues or of these. Never below nothing: what was pruned is subtracted where
        nobody knows of which queue it was."""
        return dict(self._whole.depth) if queues is None else self._sum(self._known(queues))

    def dead(self, queues: Sequence[str] | None = None) -> int:
        """How many tasks are in the dead letter, of all queues or of these."""
        names = self.depth if queues is None else self._known(queues)
        return sum(max(self.depth[name]["failed"] - self.set_aside[name], 0) for name in names if name is not None)

    def oldest(self, queues: Sequence[str] | None = None) -> float | None:
        """Seconds for which the oldest task has been pending: exact as of the last count, and still so if nobody has
        claimed from its queue since; for a queue that was empty then, since it was first seen with a task."""
        return self._whole.oldest if queues is None else self._eldest(self._known(queues))

    @property
    def _whole(self) -> _Whole:
        """All queues together: added up once for all who ask until something moves."""
        if self._added_up is None:
            self._added_up = _Whole(self._sum(self.depth), self._eldest(self.depth))
        return self._added_up

    def _known(self, queues: Iterable[str]) -> list[Queue]:
        return [queue for queue in set(queues) if queue in self.depth]

    def _sum(self, queues: Iterable[Queue]) -> dict[str, int]:
        total: Counter[str] = Counter()
        for queue in queues:
            total.update(self.depth[queue])
        return {state: max(total[state], 0) for state in STATES}

    def _eldest(self, queues: Iterable[Queue]) -> float | None:
        ages = [self._age(queue) for queue in queues if queue is not None]
        return max((age for age in ages if age is not None), default=None)

    def _age(self, queue: str) -> float | None:
        if self.depth[queue]["pending"] <= 0:
            return None
        if queue not in self._oldest:
            return max(self.at - self._filled_at.get(queue, self.at), 0) / 1e6
        passed = max(self.at - self.counted_at, 0) / 1e6
        return self._oldest[queue] + (0.0 if queue in self._claimed else passed)

    def version(self, queues: Sequence[str] | None = None) -> int:
        """Another number whenever something may look different."""
        if queues is None:
            return self.changes.total()
        return sum(self.changes[queue] for queue in queues) + self.changes[None]

    def heartbeat(self, queues: Sequence[str] | None = None) -> datetime | None:
        """The last sign of life of any worker, or of any that serves one of these queues."""
        return self.staff.heartbeat if queues is None else _last_heard(self.staff.of(queues))


_NOTHING: Counter[str] = Counter()
_ASIDE = {Event.IGNORED: 1, Event.DISCARDED: 1, Event.RESTORED: -1}
"""By how much each event changes the number of failed tasks that are not in the dead letter."""


@dataclass(frozen=True, slots=True)
class _Whole:
    depth: dict[str, int]
    oldest: float | None


def flow_of(moves: Iterable[TransitionCount]) -> dict[Queue, list[int]]:
    """What happened in each queue, in the order of FLOWS."""
    flows: dict[Queue, list[int]] = {}
    for move in moves:
        flow = flows.setdefault(move.queue, [0] * len(FLOWS))
        if move.event in FLOWS:
            flow[FLOWS.index(move.event)] += move.count
        if move.to_state == State.FAILED and move.from_state != State.FAILED:
            flow[FLOWS.index("dead")] += move.count
        if move.event == Event.IGNORED:  # it failed in the same transaction
            flow[FLOWS.index("dead")] -= move.count
    for flow in flows.values():
        flow[-1] = max(flow[-1], 0)
    return flows


_Sign = tuple[str, str, str, tuple[str, ...] | None]
"""What a page shows of a worker, but for its last sign of life, which changes all the time; its queues come last."""


def _sign(worker: WorkerInfo) -> _Sign:
    return worker.id, worker.incarnation, worker.state, None if worker.queues is None else tuple(worker.queues)
