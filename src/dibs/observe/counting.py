"""A store that is counted: everything that is asked of it, and everything that it does to tasks.

Operations are wrapped where they are made, so that sync and async, clients, workers and servers count alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from dibs.claim import Claim, ClaimRequest, Finished, Outcome, Renewed
from dibs.errors import ClaimLost, DibsError, NotClaimable, TaskNotFound
from dibs.observe import finalization, tasks
from dibs.step import FinalizationClaim
from dibs.store.contract import DatabaseStore, Store
from dibs.store.operation import Operation

T = TypeVar("T")
AnyStore = TypeVar("AnyStore", bound=Store)
Ref = tasks.Ref
Reports = Sequence[tuple[Ref, Outcome]]


def counted(store: AnyStore) -> AnyStore:
    """The same store, counted; once, however often this is asked for."""
    return store if type(store) is _Counted else cast("AnyStore", _Counted(store))


class _Counted:
    """Wraps the operations that are counted, and leaves everything else to the store."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.run, self.run_async = store.run, store.run_async  # the way of every operation: not through __getattr__
        if not store.served:  # what becomes of the tasks behind a server is counted there
            cast("DatabaseStore", store).witness = tasks.Counting()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, request: ClaimRequest) -> Operation[list[Claim]]:
        return _timed(self._store.claim(request), lambda claims, took: tasks.count_claim(request, claims, took))

    def claim_each(self, requests: Sequence[ClaimRequest]) -> Operation[list[list[Claim]]]:
        return _timed(self._store.claim_each(requests), tasks.count_claims)

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Operation[Claim]:
        asking: Operation[Claim] = self._store.claim_by_id(task_id, request)
        timed = _timed(asking, lambda claim, took: tasks.count_claim(request, [claim], took))
        began = time.perf_counter()
        refused = (NotClaimable, TaskNotFound)
        return _or_refused(timed, refused, lambda: tasks.count_claim(request, [], time.perf_counter() - began))

    def finish(self, reports: Reports) -> Operation[list[Finished | DibsError]]:
        return _answered(self._store.finish(reports), lambda answers: tasks.count_outcomes(reports, answers))

    def exchange(
        self, reports: Reports, request: ClaimRequest
    ) -> Operation[tuple[list[Finished | DibsError], list[Claim]]]:
        def count(done: tuple[list[Finished | DibsError], list[Claim]], took: float) -> None:
            tasks.count_outcomes(reports, done[0])
            tasks.count_claim(request, done[1], took)

        return _timed(self._store.exchange(reports, request), count)

    def start(self, claims: Sequence[Ref]) -> Operation[list[DibsError | None]]:
        return _answered(self._store.start(claims), lambda answers: tasks.count_stale("start", answers))

    def renew(self, claims: Sequence[Ref], lease: int) -> Operation[list[Renewed | DibsError]]:
        return _timed(self._store.renew(claims, lease), tasks.count_renewals)

    def progress(self, notes: Sequence[tuple[Ref, int, str | None]]) -> Operation[list[bool | DibsError]]:
        return _answered(self._store.progress(notes), lambda answers: tasks.count_stale("progress", answers))

    def keep_checkpoint(self, claim: Ref, name: str, value: Any) -> Operation[Any]:
        keeping: Operation[Any] = self._store.keep_checkpoint(claim, name, value)
        return _or_refused(keeping, (ClaimLost,), lambda: tasks.stale_tokens.add("checkpoint"))

    def claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        return _timed(self._store.claim_finalization(workflow_id, processor, lease), finalization.count_claim)

    def renew_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        return _timed(self._store.renew_finalization(workflow_id, processor, lease), finalization.count_extension)

    def release_finalization(self, workflow_id: int, processor: str) -> Operation[bool]:
        return _timed(self._store.release_finalization(workflow_id, processor), finalization.count_release)


def _timed(operation: Operation[T], count: Callable[[T, float], None]) -> Operation[T]:
    """The operation, counted and timed when it is answered."""
    began = time.perf_counter()  # it is run as soon as it is made: waiting for a connection counts as well
    return _answered(operation, lambda answer: count(answer, time.perf_counter() - began))


def _answered(operation: Operation[T], count: Callable[[T], None]) -> Operation[T]:
    """The operation, counted when it is answered. What fails on the way is no answer."""

    def read(of_steps: Any) -> T:
        answer = operation.result(of_steps)
        count(answer)
        return answer

    return replace(operation, read=read)


def _or_refused(
    operation: Operation[T], refusals: tuple[type[DibsError], ...], count: Callable[[], None]
) -> Operation[T]:
    """The operation, counted when it is refused with one of these."""

    def begin() -> Generator[Any, Any, Any]:
        try:
            return (yield from operation.begin())
        except refusals:
            count()
            raise

    return replace(operation, begin=begin)
