"""The claimer: asks the store for tasks whenever a lane has room, and waits well when there are none.

A wake-up makes it look at once; looking by itself, at growing intervals, is the truth, because a hint can be lost.
The store also says when the next task becomes due, so a delayed task is not late by a whole interval.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from dibs.model.claim import MAX_BATCH, Claim, ClaimRequest
from dibs.procedures import claim_now
from dibs.worker.attempt import Attempt, now
from dibs.worker.config import WorkerConfig
from dibs.worker.lanes import Lane
from dibs.worker.service import Part
from dibs.worker.store_access import Contact

FIRST_POLL = 0.25
FULL = 0.25
"""Seconds after which a claimer whose lanes are full looks around anyway."""

TOO_LONG = 2.0
"""Seconds after which a task that was claimed ahead and has not begun is given back, for others to run."""

QUIET = 0.02
"""Seconds for which a lane that found nothing is passed over while another is busy."""

AT_ONCE, A_SECOND = 20, 50
"""Wake-ups that are followed at once, and how many more with every second that passes. A wake-up says that something
changed, not that it was for us: on a busy store an idle worker must not ask after each of them."""

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
        self._looks = Looks()
        self._busy = False
        self._polling = False
        self._wants_room = True
        self._dry: set[Lane] = set()
        """Lanes for all of whose types the last look brought less than they had room for: nothing else is pending."""
        self.dry_since: float | None = None
        """When the last look began that found nothing at all, although nothing was held before it; None if it did."""

    def room(self) -> None:
        """A lane has room again. That is no news while all have more room than there are tasks."""
        if not self._room.is_set():
            self._room.set()
            if self._wants_room:
                self._contact.wake()

    def wake(self) -> None:
        """See Part."""
        self._room.set()
        self._contact.wake()

    def step(self) -> None:
        """Claim for every lane; wait once there is nothing left to claim, or no room for it."""
        self._room.clear()
        self._wants_room = True
        seen = self._contact.wakeups.generation
        idle = self._idle()
        began, self.dry_since = now(), None  # before looking: what is found may have ended before we are back here
        looked, found = self._claim_for_all()
        self._polling = False
        self._wants_room = len(self._dry) < len(self._lanes)
        if found:
            self._poll = FIRST_POLL
            if self._wants_room:
                return
        if looked:
            if idle and not found:
                self.dry_since = began
            self._wait_for_work(seen)
        else:
            self._room.wait(FULL)
            self._relieve()

    def _claim_for_all(self) -> tuple[bool, bool]:
        """Whether any lane had room, and whether anything was found."""
        looked = found = False
        self._dry.clear()
        for lane in self._lanes:
            if lane.quiet_until > now() and self._busy:
                continue  # another lane has so much to do that we come round often
            counts = self._claim_for(lane)
            looked, found = looked or bool(counts), found or any(counts)
            lane.quiet_until = now() + QUIET if counts and not any(counts) else 0.0
        self._busy = found
        return looked, found

    def _claim_for(self, lane: Lane) -> list[int]:
        """How many each request brought. First what can begin now; ahead only if there was enough of that."""
        if lane.flooded:
            return self._claim_from_flood(lane)
        counts = []
        free = lane.free
        if free > 0:
            counts.append(self._claim(lane, lane.types, free, ahead=False))
            if counts[0] < min(free, MAX_BATCH):
                return counts
        short, wanted = lane.wanted_ahead()
        if wanted > 0:
            counts.append(self._claim(lane, short, wanted, ahead=True))
            lane.flooded = counts[-1] == wanted and len(short) == len(lane.types)
        if short and free <= 0 and len(short) < len(lane.types):
            others, places = lane.others_wanted()
            if places > 0 and others:
                counts.append(self._claim(lane, others, places, ahead=True))
        return counts

    def _claim_from_flood(self, lane: Lane) -> list[int]:
        """Everything is very short and there is more of it than we can hold: one request instead of two."""
        short, wanted = lane.wanted_ahead()
        if wanted <= 0 and short:
            return []
        count = self._claim(lane, lane.types, max(wanted, 1), ahead=True)
        lane.flooded = count == wanted and len(short) == len(lane.types)
        return [count]

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
        claims = self._contact.follow(claim_now(self._contact.store, request), idle=self._polling)
        if len(claims) < request.count and types == lane.types:
            self._dry.add(lane)
        if claims:
            lane.submit(self._received(claims, lane, ahead))
        return len(claims)

    def _wait_for_work(self, seen: int) -> None:
        wakeups = self._contact.wakeups
        due = self._contact.run(self._contact.store.upkeep.next_due())
        pause = self._poll * random.uniform(0.9, 1.1)
        if due is not None:
            pause = min(pause, max(due, 0.05))  # overdue: it is for others, or upkeep is about to enqueue it
        began = now()
        wakeups.wait(seen, pause)
        if now() - began < pause * 0.9:
            self._ending.wait(self._looks.rest())
        else:
            self._poll, self._polling = min(self._poll * 2, self._config.poll), True
        self._relieve()

    def _relieve(self) -> None:
        for lane in self._lanes:
            if lane.free < 0 and (stuck := lane.take_back(now() - TOO_LONG)):
                lane.stuck = True
                self._give_back(stuck)


class Looks:
    """How often the claimer may follow a wake-up."""

    def __init__(self) -> None:
        self._left = float(AT_ONCE)
        self._counted_at = now()

    def rest(self) -> float:
        """Seconds to rest before the next look."""
        moment = now()
        self._left = min(AT_ONCE, self._left + (moment - self._counted_at) * A_SECOND) - 1
        self._counted_at = moment
        return max(0.0, -self._left / A_SECOND)
