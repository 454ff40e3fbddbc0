"""Lanes: where handlers run. A lane has places, a queue before them, and says what it wants to be given next."""

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
from dibs.worker.attempt import Attempt, Stop, now
from dibs.worker.run import perform
from dibs.workflow.task_data import Shelf

logger = logging.getLogger("dibs.worker")

OTHERS_EVERY = 0.05
"""Seconds between two looks for tasks that are not very short, while very short ones fill the lane."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What a lane needs of its worker: may this attempt begin, it ended so, there is room again, and the shelf."""

    begin: Callable[[Attempt], bool]
    ended: Callable[[Attempt, Outcome], None]
    room: Callable[[], None]
    shelf: Shelf


class Lane(ABC):
    """Places for attempts of some types."""

    def __init__(self, types: Sequence[str], places: int, duties: Duties) -> None:
        self.types = list(types)
        self.places = places
        self.pace = Pace()
        self._duties = duties
        self._active: set[Attempt] = set()
        self._enough = places
        self._others_at = 0.0
        self.quiet_until = 0.0
        self.flooded = False
        """Set while very short tasks come faster than they can be held."""
        self.stuck = False
        """True after tasks were given back, until one ends here: to claim ahead would be to take them again."""

    @abstractmethod
    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Run these as soon as there are places."""

    @abstractmethod
    def take_back(self, waiting_since: float) -> list[Attempt]:
        """Those that were received before this moment and have not begun; they will not begin here any more."""

    @abstractmethod
    def close(self) -> None:
        """No more work will come."""

    @property
    def free(self) -> int:
        """Places with nothing to do."""
        return self.places - len(self._active)

    def wanted_ahead(self) -> tuple[list[str], int]:
        """Types that are very short, and how many of their tasks to claim ahead. None before half are done, so that
        claims stay large."""
        short = self.pace.short(self.types)
        if not short or self.stuck:
            self._enough = self.places
            return [], 0
        target = self.pace.ahead(short, self.places)
        self._enough = max(self.places, target // 2)
        held = len(self._active)
        return short, target - held if held <= target // 2 else 0

    def others_wanted(self) -> tuple[list[str], int]:
        """Types that are not known to be very short, and how many of them to claim although short ones fill the lane:
        otherwise these would never get their turn."""
        if now() < self._others_at:
            return [], 0
        self._others_at = now() + OTHERS_EVERY
        short = set(self.pace.short(self.types))
        others = [name for name in self.types if name not in short]
        held = sum(attempt.handler.name not in short for attempt in self._active.copy())
        return others, self.places - held

    def _finished(self, attempt: Attempt, begun: float, outcome: Outcome, reached: float) -> None:
        self.stuck, seconds = False, now() - begun
        # Also what came before: a suspect whose start is noted slowly is not short, and more of them claimed ahead
        # would wait until they are given back.
        self.pace.note(attempt.handler.name, seconds + begun - reached)
        count_run(attempt.claim.task, seconds)
        self._active.discard(attempt)
        self._duties.ended(attempt, outcome)
        if len(self._active) < self._enough:
            self._duties.room()


class ThreadLane(Lane):
    """Plain functions in threads, which are started when they are first needed."""

    def __init__(self, types: Sequence[str], places: int, duties: Duties) -> None:
        super().__init__(types, places, duties)
        self._queue: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._threads = 0
        self._abandoned: set[Attempt] = set()
        self._starting = threading.Lock()

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """See Lane."""
        self._active.update(attempts)
        for attempt in attempts:
            self._queue.put(attempt)
        try:
            for _ in range(min(len(attempts), self.places - self._serving)):
                self._start_thread()
        except RuntimeError:  # the system has no more threads
            if not self._serving:  # nobody would ever begin them
                for attempt in self.take_back(now()):
                    self._duties.ended(attempt, Released())
            raise

    def take_back(self, waiting_since: float) -> list[Attempt]:
        """See Lane."""
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
        """See Lane."""
        for _ in range(self._threads):
            self._queue.put(None)

    @property
    def _serving(self) -> int:
        """Threads that take tasks; those astray do not."""
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
            if not self._duties.begin(attempt):
                self._active.discard(attempt)
                continue
            attempt.on_stop = lambda why, attempt=attempt: self._stop(attempt, why)  # type: ignore[misc]
            attempt.begun_at = begun = now()
            outcome = self._outcome(attempt)
            if self._came_back_late(attempt):
                return
            self._finished(attempt, begun, outcome, reached)

    def _outcome(self, attempt: Attempt) -> Outcome:
        try:
            with attempt.traced():
                return self._perform(attempt)
        except BaseException as error:  # a thread that ended here would take its place and its attempt along, unseen
            logger.exception("%r could not be run as it should", attempt, extra=attempt.about("task.broke_its_lane"))
            return outcome_of(error)

    def _perform(self, attempt: Attempt) -> Outcome:
        return perform(attempt.handler, attempt.context)

    def _stop(self, attempt: Attempt, why: Stop) -> None:
        """A thread cannot be killed. After its timeout another takes its place, as long as few are astray."""
        if why is not Stop.TIMED_OUT:
            return
        with self._starting:
            replaceable = len(self._abandoned) < self.places and attempt in self._active
            if replaceable:
                self._abandoned.add(attempt)
                self._active.discard(attempt)
        if replaceable:
            self._start_thread()
        logger.error(
            "%r goes on in its thread after its timeout; only handlers of the lane 'process' can be killed%s",
            attempt,
            "" if replaceable else "; too many do, so its place stays taken",
            extra=attempt.about("task.overran"),
        )

    def _came_back_late(self, attempt: Attempt) -> bool:
        with self._starting:
            if attempt not in self._abandoned:
                return False
            self._abandoned.discard(attempt)
            self._threads -= 1
        about = attempt.about("task.came_late")
        logger.warning("%r ended long after its timeout; what it did is not counted", attempt, extra=about)
        return True


SHORT = 0.05
"""Seconds up to which a type counts as very short."""


AHEAD = 0.5
"""Seconds of work that a lane may hold."""


MOST = 1000
"""Tasks that a lane may hold, however short."""


WEIGHT = 0.1


class Pace:
    """A running average of the time that the tasks of each type take."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def note(self, type_name: str, seconds: float) -> None:
        """A task of this type took so long. A long one counts at once, short ones little by little."""
        known = self._average.get(type_name, seconds)
        self._average[type_name] = seconds if seconds > SHORT else known + (seconds - known) * WEIGHT

    def short(self, types: Sequence[str]) -> list[str]:
        """The types among these that are known to be very short."""
        return [name for name in types if self._average.get(name, SHORT) < SHORT]

    def ahead(self, types: Sequence[str], places: int) -> int:
        """How many tasks of these types make enough work for so many places."""
        slowest = max(self._average[name] for name in types)
        return max(places, min(MOST, int(places * AHEAD / max(slowest, 1e-6))))
