"""The worker's line to the store: every part speaks over it, so one place knows since when nobody gets through."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from dibs.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable
from dibs.model.claim import Claim
from dibs.model.workflow import StepResult
from dibs.procedures import Plan, Wait
from dibs.store.contract import Store
from dibs.store.operation import Operation, drive
from dibs.store.wakeups import Wakeups
from dibs.worker.service import rest

T = TypeVar("T")

logger = logging.getLogger("dibs.worker")

SAY_AGAIN = 60.0

_AWAY = (StoreUnavailable, StoreBusy, OutcomeUnknown)


class Contact:
    """Runs operations, and remembers when one last succeeded."""

    def __init__(self, store: Store, by: str | None) -> None:
        self.store = store
        self._by = by
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._said_at: float | None = None

    @property
    def silent_for(self) -> float:
        """Seconds since the store last answered."""
        return time.monotonic() - self._last

    @property
    def wakeups(self) -> Wakeups:
        """Where to wait for changes; StoreError where the store cannot be opened."""
        try:
            return self.store.wakeups
        except StoreError as error:
            self._complain("open", error)
            raise

    def wake(self) -> None:
        """Let the one who waits for changes look again."""
        with contextlib.suppress(StoreError):  # a store that is not open has nobody waiting
            self.store.wakeups.wake()

    def run(self, operation: Operation[T], *, idle: bool = False) -> T:
        """Run the operation; StoreError where the store could not be reached. `idle`: nothing waits for its result."""
        try:
            answer: T = self.store.run(operation, by=self._by, idle=idle)
        except StoreError as error:
            self._complain(operation.name, error)
            raise
        if self._said_at is not None:
            self._rejoice()
        self._last = time.monotonic()
        return answer

    def follow(self, procedure: Plan[T], *, idle: bool = False) -> T:
        """Run the operations of a procedure that does not wait."""
        return drive(procedure, partial(self._step, idle=idle))

    def _step(self, step: Operation[Any] | Wait, idle: bool) -> Any:
        assert not isinstance(step, Wait)
        return self.run(step, idle=idle)

    def maintain(self) -> None:
        """Whatever the engine itself needs now and then."""
        try:
            self.store.maintain()
        except StoreError as error:
            self._complain("maintenance", error)
            raise

    def _complain(self, doing: str, error: StoreError) -> None:
        with self._lock:  # once for all parts, and once a minute while it lasts
            now = time.monotonic()
            if self._said_at is not None and now - self._said_at < SAY_AGAIN:
                return
            self._said_at = now
        reason = error.message.splitlines()[0]
        what = "does not answer" if isinstance(error, _AWAY) else "refuses"
        about = {"event": "store.failed", "code": error.code, "operation": doing, "reason": reason}
        logger.warning(
            "the store %s (%s; last answer %.1f s ago): %s", what, doing, self.silent_for, reason, extra=about
        )

    def _rejoice(self) -> None:
        with self._lock:
            said, self._said_at = self._said_at, None
        if said is not None:
            about = {"event": "store.recovered", "seconds": round(self.silent_for, 3)}
            logger.info("the store answers again, after %.1f s", self.silent_for, extra=about)


PATIENCE = 10.0
"""Seconds for which a handler waits for a store that is away."""


class StoreShelf:
    """See Shelf."""

    def __init__(self, store: Store, run: Callable[[Operation[Any]], Any]) -> None:
        self._store = store
        self._run = run

    def results(self, claim: Claim) -> Sequence[StepResult]:
        """See Shelf."""
        return self._ask(self._store.workflows.results(claim.task_id))

    def checkpoints(self, claim: Claim) -> dict[str, Any]:
        """See Shelf."""
        return self._ask(self._store.queue.checkpoints(claim.task_id))

    def keep(self, claim: Claim, name: str, value: Any) -> Any:
        """See Shelf."""
        return self._ask(self._store.queue.keep_checkpoint(claim, name, value))

    def _ask(self, operation: Operation[T]) -> T:
        ends, failures = time.monotonic() + PATIENCE, 0
        while True:
            try:
                answer: T = self._run(operation)
            except (StoreUnavailable, StoreBusy, OutcomeUnknown):
                failures += 1
                if time.monotonic() >= ends:
                    raise
                time.sleep(rest(failures))
            else:
                return answer
