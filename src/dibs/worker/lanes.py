"""Lanes: run handlers. A lane has places (threads, coroutines, processes) and a queue of attempts before them."""

from __future__ import annotations

import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dibs.handlers.endings import outcome_of
from dibs.model.claim import Outcome, Released
from dibs.observe.metrics import count_run
from dibs.worker.attempt import Attempt, StopReason, now
from dibs.worker.run import perform
from dibs.workflow.task_data import TaskData

logger = logging.getLogger("dibs.worker")

LONG_TYPES_INTERVAL = 0.05
"""Seconds between two claims of long types while tasks of short types fill the lane."""


@dataclass(frozen=True, slots=True)
class LaneCallbacks:
    """What a lane needs from its worker.

    `may_begin`: whether an attempt may start. `ended`: receives its outcome. `room`: called when the lane has room
    again. `task_data`: results and checkpoints for handlers."""

    may_begin: Callable[[Attempt], bool]
    ended: Callable[[Attempt, Outcome], None]
    room: Callable[[], None]
    task_data: TaskData


class LaneRunner(ABC):
    """Runs the attempts of some task types, as many at once as it has places."""

    def __init__(self, types: Sequence[str], places: int, callbacks: LaneCallbacks) -> None:
        self.types = list(types)
        self.places = places
        self.durations = TypeDurations()
        self._callbacks = callbacks
        self._active: set[Attempt] = set()
        self._refill_below = places
        self._long_types_due_at = 0.0
        self.quiet_until = 0.0
        self.flooded = False
        """True while all types are short and more tasks are pending than the lane may hold."""
        self.stuck = False
        """True after waiting tasks were released, until one ends here: claiming ahead would claim the same tasks
        again."""

    @abstractmethod
    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Run the attempts as soon as places are free."""

    @abstractmethod
    def take_back(self, waiting_since: float) -> list[Attempt]:
        """Remove and return the attempts that were received before this time and have not started."""

    @abstractmethod
    def close(self) -> None:
        """End the lane: no more attempts will be submitted."""

    @property
    def free(self) -> int:
        """Number of free places; negative if tasks are claimed ahead."""
        return self.places - len(self._active)

    def wanted_ahead(self) -> tuple[list[str], int]:
        """The short types, and how many of their tasks to claim ahead.

        Nothing is claimed ahead before half of the held tasks are done, so that claims stay large."""
        short = self.durations.short_types(self.types)
        if not short or self.stuck:
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

    def _finished(self, attempt: Attempt, begun: float, outcome: Outcome, reached: float) -> None:
        self.stuck, seconds = False, now() - begun
        # Includes the time before the start: a suspect whose start takes long to store is not short, and more such
        # tasks claimed ahead would wait until they are released.
        self.durations.record(attempt.handler.name, seconds + begun - reached)
        count_run(attempt.claim.task, seconds)
        self._active.discard(attempt)
        self._callbacks.ended(attempt, outcome)
        if len(self._active) < self._refill_below:
            self._callbacks.room()


class ThreadLane(LaneRunner):
    """Runs plain functions in threads, which are started on first use."""

    def __init__(self, types: Sequence[str], places: int, callbacks: LaneCallbacks) -> None:
        super().__init__(types, places, callbacks)
        self._queue: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._threads = 0
        self._abandoned: set[Attempt] = set()
        self._starting = threading.Lock()

    def submit(self, attempts: Sequence[Attempt]) -> None:
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
        taken: list[Attempt] = []
        kept: list[Attempt] = []
        try:
            while (attempt := self._queue.get_nowait()) is not None:
                (taken if attempt.received_at <= waiting_since else kept).append(attempt)
        except queue.Empty:
            pass
        for attempt in kept:
            self._queue.put(attempt)
        self._active.difference_update(taken)
        return taken

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
                continue
            attempt.on_stop = lambda reason, attempt=attempt: self._stop(attempt, reason)  # type: ignore[misc]
            attempt.begun_at = begun = now()
            outcome = self._outcome(attempt)
            if self._was_abandoned(attempt):
                return
            self._finished(attempt, begun, outcome, reached)

    def _outcome(self, attempt: Attempt) -> Outcome:
        try:
            with attempt.traced():
                return self._perform(attempt)
        except (
            BaseException
        ) as error:  # otherwise the thread would end, and the place and the attempt would be lost unnoticed
            logger.exception("%r could not be run", attempt, extra=attempt.log_fields("task.broke_its_lane"))
            return outcome_of(error)

    def _perform(self, attempt: Attempt) -> Outcome:
        return perform(attempt.handler, attempt.context)

    def _stop(self, attempt: Attempt, reason: StopReason) -> None:
        """Replace the thread of an attempt that has timed out, since a thread cannot be killed.

        The thread is abandoned and a new one takes its place, as long as fewer threads than places are abandoned.
        """
        if reason is not StopReason.TIMED_OUT:
            return
        with self._starting:
            replaceable = len(self._abandoned) < self.places and attempt in self._active
            if replaceable:
                self._abandoned.add(attempt)
                self._active.discard(attempt)
        if replaceable:
            self._start_thread()
        logger.error(
            "%r still runs in its thread after its timeout; only handlers of the lane 'process' can be killed%s",
            attempt,
            "" if replaceable else "; too many threads are in this state, so the place stays occupied",
            extra=attempt.log_fields("task.overran"),
        )

    def _was_abandoned(self, attempt: Attempt) -> bool:
        """True if the attempt had timed out and its thread was replaced: the thread then ends."""
        with self._starting:
            if attempt not in self._abandoned:
                return False
            self._abandoned.discard(attempt)
            self._threads -= 1
        about = attempt.log_fields("task.came_late")
        logger.warning("%r ended after its timeout; its outcome is discarded", attempt, extra=about)
        return True


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
