"""The shelf of a worker's handlers: results and checkpoints in the store, asked for with patience.

A handler in the middle of its work should not fail because the store was away for a moment; asking again is safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dibs.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from dibs.model.claim import Claim
from dibs.model.workflow import StepResult
from dibs.store.contract import Store
from dibs.store.operation import Operation
from dibs.worker.part import rest

T = TypeVar("T")

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
