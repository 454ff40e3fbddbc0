"""What goes wrong in the demo, on purpose: a worker is killed, a queue is paused. Nothing is lost by either."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dibs.demo.processes import Crew

if TYPE_CHECKING:
    from dibs.client import Dibs

FIRST_KILL, FIRST_PAUSE = 8.0, 20.0
KILL_EVERY, PAUSE_EVERY = 120.0, 90.0
PAUSED_FOR = 15.0

Tell = Callable[[str], None]


class Mishaps:
    """They happen when `happen` is called, which is to be often."""

    def __init__(self, app: Dibs, crew: Crew, workers: Sequence[str], queues: Sequence[str], tell: Tell) -> None:
        self._app, self._crew, self._tell = app, crew, tell
        self._workers, self._queues = workers, queues
        now = time.monotonic()
        self._kill_at = now + FIRST_KILL
        self._pause_at = now + FIRST_PAUSE
        self._resume_at = 0.0
        self._paused: str | None = None
        self.killed = 0

    def happen(self) -> None:
        """What is due."""
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
        """Leave nothing paused."""
        if self._paused is not None:
            self._app.resume(self._paused)
            self._tell(f"The queue {self._paused} is open again.")
            self._paused = None

    def _kill(self, name: str) -> None:
        if self._crew.is_up(name):
            self._crew.kill(name)
            self.killed += 1
            self._tell(f"{name} was killed (kill -9). What it held comes back when its leases end.")

    def _pause(self, queue: str) -> None:
        self.end()
        self._app.pause(queue)
        self._paused, self._resume_at = queue, time.monotonic() + PAUSED_FOR
        self._tell(f"The queue {queue} is paused for {PAUSED_FOR:g} s.")
