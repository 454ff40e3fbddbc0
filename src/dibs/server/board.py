"""The board: how many tasks each queue holds in each state, kept up by adding to a count what moved since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from dibs.store.operations.registering import WorkerInfo, WorkerState
from dibs.store.operations.sampling import Move
from dibs.store.operations.tallying import Roll, Tally
from dibs.task import Event, State

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


class Board:
    """The depth of every queue, and when anything last changed in it."""

    def __init__(self) -> None:
        self.depth: dict[Queue, Counter[str]] = {}
        self.changes: Counter[Queue] = Counter()
        self.roll = Roll([], {})
        self.at = 0
        self.counted_at = 0
        self.known = False
        """False before the first count. What it says until then is how it was at `at`."""

        self._oldest: dict[str, float] = {}
        self._filled_at: dict[str, int] = {}
        self._claimed: set[Queue] = set()

    def seed(self, at: int, readings: Mapping[Queue, Reading]) -> None:
        """Begin with how it was at this time, until the first count."""
        self.at = self.counted_at = at
        self.depth = {queue: Counter(dict(zip(STATES, each.depth, strict=True))) for queue, each in readings.items()}
        self._oldest = {queue: each.oldest for queue, each in readings.items() if queue and each.oldest is not None}

    def count(self, tally: Tally) -> None:
        """Begin anew, from a count."""
        depth: dict[Queue, Counter[str]] = {}
        self._oldest, self._filled_at, self._claimed = {}, {}, set()
        for each in tally.counts:
            depth.setdefault(each.queue, Counter())[each.state] += each.count
            if each.oldest_age is not None:
                self._oldest[each.queue] = max(each.oldest_age, self._oldest.get(each.queue, 0.0))
        if not self.known:
            self.changes[None] += 1
        self.known, self.counted_at = True, tally.at
        self.at = max(self.at, tally.at)
        self._replace(depth)

    def move(self, moves: Sequence[Move], at: int) -> None:
        """Add what happened since, up to this time."""
        self.at = at
        for move in moves:
            depth = self.depth.setdefault(move.queue, Counter())
            if move.from_state is not None:
                depth[move.from_state] -= move.count
            if move.event != Event.PRUNED:
                depth[move.to_state] += move.count
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

    def call(self, roll: Roll) -> None:
        """Who is there now."""
        if _signs(roll) != _signs(self.roll):
            self.changes[None] += 1
        self.roll = roll

    def _replace(self, depth: dict[Queue, Counter[str]]) -> None:
        for queue in {*depth, *self.depth}:
            if +depth.get(queue, Counter()) != +self.depth.get(queue, Counter()):
                self.changes[queue] += 1
        self.depth = depth

    # Looking

    def queues(self) -> list[str]:
        """Every queue that holds a task or is paused, by name."""
        holding = (name for name, depth in self.depth.items() if name is not None and any(depth.values()))
        return sorted({*holding, *self.roll.paused})

    def tells_of(self, queues: Sequence[str] | None = None) -> bool:
        """True if there is something to say, be it how it was when this server began."""
        return self.known or (self.counted_at > 0 and (queues is None or all(name in self.depth for name in queues)))

    def of(self, queues: Sequence[str] | None = None) -> dict[str, int]:
        """The depth by state, of all queues or of these. Never below nothing: what was pruned is subtracted where
        nobody knows of which queue it was."""
        total: Counter[str] = Counter()
        for queue, depth in self.depth.items():
            if queues is None or queue in queues:
                total.update(depth)
        return {state: max(total[state], 0) for state in STATES}

    def oldest(self, queues: Sequence[str] | None = None) -> float | None:
        """Seconds for which the oldest task has been pending: exact as of the last count, and still so if nobody has
        claimed from its queue since; for a queue that was empty then, since it was first seen with a task."""
        ages = [self._age(queue) for queue in self.depth if queue is not None and (queues is None or queue in queues)]
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

    def workers(self, queue: str | None = None) -> list[WorkerInfo]:
        """The workers that can be counted on; those that serve this queue, if one is named."""
        alive = [worker for worker in self.roll.workers if worker.state == WorkerState.ACTIVE]
        return [each for each in alive if queue is None or each.queues is None or queue in each.queues]

    def heartbeat(self) -> datetime | None:
        """The last sign of life of any worker."""
        return max((worker.heartbeat_at for worker in self.roll.workers), default=None)


def flow_of(moves: Iterable[Move]) -> dict[Queue, list[int]]:
    """What happened in each queue, in the order of FLOWS."""
    flows: dict[Queue, list[int]] = {}
    for move in moves:
        flow = flows.setdefault(move.queue, [0] * len(FLOWS))
        if move.event in FLOWS:
            flow[FLOWS.index(move.event)] += move.count
        if move.to_state == State.FAILED and move.from_state != State.FAILED:
            flow[FLOWS.index("dead")] += move.count
    return flows


def _signs(roll: Roll) -> tuple[object, ...]:
    workers = tuple((each.id, each.incarnation, each.state, tuple(each.queues or ())) for each in roll.workers)
    return workers, tuple(sorted(roll.paused))
