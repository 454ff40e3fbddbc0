"""Coalesced requests: the server runs single enqueues, claims and outcomes of many clients as batches.

Each request gets its own result. Coalescing matters most for claims: ten claims at once would compete for the same
tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dibs import procedures
from dibs.errors import DibsError, StoreError, StoreRefused
from dibs.model.claim import Claim, ClaimRef, ClaimRequest, Completed, Finished, Outcome, OutcomeReport, outcome_size
from dibs.model.task import NewTask, Task
from dibs.model.workflow import tasks_in
from dibs.store.coalesce import RUN_ALONE, AsyncCoalescer
from dibs.store.contract import DatabaseStore
from dibs.store.operation import Operation, drive_async

T = TypeVar("T")
By = str | None
"""The author that the history shows. A batch has one author."""

CLAIM_SIZE = 10
"""Tasks of a claim that is coalesced, at most: a larger claim is a batch already."""


class CoalescedRequests:
    """The single enqueues, claims and outcomes of one server process."""

    def __init__(self, store: DatabaseStore, finalize_after: Callable[[Sequence[Any]], None]) -> None:
        self._store = store
        self._finalize_after = finalize_after
        self._enqueues: AsyncCoalescer[By, NewTask, Task] = AsyncCoalescer(_identity_of_task)
        self._claims: AsyncCoalescer[Any, ClaimRequest, list[Claim]] = AsyncCoalescer()
        self._outcomes: AsyncCoalescer[By, OutcomeReport, Finished] = AsyncCoalescer(
            lambda report: report[0], lambda report: outcome_size(report[1])
        )
        self._reading_types: asyncio.Task[None] | None = None

    async def enqueue(self, task: NewTask, by: By) -> Task:
        """Store the task, and return it as stored."""
        if not await self._validates_quickly([task]):  # other requests must not wait for its validation
            [stored] = await self._run(self._store.queue.enqueue([task]), by)
            return stored
        return await self._enqueues.run(by, task, self._enqueue)

    async def claim(self, request: ClaimRequest, by: By) -> list[Claim]:
        """Claim without waiting for tasks."""
        if request.request is not None or request.count > CLAIM_SIZE:
            return await self._follow(procedures.claim_now(self._store, request), by)
        return await self._claims.run((by, *_kind(request)), request, self._claim)

    async def finish(self, ref: ClaimRef, outcome: Outcome, by: By) -> Finished:
        """Store the outcome, and return the new state of the task; raises the reason of a refusal."""
        added = outcome.steps if isinstance(outcome, Completed) else ()
        if added and not await self._validates_quickly(list(tasks_in(added))):
            [answer] = await self._finish(by, [(ref, outcome)])
            if isinstance(answer, Exception):
                raise answer
            return answer
        return await self._outcomes.run(by, (ref, outcome), self._finish)

    async def _validates_quickly(self, tasks: Sequence[NewTask]) -> bool:
        """True if other requests may wait for the validation of these tasks. Requests that arrive while the task types
        are being read wait for the same reading."""
        quickly = self._store.validates_quickly(tasks)
        if quickly is None:
            if self._reading_types is None or self._reading_types.done():
                self._reading_types = asyncio.create_task(self._store.read_types())
            await asyncio.shield(self._reading_types)
            quickly = self._store.validates_quickly(tasks)
        return bool(quickly)

    async def _enqueue(self, by: By, tasks: Sequence[NewTask]) -> Sequence[Any]:
        try:
            return await self._run(self._store.queue.enqueue(tasks), by)
        except DibsError as error:
            if len(tasks) == 1 or (isinstance(error, StoreError) and not isinstance(error, StoreRefused)):
                raise
            return [RUN_ALONE] * len(tasks)  # one task is refused, and none was stored: find out which

    async def _claim(self, key: tuple[Any, ...], requests: Sequence[ClaimRequest]) -> Sequence[list[Claim]]:
        by = key[0]
        if len(requests) == 1:
            return [await self._follow(procedures.claim_now(self._store, requests[0]), by)]
        return await self._follow(procedures.claim_each(self._store, requests), by)

    async def _finish(self, by: By, reports: Sequence[OutcomeReport]) -> Sequence[Finished | Exception]:
        answers = await self._run(self._store.queue.finish(reports), by)
        self._finalize_after(answers)
        return answers

    async def _run(self, operation: Operation[T], by: By) -> T:
        return await self._store.run_async(operation, by=by)

    async def _follow(self, procedure: procedures.Operations[T], by: By) -> T:
        return await drive_async(procedure, lambda operation: self._run(operation, by))


def _kind(request: ClaimRequest) -> tuple[Any, ...]:
    """The fields that must be equal in claims that are coalesced."""
    return (
        _hashable(request.queues), _hashable(request.types), request.max_attempts_remaining, request.order,
        request.lease, request.ahead
    )  # fmt: skip


def _hashable(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _identity_of_task(task: NewTask) -> object:
    """Two tasks with the same key and queue are enqueued one after the other: the second request gets the task of the
    first, or a conflict."""
    return id(task) if task.key is None else (task.queue, task.key)
