"""Lanes: run handlers. A lane has places (threads, coroutines, processes) and a queue of attempts before them."""

from __future__ import annotations

import logging
import math
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dibs.handlers.endings import outcome_of
from dibs.model.claim import Outcome, Released
from dibs.observe.metrics import count_run
from dibs.worker.attempt import Attempt, Batch, HandlerCall, StopReason, now
from dibs.worker.run import perform
from dibs.workflow.task_data import TaskData

logger = logging.getLogger("dibs.worker")

LONG_TYPES_INTERVAL = 0.05
"""Seconds between two claims of long types while tasks of short types fill the lane."""

IN_TURN_INTERVAL = 1.0
"""Seconds between two claims that also take tasks with limits, while claims ahead find as many as they ask for."""


@dataclass(frozen=True, slots=True)
class LaneCallbacks:
    """What a lane needs from its worker.

    `may_begin`: whether an attempt or a batch may start. `ended`: receives its outcome; of a batch, one for each
    attempt, or one for all. `room`: called when the lane has room again. `task_data`: results and checkpoints for
    handlers."""

    may_begin: Callable[[HandlerCall], bool]
    ended: Callable[[HandlerCall, Outcome | Sequence[Outcome]], None]
    room: Callable[[], None]
    task_data: TaskData


class LaneRunner(ABC):
    """Runs the attempts of some task types, as many at once as it has places.

    The tasks of `types` are claimed one for each place; those of batch handlers by a BatchLane for each handler."""

    def __init__(self, types: Sequence[str], places: int, callbacks: LaneCallbacks) -> None:
        self.types = list(types)
        self.places = places
        self.durations = TypeDurations()
        self._callbacks = callbacks
        self._active: set[HandlerCall] = set()
        self._refill_below = places
        self._long_types_due_at = 0.0
        self.quiet_until = 0.0
        self.flooded = False
        """True while all types are short and more tasks are pending than the lane may hold."""
        self.limited = False
        """True if the last claim that was not ahead has tasks with limits, which are not claimed ahead."""
        self.in_turn_at = math.inf
        """When a claim also takes tasks with limits, although claims ahead find as many tasks as they ask for."""
        self.ahead_again_at = 0.0
        """With tasks with limits: the time of the next claim ahead, after one that found nothing."""
        self.stuck = False
        """True after waiting tasks were released, until one ends here: claiming ahead would claim the same tasks
        again."""

    @abstractmethod
    def submit(self, attempts: Sequence[HandlerCall]) -> None:
        """Run the attempts as soon as places are free."""

    @abstractmethod
    def take_back(self, waiting_since: float) -> list[Attempt]:
        """Remove and return the attempts that were received before this time and have not started."""

    def prepare(self) -> None:  # noqa: B027 (most lanes have nothing to do)
        """Called before the first claim of an app with a lifespan. Raises LifespanFailed."""

    @abstractmethod
    def close(self) -> None:
        """End the lane: no more attempts will be submitted."""

    @property
    def free(self) -> int:
        """Number of free places; negative if tasks are claimed ahead."""
        return self.places - len(self._active)

    @property
    def running(self) -> int:
        """Number of tasks that run."""
        return min(len(self._active), self.places)

    def held_queues(self) -> list[str]:
        """The queue of each task that runs or waits in the lane."""
        return [attempt.claim.task.queue for call in self._active.copy() for attempt in call.attempts]

    def reserve(self, batch: Batch) -> None:
        """Keep a place for a batch that is being collected."""
        self._active.add(batch)

    def unreserve(self, batch: Batch) -> None:
        """Give the place of a batch back that will not run."""
        self._active.discard(batch)

    @property
    def free_for_batches(self) -> int:
        """Number of further batches that the lane may take. While short tasks fill the lane, batches queue behind
        them, as long types do."""
        if self.free >= 0:
            return self.free
        return max(0, self.places - sum(isinstance(work, Batch) for work in self._active.copy()))

    def claimed_ahead(self, moment: float, filled: bool) -> None:
        """Note a claim ahead that began at this moment. `filled`: it found as many tasks as it asked for, so there may
        be more, and tasks with limits need a turn."""
        if not filled:
            self.in_turn_at = math.inf
        elif self.in_turn_at == math.inf:
            self.in_turn_at = moment + IN_TURN_INTERVAL

    def free_in_turn(self) -> int:
        """Number of free places, for a claim that is not ahead. Until one is free, nothing is claimed ahead."""
        self._refill_below = self.places
        return self.free

    def wanted_ahead(self) -> tuple[list[str], int]:
        """The short types, and how many of their tasks to claim ahead.

        Nothing is claimed ahead before half of the held tasks are done, so that claims stay large."""
        short = self.durations.short_types(self.types)
        if not short or self.stuck or (self.limited and now() < self.ahead_again_at):
            self._refill_below = self.places
            return [], 0
        target = self.durations.tasks_ahead(short, self.places)
        self._refill_below = max(self.places, target // 2)
        held = len(self._active)
        return short, target - held if held <= target // 2 else 0

    def long_types_wanted(self) -> tuple[list[str], int]:
        """The types that are not known to be short, and how many of their tasks to claim while short tasks fill the
        lane: without this claim, long types would starve."""
        if now() < self._long_types_due_at:
            return [], 0
        self._long_types_due_at = now() + LONG_TYPES_INTERVAL
        short = set(self.durations.short_types(self.types))
        others = [name for name in self.types if name not in short]
        held = sum(attempt.handler.name not in short for attempt in self._active.copy())
        return others, self.places - held

    def _finished(
        self, attempt: HandlerCall, begun: float, outcome: Outcome | Sequence[Outcome], reached: float
    ) -> None:
        self.stuck, seconds = False, now() - begun
        # Includes the time before the start: a suspect whose start takes long to store is not short, and more such
        # tasks claimed ahead would wait until they are released.
        self.durations.record(attempt.handler.name, seconds + begun - reached)
        if isinstance(attempt, Batch):
            for each in attempt.attempts:
                count_run(each.claim.task, seconds)
        else:
            count_run(attempt.claim.task, seconds)
        self._active.discard(attempt)
        self._callbacks.ended(attempt, outcome)
        if len(self._active) < self._refill_below:
            self._callbacks.room()


class ThreadLane(LaneRunner):
    """Runs plain functions in threads, which are started on first use."""

    def __init__(self, types: Sequence[str], places: int, callbacks: LaneCallbacks) -> None:
        super().__init__(types, places, callbacks)
        self._queue: queue.SimpleQueue[HandlerCall | None] = queue.SimpleQueue()
        self._threads = 0
        self._abandoned: set[HandlerCall] = set()
        self._starting = threading.Lock()

    def submit(self, attempts: Sequence[HandlerCall]) -> None:
        """See LaneRunner."""
        self._active.update(attempts)
        for attempt in attempts:
            self._queue.put(attempt)
        try:
            for _ in range(min(len(attempts), self.places - self._serving)):
                self._start_thread()
        except RuntimeError:  # the system has no more threads
            if not self._serving:  # no thread would ever start the queued attempts
                for attempt in self.take_back(now()):
                    self._callbacks.ended(attempt, Released())
            raise

    def take_back(self, waiting_since: float) -> list[Attempt]:
        """See LaneRunner."""
        taken: list[HandlerCall] = []
        kept: list[HandlerCall] = []
        try:
            while (attempt := self._queue.get_nowait()) is not None:
                (taken if attempt.received_at <= waiting_since else kept).append(attempt)
        except queue.Empty:
            pass
        for attempt in kept:
            self._queue.put(attempt)
        self._active.difference_update(taken)
        return attempts_of(taken)

    def close(self) -> None:
        """See LaneRunner."""
        for _ in range(self._threads):
            self._queue.put(None)

    @property
    def _serving(self) -> int:
        """Number of threads that take attempts from the queue: all but the abandoned ones."""
        with self._starting:
            return self._threads - len(self._abandoned)

    def _start_thread(self) -> None:
        with self._starting:
            self._threads += 1
        try:
            threading.Thread(target=self._work, name=f"dibs-{self._thread_name}-{self._threads}", daemon=True).start()
        except RuntimeError:
            with self._starting:
                self._threads -= 1
            raise

    _thread_name = "lane"

    def _work(self) -> None:
        while (attempt := self._queue.get()) is not None:
            reached = now()
            if not self._callbacks.may_begin(attempt):
                self._active.discard(attempt)
                self._callbacks.room()
                continue
            attempt.on_stop = lambda reason, attempt=attempt: self._stop(attempt, reason)  # type: ignore[misc]
            attempt.begun_at = begun = now()
            outcome = self._outcome(attempt)
            if self._was_abandoned(attempt):
                return
            self._finished(attempt, begun, outcome, reached)

    def _outcome(self, attempt: HandlerCall) -> Outcome | Sequence[Outcome]:
        try:
            with attempt.traced():
                return self._perform(attempt)
        except (
            BaseException
        ) as error:  # otherwise the thread would end, and the place and the attempt would be lost unnoticed
            logger.exception("%r could not be run", attempt, extra=attempt.log_fields("task.broke_its_lane"))
            return outcome_of(error)

    def _perform(self, attempt: HandlerCall) -> Outcome | Sequence[Outcome]:
        if isinstance(attempt, Batch):
            return attempt.perform()
        return perform(attempt.handler, attempt.context)

    def _stop(self, attempt: HandlerCall, reason: StopReason) -> None:
        """Replace the thread of an attempt that has timed out, since a thread cannot be killed.

        The thread is abandoned and a new one takes its place, as long as fewer threads than places are abandoned.
        """
        if reason is not StopReason.TIMED_OUT or not attempt.decided:  # a batch may have attempts that go on
            return
        with self._starting:
            replaceable = len(self._abandoned) < self.places and attempt in self._active
            if replaceable:
                self._abandoned.add(attempt)
                self._active.discard(attempt)
        if replaceable:
            self._start_thread()
            self._callbacks.room()
        logger.error(
            "%r still runs in its thread after its timeout; only handlers of the lane 'process' can be killed%s",
            attempt,
            "" if replaceable else "; too many threads are in this state, so the place stays occupied",
            extra=attempt.log_fields("task.overran"),
        )

    def _was_abandoned(self, attempt: HandlerCall) -> bool:
        """True if the attempt had timed out and its thread was replaced: the thread then ends."""
        with self._starting:
            if attempt not in self._abandoned:
                return False
            self._abandoned.discard(attempt)
            self._threads -= 1
        about = attempt.log_fields("task.came_late")
        logger.warning("%r ended after its timeout; its outcome is discarded", attempt, extra=about)
        return True


def attempts_of(work: Sequence[HandlerCall]) -> list[Attempt]:
    """The attempts of some calls."""
    return [attempt for each in work for attempt in each.attempts]


SHORT_TASK_SECONDS = 0.05
"""Average seconds below which a task type is short."""


WORK_AHEAD_SECONDS = 0.5
"""Seconds of work that a lane may claim ahead."""


MAX_AHEAD = 1000
"""Number of tasks that a lane may claim ahead, however short they are."""


AVERAGE_WEIGHT = 0.1
"""Weight of a new duration in the running average."""


class TypeDurations:
    """The running average of the duration of tasks, by type."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def record(self, type_name: str, seconds: float) -> None:
        """Record the duration of a task. A long duration replaces the average, a short one adjusts it."""
        known = self._average.get(type_name, seconds)
        self._average[type_name] = (
            seconds if seconds > SHORT_TASK_SECONDS else known + (seconds - known) * AVERAGE_WEIGHT
        )

    def short_types(self, types: Sequence[str]) -> list[str]:
        """The given types that are known to be short."""
        return [name for name in types if self._average.get(name, SHORT_TASK_SECONDS) < SHORT_TASK_SECONDS]

    def tasks_ahead(self, types: Sequence[str], places: int) -> int:
        """The number of tasks of these types to hold, so that this many places have enough work."""
        slowest = max(self._average[name] for name in types)
        return max(places, min(MAX_AHEAD, int(places * WORK_AHEAD_SECONDS / max(slowest, 1e-6))))
