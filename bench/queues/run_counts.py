"""Counts in shared memory on which every handler counts its runs; reading it does not disturb the workers.

It shows when the last handler has run without polling the database, and it finds tasks that ran twice,
or never, in the same way for every queue.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH = 8
"""Bytes of a moment: nanoseconds since 1970, the clock that all processes of the machine share."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What one process notes in the counts: it asks for its first task, and this task ran."""

    asks: Callable[[], None]
    ran: Callable[[int], None]
    runs: Callable[[int], int]
    """How often a task has run so far, in all processes."""

    def noting(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        """The function with which the process asks for tasks, with a note before it; it may be a coroutine's."""

        def noted(*arguments: Any, **options: Any) -> Any:
            self.asks()
            return fetch(*arguments, **options)

        return noted


def stopped() -> threading.Event:
    """Set when this process gets a signal to end; for queues that leave signals to their caller."""
    event = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: event.set())
    return event


def stopped_in_loop() -> asyncio.Event:
    """The same for an event loop."""
    event = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, event.set)
    return event


class RunCounts:
    """For each process (`seats`) and each task a count of its runs, and the moment at which it last began."""

    def __init__(self, path: Path, tasks: int, seats: int) -> None:
        self.path, self.tasks, self.seats = path, tasks, seats
        self._cells = tasks * seats
        size = self._moments_at + (self._cells + seats) * WIDTH
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, size)
        self._memory = mmap.mmap(file, size)
        os.close(file)

    def seat(self, number: int) -> Seat:
        """The place of a process."""
        first, last = number * self.tasks, (number + 1) * self.tasks
        runs, moments, requested = self._runs[first:last], self._moments[first:last], self._requested
        clock = time.time_ns

        def asks() -> None:
            requested[number] = requested[number] or clock()

        def ran(task: int) -> None:
            moments[task] = clock()
            runs[task] += 1

        def all_runs(task: int) -> int:
            return sum(every[task :: self.tasks])

        every = self._runs
        return Seat(asks, ran, all_runs)

    @property
    def first_request(self) -> int:
        """The moment at which the first process asked for its first task."""
        return min(moment for moment in self._requested if moment)

    @property
    def done(self) -> int:
        """How many tasks ran, wherever."""
        return self._cells - self._memory[: self._cells].count(0)

    def began(self) -> list[int]:
        """The moment at which each task began, 0 if it did not; of a task that ran in several processes the last."""
        moments = self._moments
        return [max(moments[task : self._cells : self.tasks]) for task in range(self.tasks)]

    @property
    def runs(self) -> int:
        """How many runs there were, of all tasks."""
        return sum(self._memory[: self._cells])

    def check(self, expected: Sequence[int] | None = None) -> None:
        """Raise unless every task ran once, or as often as expected."""
        runs = [sum(self._runs[task :: self.tasks]) for task in range(self.tasks)]
        wanted = expected or [1] * self.tasks
        lost = runs.count(0)
        twice = sum(count > most for count, most in zip(runs, wanted, strict=True))
        if lost or twice:
            often = "once" if expected is None else "expected"
            raise RuntimeError(f"Of {self.tasks} tasks {lost} never ran, and {twice} ran more than {often}.")
        if missing := sum(count < least for count, least in zip(runs, wanted, strict=True)):
            raise RuntimeError(f"Of {self.tasks} tasks {missing} were not tried again.")

    @property
    def _runs(self) -> memoryview:
        return memoryview(self._memory)[: self._cells]

    @property
    def _moments(self) -> memoryview:
        return memoryview(self._memory)[self._moments_at :].cast("q")

    @property
    def _requested(self) -> memoryview:
        return self._moments[self._cells :]

    @property
    def _moments_at(self) -> int:
        return -(-self._cells // WIDTH) * WIDTH
