"""The finisher: writes outcomes to the store, in batches, each fenced by the token of its claim.

While the store is unavailable, the finisher repeats the same batch: writing an outcome twice is safe. An outcome that
the store refuses is replaced by a failed attempt with the reason, and does not delay the other outcomes. A lost claim
is logged; another worker holds the task.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dibs.errors import ClaimLost, DibsError, InvalidValue, NotAllowed, StoreError, StoreRefused
from dibs.model.claim import MAX_BATCH, Completed, Failed, Finished, Outcome, outcome_size
from dibs.model.task import Failure
from dibs.worker.attempt import Attempt
from dibs.worker.progress import ProgressReports
from dibs.worker.run import permanent_failure
from dibs.worker.service import ServiceThread
from dibs.worker.store_access import StoreAccess

if TYPE_CHECKING:
    from dibs.worker.figures import OutcomeTotals

logger = logging.getLogger("dibs.worker")

DecidedAttempt = tuple[Attempt, Outcome]

QUEUE_TIMEOUT = 1.0

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of outcomes after which a batch is full: a larger batch would hold the write lock of SQLite for too long."""

LOGGED_REASON_LENGTH = 200
"""Characters of an error's first line that the log shows."""

SUCCESS_LOG_LEVEL = logging.DEBUG
"""The log level of attempts that did not fail."""


class Finisher(ServiceThread):
    """The service thread that writes outcomes: a batch holds all outcomes that came during the write of the last
    batch."""

    name = "finisher"

    def __init__(
        self,
        access: StoreAccess,
        forget: Callable[[Sequence[Attempt]], None],
        progress: ProgressReports,
        finalize: Callable[[int], None] | None = None,
        *,
        stored: Callable[[Attempt, Outcome, Finished], None] | None = None,
        totals: OutcomeTotals | None = None,
    ) -> None:
        super().__init__()
        self._access = access
        self._forget = forget
        self._progress = progress
        self._finalize = finalize
        self._stored = stored
        self._totals = totals
        self._queue: queue.SimpleQueue[DecidedAttempt | threading.Event | None] = queue.SimpleQueue()
        self._batch: list[DecidedAttempt] = []
        self._waiters: list[threading.Event] = []

    def put(self, attempt: Attempt, outcome: Outcome) -> None:
        """Queue the outcome of an attempt."""
        self._queue.put((attempt, outcome))

    def wait_until_written(self, timeout: float) -> bool:
        """Wait until the outcomes that are queued now are written. False if some are not after `timeout` seconds.

        The queue is in order, so an event behind the outcomes is set after all of them are written. A count of the
        queue would miss the outcome that the finisher has just taken from it."""
        written = threading.Event()
        self._queue.put(written)
        return written.wait(timeout)

    def wake(self) -> None:
        """See ServiceThread."""
        self._queue.put(None)

    def step(self) -> None:
        """Write a batch. If that fails, the next step tries the same batch again."""
        if not self._batch:
            self._collect(self._batch)
        if self._batch:
            self._progress.write_for(attempt.claim for attempt, _ in self._batch)
            self._write(self._batch)
            self._batch = []
        while self._waiters:
            self._waiters.pop().set()

    def _collect(self, batch: list[DecidedAttempt]) -> None:
        size = 0
        try:
            entry = self._queue.get(timeout=QUEUE_TIMEOUT)
            while True:
                if isinstance(entry, tuple):
                    batch.append(entry)
                    size += outcome_size(entry[1])
                    if len(batch) == MAX_BATCH or size >= BATCH_BYTES:
                        return
                elif entry is not None:
                    self._waiters.append(entry)
                entry = self._queue.get_nowait()
        except queue.Empty:
            pass

    def _write(self, batch: Sequence[DecidedAttempt]) -> None:
        try:
            results = self._access.run(
                self._access.store.queue.finish([(attempt.claim, outcome) for attempt, outcome in batch])
            )
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
                raise  # the store is unavailable: the next step writes the same batch
            self._write_one_by_one(batch, error)
            return
        if self._totals is not None:
            self._totals.count((outcome for _, outcome in batch), results)
        done = []
        for (attempt, outcome), result in zip(batch, results, strict=True):
            if isinstance(result, Finished):
                self._written(attempt, outcome, result)
                done.append(attempt)
            elif self._refused(attempt, outcome, _refusal_for_task(outcome, result)):
                done.append(attempt)
        self._forget(done)

    def _written(self, attempt: Attempt, outcome: Outcome, result: Finished) -> None:
        if isinstance(outcome, Failed):
            _log_failure(attempt, outcome, result)
        elif logger.isEnabledFor(SUCCESS_LOG_LEVEL):
            _log_end(attempt, outcome)
        if result.finalize is not None and self._finalize is not None:
            self._finalize(result.finalize)  # before the attempt is forgotten: a burst must not end in between
        if self._stored is not None:
            self._stored(attempt, outcome, result)  # before as well

    def _write_one_by_one(self, batch: Sequence[DecidedAttempt], error: Exception) -> None:
        """Write each outcome of a refused batch on its own, to find the one that the store refuses."""
        if len(batch) > 1:
            for decided in batch:
                self._write([decided])
            return
        [(attempt, outcome)] = batch
        if not isinstance(error, DibsError):
            logger.error("%r: the outcome could not be written", attempt, exc_info=error)
        if self._refused(attempt, outcome, _as_refusal(error)):
            self._forget([attempt])

    def _refused(self, attempt: Attempt, outcome: Outcome, error: DibsError) -> bool:
        """Log that the store refused the outcome. Returns False if a failed attempt replaces it."""
        if isinstance(error, (InvalidValue, StoreRefused)):
            return not self._replace(attempt, outcome, error)
        if isinstance(error, ClaimLost):
            ended, about = type(outcome).__name__.lower(), attempt.log_fields("task.lost", reason=error.message)
            logger.warning("%r: the outcome %r came too late: %s", attempt, ended, error.message, extra=about)
        else:
            about = attempt.log_fields("task.outcome_refused", code=error.code)
            logger.error("%r: the outcome was refused: %s", attempt, error.message, extra=about)
        return True

    def _replace(self, attempt: Attempt, outcome: Outcome, error: InvalidValue | StoreRefused) -> bool:
        """Replace an outcome that cannot be stored by a failed attempt. Returns False if the replacement was refused as
        well: then the lease expires, and the task is recovered."""
        about = attempt.log_fields("task.outcome_refused", code=error.code)
        if attempt.replaced:
            logger.error("%r: the outcome is given up, the lease will expire: %s", attempt, error.message, extra=about)
            return False
        attempt.replaced = True
        logger.error("%r: the outcome could not be stored: %s", attempt, error.message, extra=about)
        self.put(
            attempt,
            permanent_failure(error) if isinstance(error, InvalidValue) else _failure_for_unstored(outcome, error),
        )
        return True


def _refusal_for_task(outcome: Outcome, error: DibsError) -> DibsError:
    """The refusal; an InvalidValue where the handler caused it: it added a step in a queue that the API key does not
    allow."""
    if isinstance(outcome, Completed) and isinstance(error, NotAllowed) and error.code == "queue_not_allowed":
        return InvalidValue(f"The outcome cannot be stored: {error.message}", hint=error.hint)
    return error


def _as_refusal(error: Exception) -> DibsError:
    return error if isinstance(error, DibsError) else StoreRefused(f"{type(error).__name__}: {error}")


def _failure_for_unstored(outcome: Outcome, error: StoreRefused) -> Failed:
    """The failed attempt that replaces an outcome that the store refused.

    The reason is ASCII, because a character may have caused the refusal. The retry options of the handler stay."""
    reason = error.message.encode("ascii", "backslashreplace").decode()
    failure = Failure("StoreRefused", f"The outcome of the attempt could not be stored: {reason}")
    if isinstance(outcome, Failed):
        return Failed(failure, outcome.retry_in, outcome.permanent)
    return Failed(failure)


def _log_failure(attempt: Attempt, outcome: Failed, result: Finished) -> None:
    """Log a failed attempt in one line; the traceback is stored with the task."""
    reason = (outcome.failure.message.strip().splitlines() or [""])[0][:LOGGED_REASON_LENGTH]
    if result.run_at is not None and result.will_retry:
        then = f"the next attempt is due at {result.run_at:%H:%M:%S} UTC"
    else:
        then = "the task is in the dead letter" if result.dead else f"the task is {result.state}"
        then = f"the failure is permanent, {then}" if outcome.permanent else then
    about = attempt.log_fields(
        "task.failed",
        seconds=attempt.seconds,
        max_attempts=attempt.claim.task.max_attempts,
        error_type=outcome.failure.type,
        error=reason,
        state=result.state.value,
        permanent=outcome.permanent,
        dead=result.dead,
        next_at=None if result.run_at is None or not result.will_retry else result.run_at,
    )
    logger.warning("%r failed: %s: %s; %s", attempt, outcome.failure.type, reason, then, extra=about)


def _log_end(attempt: Attempt, outcome: Outcome) -> None:
    ended = type(outcome).__name__.lower()
    about = attempt.log_fields(f"task.{ended}", seconds=attempt.seconds)
    logger.log(SUCCESS_LOG_LEVEL, "%r %s after %.3f s", attempt, ended, attempt.seconds or 0.0, extra=about)
