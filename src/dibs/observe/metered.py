"""A wrapper of the store that counts operations and their effects on tasks.

The store is wrapped when it is opened, so that sync and async clients, workers and servers count in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from dibs.errors import ClaimLost, DibsError, NotClaimable, TaskNotFound
from dibs.observe import metrics
from dibs.store.contract import INTERFACES, DatabaseStore, Store
from dibs.store.operation import Operation

T = TypeVar("T")
AnyStore = TypeVar("AnyStore", bound=Store)


def counted(store: AnyStore) -> AnyStore:
    """Wrap the store so that its operations are counted. A wrapped store is returned unchanged."""
    return store if type(store) is _MeteredStore else cast("AnyStore", _MeteredStore(store))


class _MeteredStore:
    """Counts the operations that are run, and forwards everything else to the store."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._run, self._run_async, self.served = store.run, store.run_async, store.served  # on the busiest path
        for name in INTERFACES:
            setattr(self, name, getattr(store, name))
        if not self.served:  # a server counts the effects on its tasks itself
            cast("DatabaseStore", store).observer = metrics.TaskMetrics()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def run(self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False) -> T:
        if (count := _COUNTS.get(operation.name)) is None:
            return cast("T", self._run(operation, by=by, on=on, idle=idle))
        began = time.perf_counter()
        try:
            result: T = self._run(operation, by=by, on=on, idle=idle)
        except DibsError as error:
            _count_refusal(operation, error, time.perf_counter() - began)
            raise
        count(operation.request, result, time.perf_counter() - began)
        return result

    async def run_async(
        self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        if (count := _COUNTS.get(operation.name)) is None:
            return cast("T", await self._run_async(operation, by=by, on=on, idle=idle))
        began = time.perf_counter()
        try:
            result: T = await self._run_async(operation, by=by, on=on, idle=idle)
        except DibsError as error:
            _count_refusal(operation, error, time.perf_counter() - began)
            raise
        count(operation.request, result, time.perf_counter() - began)
        return result


_COUNTS: dict[str, Callable[[Any, Any, float], None]] = {
    "claim": metrics.count_claim,
    "claim_each": lambda about, claims, took: metrics.count_claims(claims, took),
    "claim_by_id": lambda about, claim, took: metrics.count_claim(None, [claim], took),
    "finish": lambda reports, results, took: metrics.count_outcomes(reports, results),
    "exchange": metrics.count_exchange,
    "start": lambda about, results, took: metrics.count_stale("start", results),
    "renew": lambda about, results, took: metrics.count_renewals(results, took),
    "progress": lambda about, results, took: metrics.count_stale("progress", results),
    "keep_checkpoint": lambda about, result, took: None,
    "claim_finalization": lambda about, result, took: metrics.count_finalization_claim(result, took),
    "renew_finalization": lambda about, result, took: metrics.count_finalization_extension(result, took),
    "release_finalization": lambda about, result, took: metrics.count_finalization_release(result, took),
}
"""How to count an operation, by name: called with its request, its result and its duration."""


def _count_refusal(operation: Operation[Any], error: DibsError, took: float) -> None:
    """Count the results that are raised as errors. Other errors are not results of the store."""
    if operation.name == "claim_by_id" and isinstance(error, (NotClaimable, TaskNotFound)):
        metrics.count_claim(None, [], took)
    elif operation.name == "keep_checkpoint" and isinstance(error, ClaimLost):
        metrics.count_stale("checkpoint", [error])
