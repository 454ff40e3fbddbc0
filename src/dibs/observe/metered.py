"""A store that is counted: everything that is asked of it, and everything that it does to tasks.

The store is wrapped where it is opened, so that sync and async, clients, workers and servers count alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from dibs.errors import ClaimLost, DibsError, NotClaimable, TaskNotFound
from dibs.observe import finalization_metrics, metrics
from dibs.store.contract import INTERFACES, DatabaseStore, Store
from dibs.store.operation import Operation

T = TypeVar("T")
AnyStore = TypeVar("AnyStore", bound=Store)


def counted(store: AnyStore) -> AnyStore:
    """The same store, counted; once, however often this is asked for."""
    return store if type(store) is _Counted else cast("AnyStore", _Counted(store))


class _Counted:
    """Counts the operations that are run; everything else is forwarded to the store."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._run, self._run_async, self.served = store.run, store.run_async, store.served  # on the busiest path
        for name in INTERFACES:
            setattr(self, name, getattr(store, name))
        if not self.served:  # the server counts what becomes of the tasks in its store
            cast("DatabaseStore", store).observer = metrics.Counting()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def run(self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False) -> T:
        if (count := _COUNTS.get(operation.name)) is None:
            return cast("T", self._run(operation, by=by, on=on, idle=idle))
        began = time.perf_counter()
        try:
            answer: T = self._run(operation, by=by, on=on, idle=idle)
        except DibsError as error:
            _count_refusal(operation, error, time.perf_counter() - began)
            raise
        count(operation.request, answer, time.perf_counter() - began)
        return answer

    async def run_async(
        self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        if (count := _COUNTS.get(operation.name)) is None:
            return cast("T", await self._run_async(operation, by=by, on=on, idle=idle))
        began = time.perf_counter()
        try:
            answer: T = await self._run_async(operation, by=by, on=on, idle=idle)
        except DibsError as error:
            _count_refusal(operation, error, time.perf_counter() - began)
            raise
        count(operation.request, answer, time.perf_counter() - began)
        return answer


_COUNTS: dict[str, Callable[[Any, Any, float], None]] = {
    "claim": metrics.count_claim,
    "claim_each": lambda about, claims, took: metrics.count_claims(claims, took),
    "claim_by_id": lambda about, claim, took: metrics.count_claim(None, [claim], took),
    "finish": lambda reports, answers, took: metrics.count_outcomes(reports, answers),
    "exchange": metrics.count_exchange,
    "start": lambda about, answers, took: metrics.count_stale("start", answers),
    "renew": lambda about, answers, took: metrics.count_renewals(answers, took),
    "progress": lambda about, answers, took: metrics.count_stale("progress", answers),
    "keep_checkpoint": lambda about, answer, took: None,
    "claim_finalization": lambda about, answer, took: finalization_metrics.count_claim(answer, took),
    "renew_finalization": lambda about, answer, took: finalization_metrics.count_extension(answer, took),
    "release_finalization": lambda about, answer, took: finalization_metrics.count_release(answer, took),
}
"""What to do with the answer of an operation, given what it was about and how long it took."""


def _count_refusal(operation: Operation[Any], error: DibsError, took: float) -> None:
    """Some answers are raised. Whatever else goes wrong on the way is no answer."""
    if operation.name == "claim_by_id" and isinstance(error, (NotClaimable, TaskNotFound)):
        metrics.count_claim(None, [], took)
    elif operation.name == "keep_checkpoint" and isinstance(error, ClaimLost):
        metrics.count_stale("checkpoint", [error])
