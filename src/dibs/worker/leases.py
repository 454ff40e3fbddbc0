"""The lease keeper: renews leases, passes on requests to stop, enforces timeouts and writes progress.

The lease keeper is a separate thread, so a blocked event loop or a slow handler does not lose a lease. A handler in C
code that holds the interpreter's lock for most of a lease does lose it: such handlers belong in the lane "process",
whose leases are renewed by the parent process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from dibs.errors import ClaimLost, DibsError
from dibs.model.claim import MAX_BATCH, ClaimStatus, Failed, Renewed
from dibs.model.task import Failure
from dibs.observe import tracing
from dibs.worker.attempt import Attempt, HeldAttempts, StopReason, now
from dibs.worker.progress import ProgressReports
from dibs.worker.service import ServiceThread
from dibs.worker.store_access import StoreAccess

logger = logging.getLogger("dibs.worker")

TICK = 0.2
"""Seconds between two rounds."""

STATUS_CHECK_INTERVAL = 0.5
"""Seconds between two reads of the status of running claims: a client may have requested a cancellation."""


class LeaseKeeper(ServiceThread):
    """The service thread that keeps the claims of held attempts valid."""

    name = "lease keeper"

    def __init__(self, access: StoreAccess, lease: float, attempts: HeldAttempts, progress: ProgressReports) -> None:
        super().__init__()
        self._access = access
        self._lease = lease
        self._attempts = attempts
        self._status_read_at = 0.0
        self._progress = progress
        self._woken = threading.Event()

    def wake(self) -> None:
        """See ServiceThread."""
        self._woken.set()

    def step(self) -> None:
        """Do one round: time out, renew, read the status of claims, write progress."""
        self._woken.wait(TICK)
        attempts = self._attempts.all()
        if not attempts:
            self._progress.clear()
            return
        moment = now()
        self._time_out([attempt for attempt in attempts if not attempt.decided], moment)
        self._renew([attempt for attempt in attempts if moment - attempt.renewed_at >= self._lease / 3])
        if moment - self._status_read_at >= STATUS_CHECK_INTERVAL:
            self._status_read_at = moment
            self._read_status([attempt for attempt in attempts if _is_running_long(attempt, moment)])
            self._progress.write_all()

    def _time_out(self, attempts: Sequence[Attempt], moment: float) -> None:
        for attempt in attempts:
            deadline = attempt.deadline
            if (
                deadline is not None
                and moment >= deadline
                and self._attempts.decide(attempt, _timeout_failure(attempt))
            ):
                attempt.stop(StopReason.TIMED_OUT)

    def _renew(self, attempts: Sequence[Attempt]) -> None:
        for batch in _batches(attempts):
            moment = now()
            claims = [attempt.claim for attempt in batch]
            results = self._access.run(self._access.store.queue.renew(claims, round(self._lease * 1e6)))
            for attempt, result in zip(batch, results, strict=True):
                self._renewed(attempt, result, moment)

    def _renewed(self, attempt: Attempt, result: Renewed | DibsError, moment: float) -> None:
        if isinstance(result, Renewed):
            attempt.renewed_at = moment
            if result.cancel_requested:
                self._stop(attempt, StopReason.CANCELLED)
        elif isinstance(result, ClaimLost) and not attempt.decided:  # decided: the task was finished in the meantime
            self._lost(attempt, result.message)

    def _read_status(self, attempts: Sequence[Attempt]) -> None:
        for batch in _batches(attempts):
            statuses = self._access.run(self._access.store.queue.claim_status([attempt.claim for attempt in batch]))
            for attempt, status in zip(batch, statuses, strict=True):
                if status is ClaimStatus.STOPPING:
                    self._stop(attempt, StopReason.CANCELLED)
                elif status is ClaimStatus.LOST and not attempt.decided:
                    self._lost(attempt, "this worker no longer holds the claim")

    def _stop(self, attempt: Attempt, reason: StopReason) -> None:
        if not attempt.context.cancelled and not attempt.decided:
            logger.info("%r has to stop", attempt, extra=attempt.log_fields("task.stop_requested"))
            attempt.stop(reason)

    def _lost(self, attempt: Attempt, reason: str) -> None:
        logger.warning(
            "%r: the claim is lost: %s", attempt, reason, extra=attempt.log_fields("task.lost", reason=reason)
        )
        tracing.end_attempt(attempt.span, None)
        self._attempts.forget([attempt])
        attempt.stop(StopReason.LOST)


def _is_running_long(attempt: Attempt, moment: float) -> bool:
    """True for a handler that has run long enough for its claim's status to be read, and for a task that has waited as
    long for others of its batch."""
    began = attempt.begun_at
    if began is None and attempt.handler.batch is not None:
        began = attempt.received_at
    return not attempt.decided and began is not None and moment - began >= STATUS_CHECK_INTERVAL


def _timeout_failure(attempt: Attempt) -> Failed:
    timeout = attempt.claim.task.timeout
    failed = Failed(Failure("TimedOut", f"The attempt took longer than its timeout of {timeout} s."))
    rules = attempt.handler.retry_rules
    return failed if rules is None else rules.after_timeout(failed, attempt.claim)


def _batches(attempts: Sequence[Attempt]) -> list[Sequence[Attempt]]:
    return [attempts[start : start + MAX_BATCH] for start in range(0, len(attempts), MAX_BATCH)]
