"""Access to the store for all threads of a worker, with one record of when the store last answered."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.errors import NotAllowed, OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable
from dibs.model.claim import Claim
from dibs.model.workflow import StepResult
from dibs.procedures import PauseFor, Procedure, WaitForChange
from dibs.store.contract import Store
from dibs.store.operation import Operation, drive
from dibs.store.wakeups import Wakeups
from dibs.worker.service import retry_delay
from dibs.workflow.task_data import NO_RESOURCES

if TYPE_CHECKING:
    from dibs.model.execution import Execution

T = TypeVar("T")

logger = logging.getLogger("dibs.worker")

WARNING_INTERVAL = 60.0
"""Seconds between two warnings while the store fails."""

_UNAVAILABLE_ERRORS = (StoreUnavailable, StoreBusy, OutcomeUnknown)


class StoreAccess:
    """Runs operations, logs failures of the store, and records when an operation last succeeded."""

    def __init__(self, store: Store, by: str | None) -> None:
        self.store = store
        self._by = by
        self._lock = threading.Lock()
        self._answered_at = time.monotonic()
        self._warned_at: float | None = None

    @property
    def silent_for(self) -> float:
        """Seconds since the store last answered."""
        return time.monotonic() - self._answered_at

    @property
    def wakeups(self) -> Wakeups:
        """The wake-ups of the store. Raises StoreError if the store cannot be opened."""
        try:
            return self.store.wakeups
        except StoreError as error:
            self._warn("open", error)
            raise

    def wake(self) -> None:
        """Wake the thread of this process that waits for changes of the store."""
        with contextlib.suppress(StoreError):  # no thread waits on a store that is not open
            self.store.wakeups.wake()

    def run(self, operation: Operation[T], *, idle: bool = False, may_be_refused: bool = False) -> T:
        """Run the operation. Raises StoreError if the store cannot be reached. `idle`: no caller waits.
        `may_be_refused`: the caller reports NotAllowed."""
        try:
            result: T = self.store.run(operation, by=self._by, idle=idle)
        except StoreError as error:
            if not (may_be_refused and isinstance(error, NotAllowed)):
                self._warn(operation.name, error)
            raise
        if self._warned_at is not None:
            self._log_recovery()
        self._answered_at = time.monotonic()
        return result

    def follow(self, procedure: Procedure[T], *, idle: bool = False) -> T:
        """Run a procedure that never waits for a change of the store."""
        return drive(procedure, partial(self._step, idle=idle))

    def _step(self, step: Operation[Any] | WaitForChange | PauseFor, idle: bool) -> Any:
        assert isinstance(step, Operation)
        return self.run(step, idle=idle)

    def maintain(self) -> None:
        """Run the periodic maintenance of the engine."""
        try:
            self.store.maintain(wait=False)
        except StoreError as error:
            self._warn("maintenance", error)
            raise

    def _warn(self, doing: str, error: StoreError) -> None:
        with self._lock:  # once for all service threads, and once a minute while the store fails
            now = time.monotonic()
            if self._warned_at is not None and now - self._warned_at < WARNING_INTERVAL:
                return
            self._warned_at = now
        reason = error.message.splitlines()[0]
        what = "does not answer" if isinstance(error, _UNAVAILABLE_ERRORS) else "refuses"
        about = {"event": "store.failed", "code": error.code, "operation": doing, "reason": reason}
        logger.warning(
            "the store %s (%s; last answer %.1f s ago): %s", what, doing, self.silent_for, reason, extra=about
        )

    def _log_recovery(self) -> None:
        with self._lock:
            warned_at, self._warned_at = self._warned_at, None
        if warned_at is not None:
            about = {"event": "store.recovered", "seconds": round(self.silent_for, 3)}
            logger.info("the store answers again, after %.1f s", self.silent_for, extra=about)


HANDLER_WAIT = 10.0
"""Seconds for which a handler waits for a store that is unavailable."""


class StoreTaskData:
    """Reads and writes task data in the store. See TaskData."""

    def __init__(self, store: Store, run: Callable[[Operation[Any]], Any]) -> None:
        self.resources: Any = NO_RESOURCES
        self._store = store
        self._run = run

    def results(self, claim: Claim) -> Sequence[StepResult]:
        """See TaskData."""
        return self._run_patiently(self._store.workflows.results(claim.task_id))

    def execution(self, claim: Claim) -> Execution:
        """See TaskData."""
        return self._run_patiently(self._store.workflows.execution(claim.task_id))

    def checkpoints(self, claim: Claim) -> dict[str, Any]:
        """See TaskData."""
        return self._run_patiently(self._store.queue.checkpoints(claim.task_id))

    def keep(self, claim: Claim, name: str, value: Any) -> Any:
        """See TaskData."""
        return self._run_patiently(self._store.queue.keep_checkpoint(claim, name, value))

    def _run_patiently(self, operation: Operation[T]) -> T:
        """Run the operation again and again while the store is unavailable, for up to HANDLER_WAIT seconds."""
        ends, failures = time.monotonic() + HANDLER_WAIT, 0
        while True:
            try:
                result: T = self._run(operation)
            except _UNAVAILABLE_ERRORS:
                failures += 1
                if time.monotonic() >= ends:
                    raise
                time.sleep(retry_delay(failures))
            else:
                return result
