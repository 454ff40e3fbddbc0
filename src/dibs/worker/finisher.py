"""Finish: outcomes to the store, in batches, each fenced by its token.

While the store is away, the same batch is tried again until it is answered: repeating an outcome is safe. An outcome
that the store refuses is replaced by a failed attempt that says so, and does not hold back the others. A lost claim is
reported in the log; another worker has the task.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Sequence

from dibs.errors import ClaimLost, DibsError, InvalidValue, NotAllowed, StoreError, StoreRefused
from dibs.model.claim import MAX_BATCH, Completed, Failed, Finished, Outcome, outcome_size
from dibs.model.task import Failure, State
from dibs.worker.attempt import Attempt, now
from dibs.worker.progress import Notes
from dibs.worker.run import misfit
from dibs.worker.service import Part
from dibs.worker.store_access import Contact

logger = logging.getLogger("dibs.worker")

Told = tuple[Attempt, Outcome]

LOOK_UP = 1.0

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of outcomes after which a batch is full: a large batch would hold the write lock of SQLite for long."""

REASON = 200
"""Characters of an error's first line that the log shows."""

TELL_OF_SUCCESS = logging.DEBUG
"""How grave it is that a task did not fail."""


class Finisher(Part):
    """Writes whatever has come while the last batch was being written."""

    name = "finisher"

    def __init__(
        self,
        contact: Contact,
        forget: Callable[[Sequence[Attempt]], None],
        notes: Notes,
        finalize: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        self._contact = contact
        self._forget = forget
        self._notes = notes
        self._finalize = finalize
        self._queue: queue.SimpleQueue[Told | None] = queue.SimpleQueue()
        self._batch: list[Told] = []

    def put(self, attempt: Attempt, outcome: Outcome) -> None:
        """This is how the attempt ended."""
        self._queue.put((attempt, outcome))

    @property
    def backlog(self) -> int:
        """Outcomes that are not written yet."""
        return self._queue.qsize() + len(self._batch)

    def wait_until_written(self, timeout: float) -> bool:
        """True once all outcomes so far are written. Only before a suspect begins, so it need not be quick."""
        ends = now() + timeout
        while self.backlog and now() < ends:
            time.sleep(0.002)
        return not self.backlog

    def wake(self) -> None:
        """See Part."""
        self._queue.put(None)

    def step(self) -> None:
        """Write a batch. If that fails, the next step tries the same batch again."""
        if not self._batch:
            self._collect(self._batch)
        if self._batch:
            self._notes.write_of(attempt.claim for attempt, _ in self._batch)
            self._write(self._batch)
            self._batch = []

    def _collect(self, batch: list[Told]) -> None:
        size = 0
        try:
            told = self._queue.get(timeout=LOOK_UP)
            while True:
                if told is not None:
                    batch.append(told)
                    size += outcome_size(told[1])
                    if len(batch) == MAX_BATCH or size >= BATCH_BYTES:
                        return
                told = self._queue.get_nowait()
        except queue.Empty:
            pass

    def _write(self, batch: Sequence[Told]) -> None:
        try:
            answers = self._contact.run(self._contact.store.queue.finish([(told[0].claim, told[1]) for told in batch]))
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
                raise  # the store is away: the same batch again
            self._write_one_by_one(batch, error)
            return
        done = []
        for (attempt, outcome), answer in zip(batch, answers, strict=True):
            if isinstance(answer, Finished):
                self._written(attempt, outcome, answer)
                done.append(attempt)
            elif self._refused(attempt, outcome, _seen_by_its_task(outcome, answer)):
                done.append(attempt)
        self._forget(done)

    def _written(self, attempt: Attempt, outcome: Outcome, answer: Finished) -> None:
        if isinstance(outcome, Failed):
            _tell_of_failure(attempt, outcome, answer)
        elif logger.isEnabledFor(TELL_OF_SUCCESS):
            _tell_of_end(attempt, outcome)
        if answer.finalize is not None and self._finalize is not None:
            self._finalize(answer.finalize)  # before the attempt is forgotten: a burst must not end in between

    def _write_one_by_one(self, batch: Sequence[Told], error: Exception) -> None:
        """Find the outcome that the whole batch was refused for."""
        if len(batch) > 1:
            for told in batch:
                self._write([told])
            return
        [(attempt, outcome)] = batch
        if not isinstance(error, DibsError):
            logger.error("%r: writing the outcome failed", attempt, exc_info=error)
        if self._refused(attempt, outcome, _as_refusal(error)):
            self._forget([attempt])

    def _refused(self, attempt: Attempt, outcome: Outcome, error: DibsError) -> bool:
        """Report that the outcome was refused; False if a failed attempt was put in its place."""
        if isinstance(error, (InvalidValue, StoreRefused)):
            return not self._replace(attempt, outcome, error)
        if isinstance(error, ClaimLost):
            ended, about = type(outcome).__name__.lower(), attempt.about("task.lost", reason=error.message)
            logger.warning("%r ended as %s, too late: %s", attempt, ended, error.message, extra=about)
        else:
            about = attempt.about("task.outcome_refused", code=error.code)
            logger.error("%r: the outcome was refused: %s", attempt, error.message, extra=about)
        return True

    def _replace(self, attempt: Attempt, outcome: Outcome, error: InvalidValue | StoreRefused) -> bool:
        """Put a failed attempt in the place of an outcome that cannot be stored. False if even that was refused: the
        lease then runs out, and the task is recovered."""
        about = attempt.about("task.outcome_refused", code=error.code)
        if attempt.replaced:
            logger.error("%r: gave up writing its outcome: %s", attempt, error.message, extra=about)
            return False
        attempt.replaced = True
        logger.error("%r: the outcome could not be stored: %s", attempt, error.message, extra=about)
        self.put(attempt, misfit(error) if isinstance(error, InvalidValue) else _unstored(outcome, error))
        return True


def _seen_by_its_task(outcome: Outcome, error: DibsError) -> DibsError:
    """The refusal; as InvalidValue where it is the handler's, which added a step in a queue that our key is not for."""
    if isinstance(outcome, Completed) and isinstance(error, NotAllowed) and error.code == "queue_not_allowed":
        return InvalidValue(f"The outcome cannot be kept: {error.message}", hint=error.hint)
    return error


def _as_refusal(error: Exception) -> DibsError:
    return error if isinstance(error, DibsError) else StoreRefused(f"{type(error).__name__}: {error}")


def _unstored(outcome: Outcome, error: StoreRefused) -> Failed:
    """The failed attempt in the place of an outcome that the store refused. In ASCII: what was refused may be a
    character. What the handler said about the next attempt still holds."""
    reason = error.message.encode("ascii", "backslashreplace").decode()
    failure = Failure("StoreRefused", f"The outcome of the attempt could not be stored: {reason}")
    if isinstance(outcome, Failed):
        return Failed(failure, outcome.retry_in, outcome.permanent)
    return Failed(failure)


def _tell_of_failure(attempt: Attempt, outcome: Failed, answer: Finished) -> None:
    """One line; the traceback is kept with the task."""
    reason = (outcome.failure.message.strip().splitlines() or [""])[0][:REASON]
    if answer.run_at is not None and answer.will_retry:
        then = f"the next attempt is due at {answer.run_at:%H:%M:%S} UTC"
    else:
        then = "it is in the dead letter" if answer.state is State.FAILED else f"it is {answer.state}"
        then = f"the failure is permanent, {then}" if outcome.permanent else then
    about = attempt.about(
        "task.failed",
        seconds=attempt.seconds,
        error_type=outcome.failure.type,
        error=reason,
        state=answer.state.value,
        permanent=outcome.permanent,
        next_at=None if answer.run_at is None or not answer.will_retry else answer.run_at,
    )
    logger.warning("%r failed: %s: %s; %s", attempt, outcome.failure.type, reason, then, extra=about)


def _tell_of_end(attempt: Attempt, outcome: Outcome) -> None:
    ended = type(outcome).__name__.lower()
    about = attempt.about(f"task.{ended}", seconds=attempt.seconds)
    logger.log(TELL_OF_SUCCESS, "%r %s after %.3f s", attempt, ended, attempt.seconds or 0.0, extra=about)
