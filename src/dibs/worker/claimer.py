"""The claimer: claims tasks whenever a lane has room, and waits for new tasks when there are none.

A wake-up makes the claimer poll at once. Because a wake-up can be lost, the claimer also polls by itself, at growing
intervals. The store returns when the next task becomes due, so a delayed task does not wait for a whole interval.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dibs.model.claim import MAX_BATCH, Claim, ClaimRequest
from dibs.procedures import DueWaits, claim_now
from dibs.worker.attempt import Attempt, now
from dibs.worker.config import WorkerConfig
from dibs.worker.lanes import LaneRunner
from dibs.worker.service import ServiceThread
from dibs.worker.store_access import StoreAccess

if TYPE_CHECKING:
    from dibs.worker.batch_lane import BatchLane
    from dibs.worker.queue_bounds import QueueBounds

FIRST_POLL = 0.25
"""Seconds until the first poll after a claim that found nothing; each further interval is twice as long."""

FULL_WAIT = 0.25
"""Seconds after which a claimer whose lanes are full checks for tasks claimed ahead that wait too long."""

AHEAD_TIMEOUT = 2.0
"""Seconds after which a task that was claimed ahead and has not started is released, so that another worker can run
it."""

EMPTY_LANE_PAUSE = 0.02
"""Seconds for which a lane whose claim found nothing is skipped while another lane is busy."""

AHEAD_PAUSE = 0.25
"""Seconds for which a lane that runs tasks with limits does not claim ahead after a claim ahead that found nothing: a
claim ahead leaves out tasks with limits, and such tasks are probably the ones that wait."""

WAKEUP_BURST, WAKEUPS_PER_SECOND = 20, 50
"""A token bucket: the number of wake-ups after which the claimer polls at once, and how many the bucket regains each
second. A wake-up does not name the changed queue, so on a busy store an idle worker must not poll after each one."""

OnClaimed = Callable[[Sequence[Claim], LaneRunner, bool], Sequence[Attempt]]
"""Makes an attempt of each new claim. The last argument: True for claims ahead."""

_Turn = tuple[LaneRunner, Callable[[], list[int]]]
"""A lane, and the function that claims for it and returns the number of tasks of each claim."""


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
        bounds: QueueBounds | None = None,
        batch_lanes: Sequence[BatchLane] = (),
    ) -> None:
        super().__init__()
        self._access = access
        self._bounds = bounds
        self._queues = config.queue_names
        self._config = config
        self._worker_id, self._incarnation = identity
        self._lanes = lanes
        self._batch_lanes = batch_lanes
        self._turns: list[_Turn] = [
            *((lane, partial(self._claim_for, lane)) for lane in lanes if lane.types),
            *((lane, partial(self._claim_for_batches, lane)) for lane in batch_lanes),
        ]
        """The lanes in the order in which they claim, each with the function that claims for it. With bounds, a lane
        that took room of a queue goes to the end: otherwise the tasks of another lane would never have a place in a
        queue that is always full."""
        self._on_claimed = on_claimed
        self._release = release
        self._idle = idle
        self._room = threading.Event()
        self._permits = threading.Event()
        self._poll = FIRST_POLL
        self._wakeup_limiter = WakeupLimiter()
        self._due_waits = DueWaits()
        self._busy = False
        self._polling = False
        self._wants_room = True
        self._dry: set[LaneRunner] = set()
        """Lanes whose last claim for all their types returned fewer tasks than they had room for: nothing more is
        pending."""
        self.dry_since: float | None = None
        """The start of the last round of claims that found nothing while the worker held nothing; None after any other
        round."""

    def report_room(self) -> None:
        """Report that a lane has room again. The claimer is not woken while all lanes have more room than pending
        tasks."""
        if not self._room.is_set():
            self._room.set()
            if self._wants_room:
                self._access.wake()

    def report_permits(self) -> None:
        """Report that tasks of this worker have returned permits of their limits, or places in a queue with a bound:
        tasks that wait for these may start at once."""
        self._permits.set()
        self._access.wake()

    def wake(self) -> None:
        """See ServiceThread."""
        self._room.set()
        self._permits.set()
        self._access.wake()

    def step(self) -> None:
        """Claim for every lane; then wait if nothing is left to claim, or if no lane has room."""
        self._room.clear()
        self._permits.clear()
        self._wants_room = True
        seen = self._access.wakeups.generation
        idle = self._idle()
        began, self.dry_since = now(), None  # before the claims: a claimed task may end before this function returns
        claimed, found = self._claim_for_all()
        if claimed:
            self._due_waits.claimed(found)
        self._polling = False
        self._wants_room = len(self._dry) < len(self._turns)
        if found:
            self._poll = FIRST_POLL
            if self._wants_room:
                return
        if claimed:
            if idle and not found:
                self.dry_since = began
            self._wait_for_work(seen)
        else:
            self._room.wait(self._until_batches_due(FULL_WAIT))
            self._release_waiting()

    def _claim_for_all(self) -> tuple[bool, bool]:
        """Claim for all lanes. Returns whether any lane had room, and whether any task was found."""
        self._dry.clear()
        if self._batch_lanes:  # handlers that share the places of a lane take turns
            self._turns.append(self._turns.pop(0))
        turns = self._turns.copy()
        resting = [turn for turn in turns if self._busy and turn[0].quiet_until > now()]
        claimed, found = self._claim_in_order([turn for turn in turns if turn not in resting])
        if resting and not found:  # no other lane is busy any more, so no round follows soon
            claimed_for_resting, found = self._claim_in_order(resting)
            claimed = claimed or claimed_for_resting
        self._busy = found
        return claimed, found

    def _claim_in_order(self, turns: Sequence[_Turn]) -> tuple[bool, bool]:
        claimed = found = False
        for lane, claim in turns:
            counts = claim()
            claimed, found = claimed or bool(counts), found or any(counts)
            may_rest = counts and not any(counts) and (self._bounds is None or not self._bounds.full)
            lane.quiet_until = now() + EMPTY_LANE_PAUSE if may_rest else 0.0
        return claimed, found

    def _claim_for(self, lane: LaneRunner) -> list[int]:
        """Claim for one lane and return the number of tasks of each claim.

        The first claim fills the free places. Tasks are claimed ahead only if the first claim was filled."""
        if self._bounds is not None and self._bounds.closed:
            return []
        if now() >= lane.in_turn_at:
            return self._claim_in_turn(lane)
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
            counts.append(self._claim_ahead(lane, short, wanted))
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
        counts = [self._claim_ahead(lane, lane.types, max(wanted, 1))]
        lane.flooded = lane.flooded and len(short) == len(lane.types)
        if counts[0] < wanted and (free := lane.free) > 0:  # a burst must not end before tasks with limits
            self._dry.discard(lane)
            counts.append(self._claim(lane, lane.types, free, ahead=False))
        return counts

    def _claim_ahead(self, lane: LaneRunner, types: Sequence[str], wanted: int) -> int:
        began = now()
        count = self._claim(lane, types, wanted, ahead=True)
        filled = count == wanted
        lane.flooded = filled and len(types) == len(lane.types)
        lane.claimed_ahead(began, filled)
        return count

    def _claim_in_turn(self, lane: LaneRunner) -> list[int]:
        """Claim what is first in order, as soon as a place is free. Claims ahead leave out tasks with limits, which
        would starve while others fill the lane. The turn lasts until a claim finds no task with limits, or too few."""
        if (free := lane.free_in_turn()) <= 0:
            return []
        count = self._claim(lane, lane.types, free, ahead=False)
        if count < min(free, MAX_BATCH) or not lane.limited:
            lane.in_turn_at = math.inf
        return [count]

    def _claim_for_batches(self, lane: BatchLane) -> list[int]:
        """Claim for a batch handler: the rest of the open batch, and a batch for each free place."""
        try:
            if self._bounds is not None and self._bounds.closed:
                return []
            if (room := min(lane.free, MAX_BATCH)) > 0:
                return self._fill_batches(lane, room)
            if lane.collects:
                self._dry.add(lane)
            return []
        finally:
            lane.run_due()

    def _fill_batches(self, lane: BatchLane, room: int) -> list[int]:
        """Claim ahead: items wait for others, and a lost worker must not cost an attempt of all of them. Tasks with
        limits are not claimed ahead; they come second, or in their turn when the others never end."""
        began = now()
        if in_turn := began >= lane.in_turn_at:
            counts = [self._claim(lane, lane.types, room, ahead=False)]
        else:
            counts = [self._claim(lane, lane.types, room, ahead=True)]
            if counts[0] < room:
                self._dry.discard(lane)
                counts.append(self._claim(lane, lane.types, room - counts[0], ahead=False))
        lane.claimed(began, filled=not in_turn and counts[0] == room)
        return counts

    def _until_batches_due(self, pause: float) -> float:
        """Seconds to wait: the pause, or less if a batch has to run or to be filled before."""
        due = [seconds for lane in self._batch_lanes if (seconds := lane.due_in) is not None]
        return min([pause, *due])

    def _claim(self, lane: LaneRunner, types: Sequence[str], count: int, *, ahead: bool) -> int:
        count = min(count, MAX_BATCH)
        if self._bounds is not None:
            claims = self._claim_within(self._bounds, lane, types, count, ahead)
        else:
            claims = self._claim_from(self._queues, lane, types, count, ahead)
            if len(claims) < count and types == lane.types:
                self._run_dry(lane, ahead)
        if claims and not ahead:
            lane.limited = any(claim.limited for claim in claims)
        return len(claims)

    def _claim_within(
        self, bounds: QueueBounds, lane: LaneRunner, types: Sequence[str], count: int, ahead: bool
    ) -> list[Claim]:
        """Claim up to `count` tasks without exceeding the bound of a queue."""
        plan, claimed = bounds.start_round(), list[Claim]()
        while len(claimed) < count and plan.queues:
            all_queues, most = plan.queues == self._queues, plan.most(count - len(claimed))
            claims = self._claim_from(plan.queues, lane, types, most, ahead)
            claimed += claims
            if any(claim.task.queue in bounds for claim in claims):
                self._turns.sort(key=lambda each: each[0] is lane)
            if len(claims) < most:
                if all_queues and types == lane.types:
                    self._run_dry(lane, ahead)
                break
            plan.claimed([claim.task.queue for claim in claims])
        return claimed

    def _claim_from(
        self, queues: Sequence[str] | None, lane: LaneRunner, types: Sequence[str], count: int, ahead: bool
    ) -> list[Claim]:
        request = ClaimRequest(
            worker_id=self._worker_id,
            incarnation=self._incarnation,
            queues=queues,
            types=types,
            order=self._config.order,
            lease=self._config.lease,
            count=count,
            ahead=ahead,
        )
        claims = self._access.follow(claim_now(self._access.store, request), idle=self._polling)
        if claims:
            lane.submit(self._on_claimed(claims, lane, ahead))
        return claims

    def _run_dry(self, lane: LaneRunner, ahead: bool) -> None:
        """Note that a claim for all types of the lane was not filled. A claim ahead leaves out tasks with limits, so it
        does not show that none is pending."""
        if ahead and lane.limited:
            lane.ahead_again_at = now() + AHEAD_PAUSE
        else:
            self._dry.add(lane)

    def _wait_for_work(self, seen: int) -> None:
        wakeups = self._access.wakeups
        due = self._access.run(self._access.store.upkeep.next_due())
        pause = self._due_waits.seconds(due, self._poll * random.uniform(0.9, 1.1))
        pause = self._until_batches_due(pause)
        began = now()
        wakeups.wait(seen, pause)
        if now() - began < pause * 0.9:
            self._due_waits.woken()
            self._pause_after_wakeup()
        else:
            self._poll, self._polling = min(self._poll * 2, self._config.poll), True
        self._release_waiting()

    def _pause_after_wakeup(self) -> None:
        """Limit the rate of polls, except after permits or places have returned: tasks may wait for them."""
        if not self._permits.is_set() and self._permits.wait(self._wakeup_limiter.delay()):
            self._wakeup_limiter.give_back()

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

    def give_back(self) -> None:
        """Give the last token back, because its delay was cut short."""
        self._left += 1
