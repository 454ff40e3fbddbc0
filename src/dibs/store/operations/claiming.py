"""Claim: pending to claimed, the task's next token to exactly one worker."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

import msgspec

from dibs.errors import AlreadyClaimed, InvalidValue, NotClaimable, TaskNotFound
from dibs.model.claim import Claim, ClaimRequest, Filters
from dibs.model.task import State, Task
from dibs.store.operation import Operation, Rows, Statement, Steps
from dibs.store.operations.rows import queue_of, read_claim, read_claims, read_task
from dibs.store.operations.tending import Tending

SWEEP_EVERY = 0.1
"""Seconds between two sweeps that claims do in passing. A claim that finds nothing always sweeps."""

Hands = Sequence[tuple[str, str | None]]
"""For whom each of some tasks is: worker and incarnation."""

SWEEPS = 20
"""Sweeps that one claim does at most before it comes back empty; the next claim goes on."""


class Claiming(Tending, ABC):
    """Taking tasks out, and looking at what would be taken."""

    sweep_every = SWEEP_EVERY
    next_sweep = 0.0

    @abstractmethod
    def take(self, request: ClaimRequest, atomic: bool, hands: Hands | None = None) -> Steps[Rows]:
        """Claim up to `count` pending tasks that pass the filters; a row of each, in the order asked for. `atomic`: all
        statements are in one transaction, which an error of any of them undoes. `hands`: for whom each task is, instead
        of all for the worker of the request."""

    @abstractmethod
    def pick(self, filters: Filters) -> Steps[list[int]]:
        """The ids that a claim would take now, best first."""

    def claim(self, request: ClaimRequest) -> Operation[list[Claim]]:
        """Claim up to `count` tasks. A loser of a race gets the next task; fewer only if no others are pending."""
        return Operation("claim", lambda: self._claim(request), read=read_claims, about=request)

    def claim_each(self, requests: Sequence[ClaimRequest]) -> Operation[list[list[Claim]]]:
        """Claim for several workers at once, who must all ask for the same kind of task; those who come first in the
        list get the first tasks. One statement instead of one each: they would compete for the same tasks."""
        _check_alike(requests)
        hands = [(each.worker_id, each.incarnation) for each in requests for _ in range(each.count)]
        whole = msgspec.structs.replace(requests[0], count=len(hands))
        return Operation("claim_each", lambda: self._claim(whole, hands=hands), read=lambda rows: _deal(requests, rows))

    def _claim(self, request: ClaimRequest, atomic: bool = False, hands: Hands | None = None) -> Steps[Rows]:
        if request.request is not None and (asked := (yield from self._asked(request))):
            return asked
        return (yield from self.sweep_and_take(request, atomic, hands))

    def sweep_and_take(self, request: ClaimRequest, atomic: bool, hands: Hands | None = None) -> Steps[Rows]:
        """`take`, with what is due and what its worker has lost among the pending tasks, if it is time for a sweep."""
        swept = (yield from self.sweep()) if time.monotonic() >= self.next_sweep else None
        claims = yield from self.take(request, atomic, hands)
        for _ in range(SWEEPS):  # what a sweep moves may be for others: go on while there is something to move
            if claims or swept == 0:
                break
            swept = yield from self.sweep()
            if swept:
                claims = yield from self.take(request, atomic, hands)
        return claims

    def _asked(self, request: ClaimRequest) -> Steps[Rows]:
        """What was claimed under the request's name and is still held. Only of the queues that it names: whoever may
        see no others must not be shown them because it guessed a name."""
        rows = yield Statement("claims_of_request", claim_params(request))
        return [row for row in rows if request.queues is None or queue_of(row) in request.queues]

    def sweep(self) -> Steps[int]:
        """Promote and recover some; how many."""
        self.next_sweep = time.monotonic() + self.sweep_every
        promoted = yield from self.promote_some()
        recovered = yield from self.recover_some()
        return promoted + recovered

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Operation[Claim]:
        """Claim this task, or say why not."""
        return Operation("claim_by_id", lambda: self._claim_by_id(task_id, request))

    def _claim_by_id(self, task_id: int, request: ClaimRequest) -> Steps[Claim]:
        if request.request is not None:
            for row in (yield from self._asked(request)):
                if row[0] == task_id:
                    return read_claim(row)
        statement = Statement("claim_by_id", {"id": task_id, **claim_params(request)}, change=True)
        rows = yield statement
        for _ in range(SWEEPS):  # it may have been due, or its worker dead
            if rows or not (yield from self.sweep()):
                break
            rows = yield statement
        if not rows:
            raise (yield from self._why_not_claimable(task_id, request.worker_id))
        return read_claim(rows[0])

    def _why_not_claimable(self, task_id: int, worker_id: str) -> Steps[Exception]:
        rows = yield Statement("get", {"ids": [task_id]})
        if not rows:
            return TaskNotFound(task_id)
        task = read_task(rows[0])
        if task.state is State.CLAIMED:
            # A step that stands for a workflow has no lease: it is held until the workflow has ended.
            until = "" if task.lease_until is None else f" until {task.lease_until:%H:%M:%S.%f} UTC"
            if task.worker_id == worker_id:
                message = f"{worker_id} already holds task {task_id} under token {task.token}{until}."
                return AlreadyClaimed(message, task_id=task_id, worker_id=worker_id, token=task.token)
            message = f"Task {task_id} is already claimed by {task.worker_id}{until}."
            return AlreadyClaimed(message, task_id=task_id, worker_id=task.worker_id)
        if task.state is State.PENDING:
            message = f"Task {task_id} is not claimable: its queue {task.queue!r} is paused."
            return NotClaimable(message, task_id=task_id, state=task.state, hint="Resume the queue first.")
        return NotClaimable(f"Task {task_id} is not claimable: it is {task.state}.", task_id=task_id, state=task.state)

    def peek(self, filters: Filters) -> Operation[list[Task]]:
        """What a claim would take next. Advisory: it may be gone by the time you ask for it."""
        return Operation("peek", lambda: self._peek(filters), writes=False)

    def _peek(self, filters: Filters) -> Steps[list[Task]]:
        ids = yield from self.pick(filters)
        rows = yield Statement("get", {"ids": ids})
        tasks = {row[0]: read_task(row) for row in rows}
        return [tasks[task_id] for task_id in ids if task_id in tasks]


def claim_params(request: ClaimRequest) -> dict[str, object]:
    """The parameters that every claim statement takes."""
    return {
        "worker_id": request.worker_id,
        "incarnation": request.incarnation,
        "lease": round(request.lease * 1e6),
        "ahead": request.ahead,
        "request": request.request,
    }


def _check_alike(requests: Sequence[ClaimRequest]) -> None:
    first = requests[0]
    for each in requests:
        if each.request is not None or _kind(each) != _kind(first):
            raise InvalidValue("Only claims of the same kind, without request ids, can be made together.")


def _kind(request: ClaimRequest) -> tuple[object, ...]:
    """What must be the same in claims that are made together."""
    return (
        request.queues, request.types, request.max_attempts_remaining, request.order, request.lease, request.ahead
    )  # fmt: skip


def _deal(requests: Sequence[ClaimRequest], rows: Rows) -> list[list[Claim]]:
    """To each request as many claims of its worker as it asked for; a worker may have asked several times."""
    held: dict[str, deque[Claim]] = {each.worker_id: deque() for each in requests}
    for claim in read_claims(rows):
        held[claim.worker_id].append(claim)
    return [_some(held[each.worker_id], each.count) for each in requests]


def _some(claims: deque[Claim], count: int) -> list[Claim]:
    return [claims.popleft() for _ in range(min(count, len(claims)))]
