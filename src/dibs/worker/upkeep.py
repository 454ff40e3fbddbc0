"""Upkeep, done by every worker and server: ticks, promotions, recoveries, finalizations that nobody saw to, pruning;
and a worker's own sign of life.

Any number of them may do this at once: each statement moves only rows that still are what it expects. A round is
small, and they are spread by chance, so many workers do little more than one.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from dibs import procedures
from dibs.errors import DibsError, NotAllowed, StoreError
from dibs.handlers.handler import Handler
from dibs.model.registry import Heartbeat
from dibs.observe import log
from dibs.worker.attempt import now
from dibs.worker.config import WorkerConfig
from dibs.worker.service import Part
from dibs.worker.store_access import Contact

logger = logging.getLogger("dibs.worker")

BEAT_EVERY = 30.0
PRUNE_EVERY = 60.0
TICK_EVERY = 1.0


class Upkeep(Part):
    """Keeps the house."""

    name = "upkeep"

    def __init__(
        self,
        contact: Contact,
        config: WorkerConfig,
        processor: str,
        handlers: Sequence[Handler[..., Any, Any]] = (),
        beat: Callable[[bool], Heartbeat] | None = None,
    ) -> None:
        super().__init__()
        self._contact = contact
        self._config = config
        self._processor = processor
        self.tending = False
        self.tended_at = 0.0
        """When it last made something claimable, or may have; `tending`: it may be about to."""
        self._undeclared = [schedule for handler in handlers if (schedule := handler.schedule) is not None]
        self._beat = beat
        self._woken = threading.Event()
        self._pruning = procedures.Pruning()
        self._every: dict[Callable[[], None], float] = {} if beat is None else {self._beat_heart: BEAT_EVERY}
        if not contact.store.served:  # a server keeps the house itself, and its keys for workers may not
            self._every |= {self._tick: TICK_EVERY, self._tend: config.upkeep_every, self._clear: PRUNE_EVERY}
        self._next = dict.fromkeys(self._every, 0.0)

    def wake(self) -> None:
        """See Part."""
        self._woken.set()

    def step(self) -> None:
        """Do what is due, and wait for what is next."""
        self._declare_schedules()
        for chore, due in self._next.items():
            if now() >= due:
                chore()
                self._next[chore] = now() + self._every[chore] * random.uniform(0.9, 1.1)
        log.tell()
        self._woken.wait(max(0.0, min(self._next.values()) - now()))

    def leave(self) -> None:
        """Say goodbye."""
        self._beat_heart(leaving=True)

    def _beat_heart(self, leaving: bool = False) -> None:
        if self._beat is not None:  # a server is no worker
            self._contact.run(self._contact.store.registry.heartbeat(self._beat(leaving)))

    def _tend(self) -> None:
        self.tending = True
        try:
            if any(self._contact.follow(procedures.tend(self._contact.store, self._processor))):
                self.tended_at = now()
        finally:
            self.tending = False

    def _tick(self) -> None:
        self._contact.follow(procedures.tick(self._contact.store))

    def _clear(self) -> None:
        self._contact.follow(procedures.clear(self._contact.store, self._pruning))
        self._contact.maintain()

    def _declare_schedules(self) -> None:
        while self._undeclared:
            schedule = self._undeclared[-1]
            try:
                self._contact.run(self._contact.store.schedules.put_schedule(schedule, "code"))
            except DibsError as error:
                if isinstance(error, StoreError) and not isinstance(error, NotAllowed):
                    raise
                about = {"event": "schedule.refused", "schedule": schedule.name}
                logger.error("the schedule of %r is refused: %s", schedule.name, error, extra=about)
            self._undeclared.pop()
