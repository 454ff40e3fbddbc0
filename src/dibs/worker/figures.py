"""The figures of a worker for people: the outcomes since its start, its lanes, and what waits in the store and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from dibs.errors import DibsError, NotAllowed
from dibs.model.claim import Completed, Failed, Filters, Finished, FinishResult, Order, Outcome
from dibs.model.limit import Limit
from dibs.model.registry import QueueInfo
from dibs.store.operation import Operation
from dibs.worker.attempt import now
from dibs.worker.store_access import StoreAccess

T = TypeVar("T")

REST = 100
"""After a read, the reader rests for this many times its duration: a large store is read rarely."""

SERVED_INTERVAL = 30.0
"""Seconds between two reads over HTTP, which count towards the rate limit of the API key."""

MAX_NAMED_LIMITS = 5


class OutcomeTotals:
    """Counts the outcomes that a worker has stored. `failed`: failed attempts; `retried`: those that another attempt
    follows."""

    __slots__ = ("completed", "failed", "retried")

    def __init__(self, completed: int = 0, failed: int = 0, retried: int = 0) -> None:
        self.completed, self.failed, self.retried = completed, failed, retried

    def count(self, outcomes: Iterable[Outcome], results: Sequence[FinishResult]) -> None:
        """Count a batch of outcomes with the results of the store. An outcome that the store refused does not count."""
        for outcome, result in zip(outcomes, results, strict=True):
            if type(result) is not Finished:
                continue
            if type(outcome) is Completed:
                self.completed += 1
            elif type(outcome) is Failed:
                self.failed += 1
                self.retried += result.will_retry


class WorkerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one worker process, or the sum of several. `free`: places of lanes without a task. `full_queues`:
    queues of which the worker runs as many tasks as their bounds allow."""

    completed: int = 0
    failed: int = 0
    retried: int = 0
    running: int = 0
    free: int = 0
    full_queues: Sequence[str] = ()

    def plus(self, other: WorkerFigures) -> WorkerFigures:
        """The sum of the figures of two processes."""
        return WorkerFigures(
            completed=self.completed + other.completed,
            failed=self.failed + other.failed,
            retried=self.retried + other.retried,
            running=self.running + other.running,
            free=self.free + other.free,
            full_queues=sorted({*self.full_queues, *other.full_queues}),
        )


class WaitingTasks(msgspec.Struct, frozen=True):
    """The pending tasks of the queues that a worker serves. `oldest`: seconds for which the oldest claimable task has
    waited, if there is one. `held_up_by`: what keeps tasks waiting while the worker has free places."""

    count: int
    oldest: float | None = None
    held_up_by: Sequence[str] = ()


class WaitingReader:
    """Reads the tasks that wait for a worker: at most once in `interval` seconds, and less often if that takes long."""

    def __init__(
        self, access: StoreAccess, queues: Sequence[str] | None, types: Sequence[str], interval: float = 0.0
    ) -> None:
        self._access = access
        self._interval = interval
        self._queues = queues
        self._types = list(types)
        self._refused = False
        self._last: WaitingTasks | None = None
        self._next_at = 0.0

    def read(self, figures: WorkerFigures) -> WaitingTasks | None:
        """The waiting tasks as last read. None if they are not known, for example where the API key may not read."""
        began = now()
        if self._refused or began < self._next_at:
            return self._last
        try:
            self._last = self._read(figures)
        except NotAllowed:
            self._last, self._refused = None, True
        except DibsError:  # the store does not answer, or a limit was removed meanwhile
            self._last = None
        served = SERVED_INTERVAL if self._access.store.served else 0.0
        self._next_at = now() + max(served, self._interval * 0.9, REST * (now() - began))
        return self._last

    def _read(self, figures: WorkerFigures) -> WaitingTasks:
        registry = self._access.store.registry
        queues = [queue for queue in self._run(registry.queues()) if self._serves(queue)]
        waiting = sum(_pending(queue) for queue in queues)
        if not waiting:
            return WaitingTasks(0)
        held_up_by = list(self._reasons(queues, figures)) if figures.free else []
        return WaitingTasks(waiting, self._oldest(), held_up_by)

    def _serves(self, queue: QueueInfo) -> bool:
        return self._queues is None or queue.name in self._queues

    def _oldest(self) -> float | None:
        filters = Filters(queues=self._queues, types=self._types, order=Order.FIFO)
        tasks = self._run(self._access.store.queue.peek(filters, 0))
        ages = [(datetime.now(UTC) - max(task.created_at, task.run_at)).total_seconds() for task in tasks]
        return max(0.0, round(ages[0], 1)) if ages else None

    def _reasons(self, queues: Sequence[QueueInfo], figures: WorkerFigures) -> Iterator[str]:
        """What keeps tasks waiting although places are free, in words."""
        for queue in queues:
            if _pending(queue) and queue.paused:
                yield f"queue {queue.name} is paused"
            elif _pending(queue) and queue.name in figures.full_queues:
                yield f"queue {queue.name} runs as many tasks as its bound allows"
        for paused in self._run(self._access.store.registry.paused_types()):
            if paused.name in self._types:
                yield f"type {paused.name} is paused"
        limits = [limit for limit in self._run(self._access.store.limits.list_limits()) if limit.waiting]
        for limit in limits[:MAX_NAMED_LIMITS]:
            yield from self._reasons_limit(limit)

    def _reasons_limit(self, limit: Limit) -> Iterator[str]:
        if limit.per is None and limit.max is not None and limit.used >= limit.max:
            yield f"limit {limit.name} is at its maximum ({limit.used} of {limit.max})"
            return
        groups = [group for group in self._run(self._access.store.limits.limit_groups(limit.name)) if group.waiting]
        full = [group for group in groups if limit.max is not None and group.used >= limit.max]
        if full:
            yield f"limit {limit.name} is at its maximum for {len(full)} of {len(groups)} waiting groups"
        if starts := [group.free_at for group in groups if group.free_at is not None]:
            yield f"limit {limit.name} allows the next start at {min(starts):%H:%M:%S} UTC (rate {limit.rate})"

    def _run(self, operation: Operation[T]) -> T:
        return self._access.run(operation, may_be_refused=True)


def _pending(queue: QueueInfo) -> int:
    return queue.depth.get("pending", 0)
