"""The depth of each queue by state, kept up to date by adding the transitions since the last count."""

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
"""The counted events. `failed`: attempts. `dead`: tasks that went to the dead letter."""

QueueName = str | None
"""The name of a queue; None for pruned tasks, whose queue is unknown."""

VisibleQueues = tuple[str, ...] | None
"""The queues that a caller may see; None for all."""


class Reading(msgspec.Struct, array_like=True):
    """The numbers of one or more queues: depth by state, number of events, age of the oldest pending task."""

    depth: list[int]
    flow: list[int]
    oldest: float | None = None


class WorkersByQueue:
    """Workers indexed by the queues that they serve."""

    def __init__(self, workers: Sequence[WorkerInfo] = ()) -> None:
        self._workers = workers

    @cached_property
    def heartbeat(self) -> datetime | None:
        """The latest heartbeat of all workers."""
        return _last_heartbeat(self._workers)

    @cached_property
    def _for_all_queues(self) -> list[WorkerInfo]:
        return [worker for worker in self._workers if worker.queues is None]

    @cached_property
    def _by_queue(self) -> dict[str, list[WorkerInfo]]:
        by_queue: dict[str, list[WorkerInfo]] = {}
        for worker in self._workers:
            for queue in set(worker.queues or ()):
                by_queue.setdefault(queue, []).append(worker)
        return by_queue

    def of(self, queues: Sequence[str] | None = None) -> Sequence[WorkerInfo]:
        """Return the workers that serve one of these queues; all workers for None."""
        if queues is None:
            return self._workers
        found = [*self._for_all_queues, *(worker for queue in queues for worker in self._by_queue.get(queue, ()))]
        # Compared by identity: different workers may have the same id and incarnation.
        return list({id(worker): worker for worker in found}.values())

    def serving(self, queue: str) -> int:
        """Return the number of workers that serve the queue."""
        return len(self._for_all_queues) + len(self._by_queue.get(queue, ()))


def _last_heartbeat(workers: Iterable[WorkerInfo]) -> datetime | None:
    return max((worker.heartbeat_at for worker in workers), default=None)


def _active(workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    return [worker for worker in workers if worker.state == WorkerState.ACTIVE]


class QueueDepths:
    """The depth of every queue, and a counter of its changes."""

    def __init__(self) -> None:
        self.depth: dict[QueueName, Counter[str]] = {}
        self.set_aside: Counter[QueueName] = Counter()
        """Failed tasks that are not in the dead letter. Pruned tasks are subtracted with the next count."""

        self.changes: Counter[QueueName] = Counter()
        self.paused: Mapping[str, datetime] = {}
        self.paused_types: Mapping[str, datetime] = {}
        self.resuming: frozenset[str] = frozenset()
        self.workers = WorkersByQueue()
        """All registered workers."""

        self.active_workers = WorkersByQueue()
        """The workers in state active."""

        self.at = 0
        self.counted_at = 0
        self.known = False
        """False before the first count. Until then the numbers come from an older sample, taken at `at`."""

        self._oldest: dict[str, float] = {}
        self._filled_at: dict[str, int] = {}
        self._taken: set[QueueName] = set()
        """The queues of which pending tasks were claimed or changed since the last count."""

        self._worker_keys: set[_WorkerKey] = set()
        self._total: _Total | None = None

    def seed(self, at: int, readings: Mapping[QueueName, Reading]) -> None:
        """Start with the numbers of a sample, until the first count."""
        self.at = self.counted_at = at
        self._total = None
        self.depth = {queue: Counter(dict(zip(STATES, each.depth, strict=True))) for queue, each in readings.items()}
        self._oldest = {queue: each.oldest for queue, each in readings.items() if queue and each.oldest is not None}

    def count(self, counts: TaskCounts) -> None:
        """Replace all numbers by a count."""
        depth: dict[QueueName, Counter[str]] = {}
        self._oldest, self._filled_at, self._taken = {}, {}, set()
        self.set_aside = Counter()
        for each in counts.counts:
            self.set_aside[each.queue] += each.set_aside
            depth.setdefault(each.queue, Counter())[each.state] += each.count
            if each.oldest_age is not None:
                self._oldest[each.queue] = max(each.oldest_age, self._oldest.get(each.queue, 0.0))
        if not self.known:
            self.changes[None] += 1
        self.known, self.counted_at = True, counts.at
        self.at = max(self.at, counts.at)
        self._total = None
        self._replace(depth)

    def move(self, moves: Sequence[TransitionCount], at: int) -> None:
        """Add transitions, up to the time `at`."""
        self.at = at
        self._total = None
        for move in moves:
            left = move.queue if move.from_queue is None else move.from_queue
            if move.from_state is not None:
                self.depth.setdefault(left, Counter())[move.from_state] -= move.count
            if move.event != Event.PRUNED:
                self.depth.setdefault(move.queue, Counter())[move.to_state] += move.count
            self.set_aside[move.queue] += move.count * _SET_ASIDE_CHANGE.get(move.event, 0)
            if move.event in (Event.CLAIMED, Event.CHANGED):
                self._taken.add(left)
            self.changes.update({left, move.queue})
        for queue in {move.queue for move in moves} | {move.from_queue for move in moves}:
            self._update_oldest(queue)

    def _update_oldest(self, queue: QueueName) -> None:
        """Update the age of the oldest pending task: it starts again after the queue was empty."""
        if queue is None:
            return
        if self.depth[queue]["pending"] <= 0:
            self._oldest.pop(queue, None)
            self._filled_at.pop(queue, None)
        elif queue not in self._oldest:
            self._filled_at.setdefault(queue, self.at)

    def update_workers(self, current: WorkersAndPauses) -> None:
        """Update the workers and paused queues. A change counts only for the queues of the worker."""
        worker_keys = {_worker_key(worker) for worker in current.workers}
        for *_, queues in worker_keys ^ self._worker_keys:
            self.changes.update((None,) if queues is None else queues)
        self.changes.update(set(current.paused) ^ set(self.paused))
        self.changes.update(current.resuming ^ self.resuming)
        self._worker_keys, self.paused, self.resuming = worker_keys, current.paused, current.resuming
        if current.paused_types.keys() != self.paused_types.keys():
            self.changes.update((None,))
        self.paused_types = current.paused_types
        self.workers, self.active_workers = WorkersByQueue(current.workers), WorkersByQueue(_active(current.workers))

    def _replace(self, depth: dict[QueueName, Counter[str]]) -> None:
        for queue in {*depth, *self.depth}:
            now, before = depth.get(queue, _NO_TASKS), self.depth.get(queue, _NO_TASKS)
            if not dict.__eq__(now, before) and +now != +before:
                self.changes[queue] += 1
        self.depth = depth

    # Reading

    def queues(self) -> list[str]:
        """Return all queues that have tasks or are paused, by name."""
        holding = (name for name, depth in self.depth.items() if name is not None and any(depth.values()))
        return sorted({*holding, *self.paused})

    def busiest(self, limit: int) -> list[str]:
        """Return the names of the queues with the most tasks."""
        names = self.queues()
        if len(names) <= limit:
            return names
        return sorted(names, key=lambda name: -self.size(name))[:limit]

    def size(self, queue: str) -> int:
        """Return the number of tasks of the queue, in all states."""
        return sum(self.depth[queue].values()) if queue in self.depth else 0

    def pending(self, queue: str) -> bool:
        """Return True if the queue has a pending task."""
        return queue in self.depth and self.depth[queue]["pending"] > 0

    def has_data(self, queues: Sequence[str] | None = None) -> bool:
        """Return True if numbers are known for these queues, possibly from an older sample."""
        return self.known or (self.counted_at > 0 and (queues is None or all(name in self.depth for name in queues)))

    def of(self, queues: Sequence[str] | None = None) -> dict[str, int]:
        """Return the depth by state, of all queues or of these. Never negative: pruned tasks are subtracted from an
        unknown queue."""
        return dict(self._totals.depth) if queues is None else self._sum(self._known(queues))

    def dead(self, queues: Sequence[str] | None = None) -> int:
        """Return the number of tasks in the dead letter, of all queues or of these."""
        names = self.depth if queues is None else self._known(queues)
        return sum(max(self.depth[name]["failed"] - self.set_aside[name], 0) for name in names if name is not None)

    def oldest(self, queues: Sequence[str] | None = None) -> float | None:
        """Return the age of the oldest pending task in seconds.

        The age is exact at the last count, and later unless a task of the queue was claimed or changed since. For a
        queue that was empty at the last count, the age starts when the queue was first seen with a task.
        """
        return self._totals.oldest if queues is None else self._max_age(self._known(queues))

    @property
    def _totals(self) -> _Total:
        """The sums of all queues, cached until the next change."""
        if self._total is None:
            self._total = _Total(self._sum(self.depth), self._max_age(self.depth))
        return self._total

    def _known(self, queues: Iterable[str]) -> list[QueueName]:
        return [queue for queue in set(queues) if queue in self.depth]

    def _sum(self, queues: Iterable[QueueName]) -> dict[str, int]:
        total: Counter[str] = Counter()
        for queue in queues:
            total.update(self.depth[queue])
        return {state: max(total[state], 0) for state in STATES}

    def _max_age(self, queues: Iterable[QueueName]) -> float | None:
        ages = [self._age(queue) for queue in queues if queue is not None]
        return max((age for age in ages if age is not None), default=None)

    def _age(self, queue: str) -> float | None:
        if self.depth[queue]["pending"] <= 0:
            return None
        if queue not in self._oldest:
            return max(self.at - self._filled_at.get(queue, self.at), 0) / 1e6
        passed = max(self.at - self.counted_at, 0) / 1e6
        return self._oldest[queue] + (0.0 if queue in self._taken else passed)

    def version(self, queues: Sequence[str] | None = None) -> int:
        """Return a number that changes whenever a page may look different."""
        if queues is None:
            return self.changes.total()
        return sum(self.changes[queue] for queue in queues) + self.changes[None]

    def heartbeat(self, queues: Sequence[str] | None = None) -> datetime | None:
        """Return the latest heartbeat of all workers, or of the workers that serve one of these queues."""
        return self.workers.heartbeat if queues is None else _last_heartbeat(self.workers.of(queues))


_NO_TASKS: Counter[str] = Counter()
_SET_ASIDE_CHANGE = {Event.IGNORED: 1, Event.DISCARDED: 1, Event.RESTORED: -1}
"""The change of the number of failed tasks outside the dead letter, by event."""


@dataclass(frozen=True, slots=True)
class _Total:
    depth: dict[str, int]
    oldest: float | None


def flow_of(moves: Iterable[TransitionCount]) -> dict[QueueName, list[int]]:
    """Return the number of events of each queue, in the order of FLOWS."""
    flows: dict[QueueName, list[int]] = {}
    for move in moves:
        flow = flows.setdefault(move.queue, [0] * len(FLOWS))
        if move.event in FLOWS:
            flow[FLOWS.index(move.event)] += move.count
        if move.to_state == State.FAILED and move.from_state != State.FAILED:
            flow[FLOWS.index("dead")] += move.count
        if move.event == Event.IGNORED:  # the failure was counted in the same transaction
            flow[FLOWS.index("dead")] -= move.count
    for flow in flows.values():
        flow[-1] = max(flow[-1], 0)
    return flows


_WorkerKey = tuple[str, str, str, tuple[str, ...] | None]
"""The fields of a worker that a page shows, without the heartbeat, which changes all the time. Queues are last."""


def _worker_key(worker: WorkerInfo) -> _WorkerKey:
    return worker.id, worker.incarnation, worker.state, None if worker.queues is None else tuple(worker.queues)
