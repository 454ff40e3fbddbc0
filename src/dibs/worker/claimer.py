"""The claimer: claims tasks whenever a lane has room, and waits for new tasks when there are none.

A wake-up makes the claimer poll at once. Because a wake-up can be lost, the claimer also polls by itself, at growing
intervals. The store returns when the next task becomes due, so a delayed task does not wait for a whole interval.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from dibs.model.claim import MAX_BATCH, Claim, ClaimRequest
from dibs.procedures import claim_now
from dibs.worker.attempt import Attempt, now
from dibs.worker.config import WorkerConfig
from dibs.worker.lanes import LaneRunner
from dibs.worker.service import ServiceThread
from dibs.worker.store_access import StoreAccess

FIRST_POLL = 0.25
"""Seconds until the first poll after a claim that found nothing; each further interval is twice as long."""

FULL_WAIT = 0.25
"""Seconds after which a claimer whose lanes are full checks for tasks claimed ahead that wait too long."""

AHEAD_TIMEOUT = 2.0
"""Seconds after which a task that was claimed ahead and has not started is released, so that another worker can run
it."""

EMPTY_LANE_PAUSE = 0.02
"""Seconds for which a lane whose claim found nothing is skipped while another lane is busy."""

WAKEUP_BURST, WAKEUPS_PER_SECOND = 20, 50
"""A token bucket: the number of wake-ups after which the claimer polls at once, and how many the bucket regains each
second. A wake-up does not name the changed queue, so on a busy store an idle worker must not poll after each one."""

OnClaimed = Callable[[Sequence[Claim], LaneRunner, bool], Sequence[Attempt]]


class Claimer(ServiceThread):
    """The service thread that claims tasks for all lanes."""

    name = "claimer"

    def __init__(
        self,
        access: StoreAccess,
        config: WorkerConfig,
        identity: tuple[str, str],
        lanes: Sequence[LaneRunner],
        *,
        on_claimed: OnClaimed,
        release: Callable[[Sequence[Attempt]], None],
        idle: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._access = access
        self._config = config
        self._worker_id, self._incarnation = identity
        self._lanes = lanes
        self._on_claimed = on_claimed
        self._release = release
        self._idle = idle
        self._room = threading.Event()
        self._poll = FIRST_POLL
        self._wakeup_limiter = WakeupLimiter()
        self._busy = False
        self._polling = False
        self._wants_room = True
        self._dry: set[LaneRunner] = set()
        """Lanes whose last claim for all their types returned fewer tasks than they had room for: nothing more is
        pending."""
        self.dry_since: float | None = None
        """The start of the last round of claims that found nothing while the worker held nothing; None after any other
        round."""

    def room(self) -> None:
        """Report that a lane has room again. The claimer is not woken while all lanes have more room than pending
        tasks."""
        if not self._room.is_set():
            self._room.set()
            if self._wants_room:
                self._access.wake()

    def wake(self) -> None:
        """See ServiceThread."""
        self._room.set()
        self._access.wake()

    def step(self) -> None:
        """Claim for every lane; then wait if nothing is left to claim, or if no lane has room."""
        self._room.clear()
        self._wants_room = True
        seen = self._access.wakeups.generation
        idle = self._idle()
        began, self.dry_since = now(), None  # before the claims: a claimed task may end before this function returns
        claimed, found = self._claim_for_all()
        self._polling = False
        self._wants_room = len(self._dry) < len(self._lanes)
        if found:
            self._poll = FIRST_POLL
            if self._wants_room:
                return
        if claimed:
            if idle and not found:
                self.dry_since = began
            self._wait_for_work(seen)
        else:
            self._room.wait(FULL_WAIT)
            self._release_waiting()

    def _claim_for_all(self) -> tuple[bool, bool]:
        """Claim for all lanes. Returns whether any lane had room, and whether any task was found."""
        claimed = found = False
        self._dry.clear()
        for lane in self._lanes:
            if lane.quiet_until > now() and self._busy:
                continue  # another lane is busy, so the next round follows soon
            counts = self._claim_for(lane)
            claimed, found = claimed or bool(counts), found or any(counts)
            lane.quiet_until = now() + EMPTY_LANE_PAUSE if counts and not any(counts) else 0.0
        self._busy = found
        return claimed, found

    def _claim_for(self, lane: LaneRunner) -> list[int]:
        """Claim for one lane and return the number of tasks of each claim.

        The first claim fills the free places. Tasks are claimed ahead only if the first claim was filled."""
        if lane.flooded:
            return self._claim_short_tasks(lane)
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
            others, places = lane.long_types_wanted()
            if places > 0 and others:
                counts.append(self._claim(lane, others, places, ahead=True))
        return counts

    def _claim_short_tasks(self, lane: LaneRunner) -> list[int]:
        """Claim where all types are short and more tasks are pending than the lane may hold: one claim instead of
        two."""
        short, wanted = lane.wanted_ahead()
        if wanted <= 0 and short:
            return []
        count = self._claim(lane, lane.types, max(wanted, 1), ahead=True)
        lane.flooded = count == wanted and len(short) == len(lane.types)
        return [count]

    def _claim(self, lane: LaneRunner, types: Sequence[str], count: int, *, ahead: bool) -> int:
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
        claims = self._access.follow(claim_now(self._access.store, request), idle=self._polling)
        if len(claims) < request.count and types == lane.types:
            self._dry.add(lane)
        if claims:
            lane.submit(self._on_claimed(claims, lane, ahead))
        return len(claims)

    def _wait_for_work(self, seen: int) -> None:
        wakeups = self._access.wakeups
        due = self._access.run(self._access.store.upkeep.next_due())
        pause = self._poll * random.uniform(0.9, 1.1)
        if due is not None:
            pause = min(
                pause, max(due, 0.05)
            )  # overdue: the task is not for this worker, or upkeep is about to promote it
        began = now()
        wakeups.wait(seen, pause)
        if now() - began < pause * 0.9:
            self._ending.wait(self._wakeup_limiter.delay())
        else:
            self._poll, self._polling = min(self._poll * 2, self._config.poll), True
        self._release_waiting()

    def _release_waiting(self) -> None:
        """Release tasks that were claimed ahead and have waited too long in a lane."""
        for lane in self._lanes:
            if lane.free < 0 and (waiting := lane.take_back(now() - AHEAD_TIMEOUT)):
                lane.stuck = True
                self._release(waiting)


class WakeupLimiter:
    """Limits the rate of polls after wake-ups: a token bucket."""

    def __init__(self) -> None:
        self._left = float(WAKEUP_BURST)
        self._counted_at = now()

    def delay(self) -> float:
        """Take one token. Seconds to wait before the next poll."""
        moment = now()
        self._left = min(WAKEUP_BURST, self._left + (moment - self._counted_at) * WAKEUPS_PER_SECOND) - 1
        self._counted_at = moment
        return max(0.0, -self._left / WAKEUPS_PER_SECOND)
