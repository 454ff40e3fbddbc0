"""The lease keeper: renews what the worker holds, passes on requests to stop, watches the clock, writes progress.

It is a thread of its own on a connection of its own, so a blocked event loop or a slow handler does not cost a lease.
What can is a handler that holds the interpreter's lock for most of a lease, in C code that does not let go of it;
such handlers belong into the lane "process", whose leases are kept here, in the parent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from dibs.errors import ClaimLost, DibsError
from dibs.model.claim import MAX_BATCH, ClaimStatus, Failed, Renewed
from dibs.model.task import Failure
from dibs.observe import tracing
from dibs.worker.attempt import Attempt, Attempts, Stop, now
from dibs.worker.progress import Notes
from dibs.worker.service import Part
from dibs.worker.store_access import Contact

logger = logging.getLogger("dibs.worker")

TICK = 0.2
LOOK_EVERY = 0.5
"""Seconds between two looks whether somebody asked a running task to stop."""


class Leases(Part):
    """Keeps what is held."""

    name = "lease keeper"

    def __init__(self, contact: Contact, lease: float, attempts: Attempts, notes: Notes) -> None:
        super().__init__()
        self._contact = contact
        self._lease = lease
        self._attempts = attempts
        self._looked_at = 0.0
        self._notes = notes
        self._woken = threading.Event()

    def wake(self) -> None:
        """See Part."""
        self._woken.set()

    def step(self) -> None:
        """One round."""
        self._woken.wait(TICK)
        attempts = self._attempts.all()
        if not attempts:
            self._notes.clear()
            return
        moment = now()
        self._time_out([attempt for attempt in attempts if not attempt.settled], moment)
        self._renew([attempt for attempt in attempts if moment - attempt.renewed_at >= self._lease / 3])
        if moment - self._looked_at >= LOOK_EVERY:
            self._looked_at = moment
            self._look([attempt for attempt in attempts if _runs(attempt, moment)])
            self._notes.write_all()

    def _time_out(self, attempts: Sequence[Attempt], moment: float) -> None:
        for attempt in attempts:
            deadline = attempt.deadline
            if deadline is not None and moment >= deadline and self._attempts.settle(attempt, _timed_out(attempt)):
                attempt.stop(Stop.TIMED_OUT)

    def _renew(self, attempts: Sequence[Attempt]) -> None:
        for batch in _batches(attempts):
            moment = now()
            claims = [attempt.claim for attempt in batch]
            answers = self._contact.run(self._contact.store.queue.renew(claims, round(self._lease * 1e6)))
            for attempt, answer in zip(batch, answers, strict=True):
                self._renewed(attempt, answer, moment)

    def _renewed(self, attempt: Attempt, answer: Renewed | DibsError, moment: float) -> None:
        if isinstance(answer, Renewed):
            attempt.renewed_at = moment
            if answer.cancel_requested:
                self._stop(attempt, Stop.CANCELLED)
        elif isinstance(answer, ClaimLost) and not attempt.settled:  # settled: it was finished in the meantime
            self._lost(attempt, answer.message)

    def _look(self, attempts: Sequence[Attempt]) -> None:
        for batch in _batches(attempts):
            standings = self._contact.run(self._contact.store.queue.claim_status([attempt.claim for attempt in batch]))
            for attempt, standing in zip(batch, standings, strict=True):
                if standing is ClaimStatus.STOPPING:
                    self._stop(attempt, Stop.CANCELLED)
                elif standing is ClaimStatus.LOST and not attempt.settled:
                    self._lost(attempt, "the claim is no longer ours")

    def _stop(self, attempt: Attempt, why: Stop) -> None:
        if not attempt.context.cancelled and not attempt.settled:
            logger.info("%r is asked to stop", attempt, extra=attempt.about("task.stop_requested"))
            attempt.stop(why)

    def _lost(self, attempt: Attempt, reason: str) -> None:
        logger.warning("%r is lost: %s", attempt, reason, extra=attempt.about("task.lost", reason=reason))
        tracing.end(attempt.span, None)
        self._attempts.forget([attempt])
        attempt.stop(Stop.LOST)


def _runs(attempt: Attempt, moment: float) -> bool:
    """True for a handler that has been running long enough to be worth a look."""
    return not attempt.settled and attempt.begun_at is not None and moment - attempt.begun_at >= LOOK_EVERY


def _timed_out(attempt: Attempt) -> Failed:
    return Failed(Failure("TimedOut", f"The attempt took longer than its timeout of {attempt.claim.task.timeout} s."))


def _batches(attempts: Sequence[Attempt]) -> list[Sequence[Attempt]]:
    return [attempts[start : start + MAX_BATCH] for start in range(0, len(attempts), MAX_BATCH)]
