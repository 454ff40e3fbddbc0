"""The desk: where single enqueues, claims and outcomes of many clients are done together, each answered on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dibs import procedures
from dibs.errors import DibsError, StoreError, StoreRefused
from dibs.model.claim import Claim, ClaimRef, ClaimRequest, Completed, Finished, Outcome, OutcomeReport, outcome_size
from dibs.model.task import NewTask, Task
from dibs.model.workflow import tasks_in
from dibs.server.batching import Batches
from dibs.store.contract import DatabaseStore
from dibs.store.operation import Operation, drive_async

T = TypeVar("T")
By = str | None
"""Whose name the history shows: what is done together is done by one."""

SMALL = 10
"""Tasks asked for in one claim that is made together with others; a larger one is a batch already."""


class Desk:
    """One for each server process."""

    def __init__(self, store: DatabaseStore, finalize_after: Callable[[Sequence[Any]], None]) -> None:
        self._store = store
        self._finalize_after = finalize_after
        self._tasks: Batches[By, NewTask, Task] = Batches(self._enqueue, _name_of_task)
        self._claims: Batches[Any, ClaimRequest, list[Claim]] = Batches(self._claim, id)
        self._reading: asyncio.Task[None] | None = None
        self._reports: Batches[By, OutcomeReport, Finished] = Batches(
            self._finish, lambda each: each[0], lambda each: outcome_size(each[1])
        )

    async def enqueue(self, task: NewTask, by: By) -> Task:
        """The stored task."""
        if not await self._validated_quickly([task]):  # others must not wait for its validation
            [stored] = await self._run(self._store.queue.enqueue([task]), by)
            return stored
        return await self._tasks.ask(by, task)

    async def claim(self, request: ClaimRequest, by: By) -> list[Claim]:
        """What could be claimed now."""
        if request.request is not None or request.count > SMALL:
            return await self._follow(procedures.claim_now(self._store, request), by)
        return await self._claims.ask((by, *_kind(request)), request)

    async def finish(self, ref: ClaimRef, outcome: Outcome, by: By) -> Finished:
        """Where the task stands now; raises what refused it."""
        added = outcome.steps if isinstance(outcome, Completed) else ()
        if added and not await self._validated_quickly(list(tasks_in(added))):
            [answer] = await self._finish(by, [(ref, outcome)])
            if isinstance(answer, Exception):
                raise answer
            return answer
        return await self._reports.ask(by, (ref, outcome))

    async def _validated_quickly(self, tasks: Sequence[NewTask]) -> bool:
        """True where others may be done together with these tasks. Requests that come while the task types are being
        read wait for that one reading."""
        quickly = self._store.validates_quickly(tasks)
        if quickly is None:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._store.read_types())
            await asyncio.shield(self._reading)
            quickly = self._store.validates_quickly(tasks)
        return bool(quickly)

    async def _enqueue(self, by: By, tasks: Sequence[NewTask]) -> Sequence[Task | Exception]:
        try:
            return await self._run(self._store.queue.enqueue(tasks), by)
        except DibsError as error:  # one of them is refused, and with it all: find out which
            if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
                raise
            if len(tasks) == 1:
                return [error]
            return [await self._enqueue_alone(by, task) for task in tasks]

    async def _enqueue_alone(self, by: By, task: NewTask) -> Task | Exception:
        """The task or what is wrong with it, also where the store gave up: those before it are stored by then."""
        try:
            [answer] = await self._enqueue(by, [task])
        except StoreError as error:
            return error
        return answer

    async def _claim(self, kind: tuple[Any, ...], requests: Sequence[ClaimRequest]) -> Sequence[list[Claim]]:
        if len(requests) == 1:
            return [await self._follow(procedures.claim_now(self._store, requests[0]), kind[0])]
        return await self._follow(procedures.claim_each(self._store, requests), kind[0])

    async def _finish(self, by: By, reports: Sequence[OutcomeReport]) -> Sequence[Finished | Exception]:
        answers = await self._run(self._store.queue.finish(reports), by)
        self._finalize_after(answers)
        return answers

    async def _run(self, operation: Operation[T], by: By) -> T:
        return await self._store.run_async(operation, by=by)

    async def _follow(self, procedure: procedures.Operations[T], by: By) -> T:
        return await drive_async(procedure, lambda operation: self._run(operation, by))


def _kind(request: ClaimRequest) -> tuple[Any, ...]:
    """What claims must have in common to be made together."""
    return (
        _hashable(request.queues), _hashable(request.types), request.max_attempts_remaining, request.order,
        request.lease, request.ahead
    )  # fmt: skip


def _hashable(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _name_of_task(task: NewTask) -> object:
    """Of two with the same key and queue the second is enqueued after the first: it gets the first one's task, or a
    conflict."""
    return id(task) if task.key is None else (task.queue, task.key)
