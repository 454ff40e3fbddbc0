"""Claim tasks: from pending to claimed, under the task's next token, for exactly one worker."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from dibs.errors import AlreadyClaimed, InvalidValue, NotClaimable, TaskNotFound
from dibs.model.checks import from_micros
from dibs.model.claim import Claim, ClaimRequest, Filters, Order
from dibs.model.task import RETRY_EXPIRED, State, Task, expiry_text
from dibs.store.operation import Mode, Operation, Rows, Statement, Statements
from dibs.store.operations.admission import Admission
from dibs.store.operations.dialect import Dialect, Holders
from dibs.store.operations.rows import ROWS_AT_ONCE, add_tasks, queue_of, read_claim, read_claims, read_task
from dibs.store.operations.upkeep import Upkeep

SWEEP_EVERY = 0.1
"""Seconds between two sweeps by claims. A claim that finds nothing always sweeps."""

SWEEPS = 20
"""The largest number of sweeps of one claim; the next claim continues."""

CHUNK = 500
"""Tasks that get their random-order numbers in one statement."""

RANDOM_ORDERS = (Order.RANDOM, Order.WEIGHTED)

SCAN_EVERY = 64
"""A filter whose tasks are not at the head of the store is scanned for with every 64th claim."""

REMEMBERED_FILTERS = 256
"""Filters that a memory of tiers holds."""

Tier = TypeVar("Tier")
"""A way to choose the tasks of a claim, in the form that an engine uses."""

FilterKey = tuple[tuple[str, ...] | None, tuple[str, ...] | None, int | None, str]

SCANNED = 512
"""Tasks that a scan reads at most, beyond eight for each requested task."""

MOST_PAIRS = 1000
"""A claim that names types and queues reads a stream for each pair, unless there are more pairs."""

NUMBER_FOR = 0.02
"""Seconds after which a transaction that writes random-order numbers ends, so that others can write."""


class Sweeper:
    """Promotes due tasks, recovers lost tasks, expires tasks and unparks tasks while claims search for tasks."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep
        self.every = SWEEP_EVERY
        self.next_at = 0.0

    @property
    def is_due(self) -> bool:
        """True if the last sweep was long enough ago."""
        return time.monotonic() >= self.next_at

    def postpone(self) -> None:
        """Begin the interval until the next sweep."""
        self.next_at = time.monotonic() + self.every

    def sweep(self) -> Statements[int]:
        """Promote, recover, expire and unpark some tasks. Returns their number."""
        self.postpone()
        promoted = yield from self._upkeep.promote_some()
        recovered = yield from self._upkeep.recover_some()
        expired = yield from self._upkeep.expire_some()
        unparked = yield from self._upkeep.unpark_some()
        return promoted + recovered + expired + unparked


class TierMemory:
    """Remembers for each filter which way of choosing tasks sufficed at the last claim.

    A claim has several ways to choose its tasks (tiers), the cheapest first; the first tier scans the head of the
    store. If the tasks at the head do not pass the filter, every claim with this filter would scan in vain: claims
    begin with the tier that sufficed last, and with the scan again after SCAN_EVERY claims. Threads may use a memory at
    the same time: a lost update costs one scan."""

    def __init__(self) -> None:
        self._last: dict[FilterKey, tuple[int, int]] = {}

    def in_turn(self, filters: Filters, tiers: Sequence[Tier]) -> Iterator[Tier]:
        """The tiers with which a claim tries to choose its tasks, one after the other. A caller that requests the next
        tier shows that the tier before did not suffice."""
        key = _filter_key(filters)
        first, claims = self._last.get(key, (0, 0))
        for place in range(first if claims % SCAN_EVERY else 0, len(tiers)):
            if place:
                self._remember(key, place, claims + 1)
            else:
                self._last.pop(key, None)
            yield tiers[place]

    def _remember(self, key: FilterKey, place: int, claims: int) -> None:
        if key not in self._last and len(self._last) >= REMEMBERED_FILTERS:
            self._last.clear()
        self._last[key] = place, claims


class Claims:
    """Claim tasks, and read the tasks that a claim would take."""

    def __init__(self, dialect: Dialect, upkeep: Upkeep, admission: Admission) -> None:
        self._dialect = dialect
        self._admission = admission
        self.sweeper = Sweeper(upkeep)

    def claim(self, request: ClaimRequest) -> Operation[list[Claim]]:
        """Claim up to `count` tasks. A claim that loses a task to another claim takes the next one. It returns fewer
        tasks only if no others are pending."""
        return Operation("claim", lambda: self.claim_rows(request), decode=read_claims, request=request)

    def claim_each(self, requests: Sequence[ClaimRequest]) -> Operation[list[list[Claim]]]:
        """Claim for several workers at once. All requests must be for the same kind of task; the first requests get
        the first tasks. One statement for all, because separate statements would compete for the same tasks."""
        _check_alike(requests)
        holders = [(each.worker_id, each.incarnation) for each in requests for _ in range(each.count)]
        whole = msgspec.structs.replace(requests[0], count=len(holders))
        return Operation(
            "claim_each",
            lambda: self.claim_rows(whole, holders=holders),
            decode=lambda rows: _distribute(requests, rows),
        )

    def claim_rows(
        self, request: ClaimRequest, *, atomic: bool = False, holders: Holders | None = None
    ) -> Statements[Rows]:
        """The statements of `claim`. Returns the rows of the claimed tasks. `atomic`: the statements are in one
        transaction."""
        if request.request is not None and (claimed := (yield from _claimed_before(request))):
            return claimed
        return (
            yield from self._dialect.claim(
                request, self.sweeper, atomic=atomic, holders=holders, admission=self._admission
            )
        )

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Operation[Claim]:
        """Claim this task, or raise the reason why not."""
        return Operation("claim_by_id", lambda: self._claim_by_id(task_id, request))

    def _claim_by_id(self, task_id: int, request: ClaimRequest) -> Statements[Claim]:
        if request.request is not None:
            for row in (yield from _claimed_before(request)):
                if row[0] == task_id:
                    return read_claim(row)
        statement = Statement("claim_by_id", {"id": task_id, **claim_params(request)}, change=True)
        rows = yield statement
        for _ in range(SWEEPS):  # a sweep may promote or recover the task
            if rows or not (yield from self.sweeper.sweep()):
                break
            rows = yield statement
        if not rows:
            rows = yield from self._admission.claim_by_id(task_id, request)
        if not rows:
            raise (yield from _why_not_claimable(task_id, request.worker_id))
        return read_claim(rows[0])

    def peek(self, filters: Filters, content: int | None = None) -> Operation[list[Task]]:
        """The tasks that a claim would take now. Advisory: another worker may claim them first. With `content`: only
        the first tasks, of so many characters at most."""
        return Operation("peek", lambda: self._peek(filters, content), mode=Mode.READ)

    def _peek(self, filters: Filters, content: int | None) -> Statements[list[Task]]:
        ids = yield from self._admission.peek(filters)
        tasks: list[Task] = []
        left = math.inf if content is None else content
        size = len(ids) if content is None else ROWS_AT_ONCE
        for start in range(0, len(ids), size or 1):
            rows = {row[0]: row for row in (yield Statement("get", {"ids": ids[start : start + size]}))}
            before = len(tasks)
            left = add_tasks(tasks, [rows[task_id] for task_id in ids[start : start + size] if task_id in rows], left)
            if len(tasks) < before + len(rows):
                break
        return tasks

    def provide_index(self, name: str) -> Operation[None]:
        """Create an index of streams, or request it from upkeep: see IndexMissing."""
        return Operation("provide_index", lambda: self._dialect.provide_index(name))

    # Random order

    def number_random_order(self, order: str) -> Operation[bool]:
        """Begin the random order: from now on tasks get their numbers when they become pending. This operation numbers
        some of the waiting tasks, and returns whether there may be more. Wakes the claims that found nothing while this
        operation locked tasks."""
        return Operation("number_random_order", lambda: self._number_random_order(order), wakes=True)

    def _number_random_order(self, order: str) -> Statements[bool]:
        until = time.monotonic() + NUMBER_FOR
        while (yield from self._dialect.number_some(order)):
            if time.monotonic() > until:
                return True
        return False


def claim_with_sweeps(take: Callable[[], Statements[Rows]], sweeper: Sweeper) -> Statements[Rows]:
    """Claim with `take`, after a sweep if it is time for one. A claim that finds nothing sweeps until it finds a task
    or nothing is left to sweep, because the tasks that a sweep moves may not pass the filters of the claim."""
    swept = (yield from sweeper.sweep()) if sweeper.is_due else None
    claims = yield from take()
    for _ in range(SWEEPS):
        if claims or swept == 0:
            break
        swept = yield from sweeper.sweep()
        if swept:
            claims = yield from take()
    return claims


def is_cut_by_attempts(filters: Filters) -> bool:
    """True if a claimable task may have too few attempts left. Each has one at least."""
    return (filters.max_attempts_remaining or 0) > 1


def pairs_of(filters: Filters) -> int | None:
    """The number of pairs of the queues and types that a claim names; None if there are more than MOST_PAIRS."""
    pairs = len(filters.queues or ()) * len(filters.types or ())
    return pairs if pairs <= MOST_PAIRS else None


def _filter_key(filters: Filters) -> FilterKey:
    queues = None if filters.queues is None else tuple(filters.queues)
    types = None if filters.types is None else tuple(filters.types)
    return queues, types, filters.max_attempts_remaining, filters.order


def claim_params(request: ClaimRequest) -> dict[str, object]:
    """The parameters that every claim statement takes."""
    return {
        "worker_id": request.worker_id,
        "incarnation": request.incarnation,
        "lease": round(request.lease * 1e6),
        "ahead": request.ahead,
        "request": request.request,
    }


def _claimed_before(request: ClaimRequest) -> Statements[Rows]:
    """The tasks that were claimed under the id of the request and are still held. Only of the queues that the request
    names: a caller that is limited to these queues must not see others by guessing an id."""
    rows = yield Statement("claims_of_request", claim_params(request))
    return [row for row in rows if request.queues is None or queue_of(row) in request.queues]


def _why_not_claimable(task_id: int, worker_id: str) -> Statements[Exception]:
    rows = yield Statement("get", {"ids": [task_id]})
    if not rows:
        return TaskNotFound(task_id)
    task = read_task(rows[0])
    if task.state is State.CLAIMED:
        # A step that represents a workflow has no lease: it is held until the workflow has ended.
        until = "" if task.lease_until is None else f" until {task.lease_until:%H:%M:%S.%f} UTC"
        if task.worker_id == worker_id:
            message = f"{worker_id} already holds task {task_id} under token {task.token}{until}."
            return AlreadyClaimed(message, task_id=task_id, worker_id=worker_id, token=task.token)
        message = f"Task {task_id} is already claimed by {task.worker_id}{until}."
        return AlreadyClaimed(message, task_id=task_id, worker_id=task.worker_id)
    if task.state is State.PENDING and task.expires_at is not None:
        [[now]] = yield Statement("clock")
        if task.expires_at <= from_micros(now):
            return NotClaimable(
                f"Task {task_id} is not claimable: {expiry_text(task)}.", task_id=task_id, state=task.state
            )
    if task.expired:
        message = f"Task {task_id} is not claimable: {expiry_text(task)}."
        return NotClaimable(message, task_id=task_id, state=task.state, hint=RETRY_EXPIRED)
    if task.state is State.PENDING:
        [[queue_at, type_at, *_]] = yield Statement("pauses_of_task", {"id": task_id})
        pauses = (("queue", task.queue, queue_at), ("type", task.type, type_at))
        held = [f"its {scope} {name!r} is paused" for scope, name, paused_at in pauses if paused_at is not None]
        message = f"Task {task_id} is not claimable: {' and '.join(held) or 'another transaction holds it'}."
        return NotClaimable(message, task_id=task_id, state=task.state, hint="Resume it first." if held else None)
    return NotClaimable(f"Task {task_id} is not claimable: it is {task.state}.", task_id=task_id, state=task.state)


def _check_alike(requests: Sequence[ClaimRequest]) -> None:
    first = requests[0]
    for each in requests:
        if each.request is not None or _kind(each) != _kind(first):
            raise InvalidValue("Only claims of the same kind, without request ids, can be combined.")


def _kind(request: ClaimRequest) -> tuple[object, ...]:
    """The fields that must be equal in claims that are combined."""
    return (
        request.queues, request.types, request.max_attempts_remaining, request.order, request.lease, request.ahead
    )  # fmt: skip


def _distribute(requests: Sequence[ClaimRequest], rows: Rows) -> list[list[Claim]]:
    """The claims of each request, as many as it requested. A worker may have sent several requests."""
    held: dict[str, deque[Claim]] = {each.worker_id: deque() for each in requests}
    for claim in read_claims(rows):
        held[claim.worker_id].append(claim)
    return [_take(held[each.worker_id], each.count) for each in requests]


def _take(claims: deque[Claim], count: int) -> list[Claim]:
    return [claims.popleft() for _ in range(min(count, len(claims)))]
