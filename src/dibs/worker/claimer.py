"""The claimer: asks the store for tasks whenever a lane has room, and waits well when there are none.

A wake-up makes it look at once; looking by itself, at growing intervals, is the truth, because a hint can be lost.
The store also says when the next task becomes due, so a delayed task is not late by a whole interval.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from dibs.claim import MAX_BATCH, Claim, ClaimRequest
from dibs.worker.attempt import Attempt, now
from dibs.worker.config import WorkerConfig
from dibs.worker.contact import Contact
from dibs.worker.lanes import Lane
from dibs.worker.part import Part

FIRST_POLL = 0.25
FULL = 0.25
"""Seconds after which a claimer whose lanes are full looks around anyway."""

TOO_LONG = 2.0
"""Seconds after which a task that was claimed ahead and has not begun is given back, for others to run."""

VAIN, VAINEST = 0.002, 0.05
"""Seconds to rest after a wake-up that brought nothing: doubling, since others are quicker, or it was not for us."""

Received = Callable[[Sequence[Claim], Lane, bool], Sequence[Attempt]]


class Claimer(Part):
    """Fills the lanes."""

    name = "claimer"

    def __init__(
        self,
        contact: Contact,
        config: WorkerConfig,
        identity: tuple[str, str],
        lanes: Sequence[Lane],
        *,
        received: Received,
        give_back: Callable[[Sequence[Attempt]], None],
        idle: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._contact = contact
        self._config = config
        self._worker_id, self._incarnation = identity
        self._lanes = lanes
        self._received = received
        self._give_back = give_back
        self._idle = idle
        self._room = threading.Event()
        self._poll = FIRST_POLL
        self._vain = 0
        self.dry = threading.Event()
        """Set when the last look found nothing at all, although nothing was held before it."""

    def room(self) -> None:
        """A lane has room again."""
        if not self._room.is_set():
            self._room.set()
            self._contact.wake()

    def wake(self) -> None:
        """See Part."""
        self._room.set()
        self._contact.wake()

    def step(self) -> None:
        """Claim for every lane; wait if nothing came of it."""
        self._room.clear()
        seen = self._contact.wakeups.generation
        idle = self._idle()
        looked, found = self._claim_for_all()
        if found:
            self.dry.clear()
            self._poll, self._vain = FIRST_POLL, 0
        elif looked:
            if idle:
                self.dry.set()
            self._wait_for_work(seen)
        else:
            self._room.wait(FULL)
            self._relieve()

    def _claim_for_all(self) -> tuple[bool, bool]:
        asked = [count for lane in self._lanes for count in self._claim_for(lane)]
        return bool(asked), any(asked)

    def _claim_for(self, lane: Lane) -> list[int]:
        """How many each request brought. First what can begin now; ahead only if there was enough of that."""
        counts = []
        free = lane.free
        if free > 0:
            counts.append(self._claim(lane, lane.types, free, ahead=False))
            if counts[0] < min(free, MAX_BATCH):
                return counts
        short, wanted = lane.wanted_ahead()
        if wanted > 0:
            counts.append(self._claim(lane, short, wanted, ahead=True))
        if short and free <= 0 and len(short) < len(lane.types):
            others, places = lane.others_wanted()
            if places > 0 and others:
                counts.append(self._claim(lane, others, places, ahead=True))
        return counts

    def _claim(self, lane: Lane, types: Sequence[str], count: int, *, ahead: bool) -> int:
        request = ClaimRequest(
            worker_id=self._worker_id,
            incarnation=self._incarnation,
            queues=self._config.queues,
            types=types,
            order=self._config.order,
            lease=self._config.lease,
            count=min(count, MAX_BATCH),
            ahead=ahead,
        )
        claims = self._contact.run(self._contact.store.claim(request))
        if claims:
            lane.submit(self._received(claims, lane, ahead))
        return len(claims)

    def _wait_for_work(self, seen: int) -> None:
        wakeups = self._contact.wakeups
        due = self._contact.run(self._contact.store.next_due())
        pause = self._poll * random.uniform(0.9, 1.1)
        if due is not None:
            pause = min(pause, max(due, 0.05))  # overdue: it is for others, or upkeep is about to enqueue it
        began = now()
        wakeups.wait(seen, pause)
        if now() - began < pause * 0.9:
            self._rest_from_vain_wakeups()
        else:
            self._poll, self._vain = min(self._poll * 2, self._config.poll), 0
        self._relieve()

    def _rest_from_vain_wakeups(self) -> None:
        """The first wake-up after a success is followed at once, those that keep bringing nothing ever more slowly."""
        if self._vain:
            self._ending.wait(min(VAIN * 2.0 ** min(self._vain - 1, 10), VAINEST))
        self._vain += 1

    def _relieve(self) -> None:
        for lane in self._lanes:
            if lane.free < 0 and (stuck := lane.take_back(now() - TOO_LONG)):
                lane.stuck = True
                self._give_back(stuck)
