"""The faults that the demo injects: it kills a worker or pauses a queue now and then. No task is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dibs.demo.processes import DemoProcesses

if TYPE_CHECKING:
    from dibs.client import Dibs

FIRST_KILL, FIRST_PAUSE = 8.0, 20.0
KILL_EVERY, PAUSE_EVERY = 120.0, 90.0
PAUSED_FOR = 15.0

ReportFault = Callable[[str], None]


class Faults:
    """Kills workers and pauses queues at random intervals. The caller calls `inject_due` often."""

    def __init__(
        self, app: Dibs, processes: DemoProcesses, workers: Sequence[str], queues: Sequence[str], report: ReportFault
    ) -> None:
        self._app, self._processes, self._report = app, processes, report
        self._workers, self._queues = workers, queues
        now = time.monotonic()
        self._kill_at = now + FIRST_KILL
        self._pause_at = now + FIRST_PAUSE
        self._resume_at = 0.0
        self._paused: str | None = None
        self.killed = 0

    def inject_due(self) -> None:
        """Inject the faults that are due."""
        now = time.monotonic()
        if now >= self._kill_at:
            self._kill_at = now + KILL_EVERY * random.uniform(0.8, 1.2)
            self._kill(random.choice(self._workers))
        if self._paused is not None and now >= self._resume_at:
            self.end()
        if now >= self._pause_at:
            self._pause_at = now + PAUSE_EVERY * random.uniform(0.8, 1.2)
            self._pause(random.choice(self._queues))

    def end(self) -> None:
        """Resume the queue that is paused, if any."""
        if self._paused is not None:
            self._app.resume(self._paused)
            self._report(f"Queue {self._paused} is resumed.")
            self._paused = None

    def _kill(self, name: str) -> None:
        if self._processes.is_up(name):
            self._processes.kill(name)
            self.killed += 1
            self._report(f"{name} was killed (kill -9). Its tasks are recovered when their leases expire.")

    def _pause(self, queue: str) -> None:
        self.end()
        self._app.pause(queue)
        self._paused, self._resume_at = queue, time.monotonic() + PAUSED_FOR
        self._report(f"Queue {queue} is paused for {PAUSED_FOR:g} s.")
