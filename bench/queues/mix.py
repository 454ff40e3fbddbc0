"""A realistic mix of tasks: 50 types in 10 queues, 2 KB of params, some fail once, some are scheduled.

Only the standard library is imported: it also runs where nothing but another queue is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bench.queues.run_counts import Seat

TYPE_COUNT, QUEUE_COUNT = 50, 10
TYPES = [f"type-{n}" for n in range(TYPE_COUNT)]
QUEUES = [f"queue-{n}" for n in range(QUEUE_COUNT)]
TEXT = "0123456789" * 200
DELAY = 1.0
"""Seconds that a scheduled task is scheduled ahead."""

FAILS_ONE_IN, SCHEDULED_ONE_IN = 20, 10


@dataclass(frozen=True, slots=True)
class MixTask:
    """A task of the mix, by its number. A type belongs to one queue."""

    number: int

    @property
    def type(self) -> str:
        """One of 50."""
        return TYPES[self.number % TYPE_COUNT]

    @property
    def queue(self) -> str:
        """One of 10."""
        return QUEUES[self.number % QUEUE_COUNT]

    @property
    def delay(self) -> float:
        """Seconds until it is due: 0 for most."""
        return DELAY if _hash(self.number, 2654435761) % SCHEDULED_ONE_IN == 0 else 0.0

    @property
    def fails(self) -> bool:
        """True if its first attempt fails."""
        return _hash(self.number, 2246822519) % FAILS_ONE_IN == 0

    @property
    def params(self) -> dict[str, Any]:
        """What its handler is given: some 2 KB."""
        return {"number": self.number, "text": TEXT}


def queue_of(type_name: str) -> str:
    """The queue of a type."""
    return QUEUES[TYPES.index(type_name) % QUEUE_COUNT]


def alike(tasks: Sequence[MixTask]) -> list[list[MixTask]]:
    """The tasks by type and delay, for queues that store many tasks in a call only if they are alike."""

    def key(task: MixTask) -> tuple[str, float]:
        return task.type, task.delay

    return [list(group) for _, group in groupby(sorted(tasks, key=key), key=key)]


class FirstAttempt(Exception):
    """The failure of a first attempt."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What the handlers do."""

    seat: Seat

    def run(self, number: int, text: str) -> None:
        """Note the run; fail if it is the first of a task whose first attempt fails."""
        if text != TEXT:
            raise ValueError(f"Task {number} has lost its params.")
        earlier = self.seat.runs(number)
        self.seat.ran(number)
        if not earlier and MixTask(number).fails:
            raise FirstAttempt(f"Task {number} fails once.")

    def fails_now(self, number: int, text: str) -> bool:
        """The same without an exception: True if the attempt failed."""
        try:
            self.run(number, text)
        except FirstAttempt:
            return True
        return False


def expected_runs(tasks: int) -> list[int]:
    """How often each task must run."""
    return [2 if MixTask(number).fails else 1 for number in range(tasks)]


@dataclass(frozen=True, slots=True)
class MixProducer:
    """A way into a queue: what stores one task of the mix, and many in one call. Where that is asynchronous, it is
    awaited."""

    one: Callable[[MixTask], Any]
    many: Callable[[Sequence[MixTask]], Any] | None = None


def _hash(number: int, factor: int) -> int:
    """Evenly distributed, and independent of type and queue."""
    return (number * factor & 0xFFFFFFFF) >> 16
