"""Procedures: sequences of operations and waits, written once for the sync and the async client."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from dibs import batch_size
from dibs.errors import (
    DibsError,
    FinalizationLost,
    StoreError,
    StoreRefused,
    TaskNotFound,
    WaitTimeout,
    WorkflowNotFound,
)
from dibs.model.checks import check_integer
from dibs.model.claim import Claim, ClaimRequest, FinishResult, OutcomeReport
from dibs.model.finalization import DEFAULT_FINALIZATION_LEASE, FinalizationAction, FinalizationClaim, Finalized
from dibs.model.history import HistoryEntry
from dibs.model.schedule import DueSchedule
from dibs.model.search import (
    BULK_BATCH,
    MAX_SEARCH_PAGE,
    REDRIVE_BATCH,
    BulkResult,
    DeadFilter,
    FoundTasks,
    TaskFilter,
    TaskMatch,
    TaskPage,
    TaskSearch,
    check_not_everything,
)
from dibs.model.task import CANCELLABLE, RETRYABLE, State, Task
from dibs.model.upkeep import BATCH, Pruned, PrunePosition, QueuesToPark, Upkept
from dibs.model.workflow import Workflow
from dibs.store.contract import DatabaseStore, NumbersMissing, ServedStore, Store
from dibs.store.operation import Operation

T = TypeVar("T")
Waited = TypeVar("Waited", Task, Workflow)

FINALIZATION_LEASE = round(DEFAULT_FINALIZATION_LEASE * 1e6)

POLL_INTERVAL = 0.25
"""Seconds after which a waiting procedure polls without a wake-up: a wake-up can be lost, and tasks become due."""

LONG_POLL = 20.0
"""Seconds for which one request waits on the server: proxies close connections that are silent for longer."""

MAX_BATCHES = 200
"""The largest number of batches of each kind in one call of upkeep; the next call continues. A pruning by hand has no
limit."""

PARK_FOR = 1.0
"""Seconds for which one round of upkeep parks and unparks the tasks of queues."""

MAX_IDLE_BATCHES = 50
"""Batches that delete nothing, after which a round of a worker's pruning ends; the next round continues from there. A
batch that deletes a part of its limit counts as a part. So a process reads at most 250,000 tasks a minute that rules
keep (see STRETCH in store/operations/upkeep.py), and deletes as many tasks a minute as it does without rules."""

PAGE = 1000

PROGRESS_INTERVAL = 0.25
"""Seconds of bulk work after which its progress is reported."""

OnProgress = Callable[[int], None]
"""Receives the number of tasks that were changed since the last call."""


@dataclass(slots=True)
class Pruning:
    """The pruning of a process, in rounds: the position of its pass over the finished tasks."""

    position: PrunePosition | None = None


@dataclass(frozen=True, slots=True)
class WaitForChange:
    """Wait for a change of the store since `seen`, for up to `timeout` seconds."""

    seen: int
    timeout: float


Procedure = Generator[Operation[Any] | WaitForChange, Any, T]
Operations = Generator[Operation[Any], Any, T]
"""A procedure that never waits."""


def claim(store: Store, request: ClaimRequest, wait: float) -> Procedure[list[Claim]]:
    """Claim, and wait for up to `wait` seconds for a task."""
    if store.served:
        return (yield from _claim_served(store, request, wait))
    claims = yield from claim_now(store, request)
    deadline = time.monotonic() + wait
    while not claims and (left := deadline - time.monotonic()) > 0:
        # read before the claim, so that a task enqueued meanwhile ends the wait at once
        seen = store.wakeups.generation
        claims = yield from claim_now(store, request)
        if not claims:
            yield WaitForChange(seen, min(left, POLL_INTERVAL))
    return claims


def claim_now(store: Store, request: ClaimRequest) -> Operations[list[Claim]]:
    """Claim without waiting."""
    return _with_numbers(store, store.queue.claim(request))


def claim_each(store: DatabaseStore, requests: Sequence[ClaimRequest]) -> Operations[list[list[Claim]]]:
    """Claim for several workers at once, without waiting."""
    return _with_numbers(store, store.queue.claim_each(requests))


def exchange(
    store: Store, reports: Sequence[OutcomeReport], request: ClaimRequest
) -> Operations[tuple[list[FinishResult], list[Claim]]]:
    """Write outcomes and claim, both or neither."""
    return _with_numbers(store, store.queue.exchange(reports, request))


def _with_numbers(store: Store, operation: Operation[T]) -> Operations[T]:
    """Run an operation that claims. If random-order numbers are missing, it has changed nothing: number the waiting
    tasks, in short transactions, and begin again."""
    while True:
        try:
            result: T = yield operation
            return result
        except NumbersMissing as missing:
            numbering = cast("DatabaseStore", store).queue.number_random_order(missing.order)
            while (yield numbering):
                pass


def _claim_served(store: Store, request: ClaimRequest, wait: float) -> Procedure[list[Claim]]:
    """Claim with long polling: the server waits for a task."""
    deadline = time.monotonic() + wait
    while True:
        left = max(0.0, deadline - time.monotonic())
        claims: list[Claim] = yield store.queue.claim(msgspec.structs.replace(request, wait=min(left, LONG_POLL)))
        if claims or left <= LONG_POLL:
            return claims


def wait(store: Store, task_id: int, timeout: float | None) -> Procedure[Task]:
    """Wait until the task is finished, and return it."""
    task = yield from _until_finished(store, store.tasks.get(task_id), timeout)
    if task is None:
        raise TaskNotFound(task_id)
    if not task.finished:
        message = f"Task {task_id} is still {task.state} after {timeout} seconds."
        raise WaitTimeout(message, hint="explain() returns why a task is not running.")
    return task


def wait_workflow(store: Store, workflow_id: int, timeout: float | None) -> Procedure[Workflow]:
    """Wait until the workflow has ended, and return it."""
    workflow = yield from _until_finished(store, store.workflows.get_workflow(workflow_id), timeout)
    if workflow is None:
        raise WorkflowNotFound(workflow_id)
    if not workflow.finished:
        message = f"Workflow {workflow_id} is still {workflow.state} after {timeout} seconds."
        raise WaitTimeout(message, hint="steps() returns the states of its steps, explain() why a step is not running.")
    return workflow


def _until_finished(store: Store, read: Operation[Waited | None], timeout: float | None) -> Procedure[Waited | None]:
    """Read the task or workflow until it is finished or the timeout has passed; None if it does not exist."""
    deadline = None if timeout is None else time.monotonic() + timeout
    seen = 0
    while True:
        found: Waited | None = yield read
        if found is None or found.finished or (deadline is not None and time.monotonic() >= deadline):
            return found
        left = POLL_INTERVAL if deadline is None else deadline - time.monotonic()
        yield WaitForChange(seen, min(left, POLL_INTERVAL))
        seen = store.wakeups.generation


def redrive(store: Store, which: DeadFilter, limit: int | None) -> Procedure[int]:
    """Retry the matching tasks of the dead letter, in batches."""
    if limit is not None:
        check_integer(limit, "limit", 1, 2**31 - 1)
    done = 0
    while limit is None or done < limit:
        batch = REDRIVE_BATCH if limit is None else min(REDRIVE_BATCH, limit - done)
        moved: int = yield store.tasks.redrive_some(which, batch)
        done += moved
        if moved < batch:
            break
    return done


def discard(store: Store, ids: Sequence[int] | None, which: DeadFilter, limit: int | None) -> Procedure[int]:
    """Discard the matching tasks of the dead letter, in batches. `ids`: only of these tasks."""
    if limit is not None:
        check_integer(limit, "limit", 1, 2**31 - 1)
    if ids is not None:
        return (yield from _discard_named(store, ids, which, limit))
    done = 0
    while limit is None or done < limit:
        batch = REDRIVE_BATCH if limit is None else min(REDRIVE_BATCH, limit - done)
        moved: int = yield store.tasks.discard_some(which, batch)
        done += moved
        if moved < batch:
            break
    return done


def _discard_named(store: Store, ids: Sequence[int], which: DeadFilter, limit: int | None) -> Procedure[int]:
    wanted = sorted({check_integer(each, "A task's id", 0, 2**63 - 1) for each in ids})
    done = 0
    while wanted and (limit is None or done < limit):
        size = BULK_BATCH if limit is None else min(BULK_BATCH, limit - done)
        some, wanted = wanted[:size], wanted[size:]
        done += yield store.tasks.discard_many(some, None, which)
    return done


def list_tasks(store: Store, which: TaskFilter) -> Procedure[list[Task]]:
    """A page of tasks; with filters that have no index, in as many searches as needed."""
    if which.needs_search and not which.dead:
        return (yield from find(store, which, which.cursor, which.limit)).tasks
    tasks: list[Task] = []
    while True:
        page: TaskPage = yield store.tasks.list_tasks(which)
        tasks += page.tasks
        if page.cursor is None or len(page.tasks) == which.limit:
            return tasks
        which = msgspec.structs.replace(which, cursor=page.cursor, limit=which.limit - len(page.tasks))


def find(
    store: Store, which: TaskMatch, cursor: int | None, count: int, enough: float = math.inf
) -> Procedure[TaskPage]:
    """Find up to `count` matching tasks, newest first. With `enough`, it ends after so many seconds or when the tasks
    have much content, with the cursor to continue at."""
    began, looked, tasks, span = time.monotonic(), 0, list[Task](), batch_size.first_span(which.text)
    while True:
        wanted = min(count - len(tasks), MAX_SEARCH_PAGE)
        page: TaskPage = yield store.tasks.find(TaskSearch(**which.filters(), cursor=cursor, limit=wanted), span)
        tasks, cursor, looked = tasks + page.tasks, page.cursor, looked + page.looked
        spent = time.monotonic() - began
        if cursor is None or len(tasks) == count or spent >= enough or (page.cut and enough < math.inf):
            return TaskPage(tasks, cursor, looked)
        span = batch_size.next_span(span, looked, spent, enough - spent)


def cancel_matching(store: Store, which: TaskMatch, note: OnProgress | None) -> Procedure[int]:
    """Cancel all matching tasks, in batches. Returns the number of tasks that were cancelled or are stopping."""
    check_not_everything(which)
    if store.served:
        served = cast("ServedStore", store)
        return (yield from _change_all(lambda cursor: _run_one(served.tasks.cancel_matching(which, cursor)), note))
    database = cast("DatabaseStore", store)
    return (yield from _change_all(lambda cursor: cancel_some(database, which, cursor, PROGRESS_INTERVAL), note))


def retry_matching(store: Store, which: TaskMatch, note: OnProgress | None) -> Procedure[int]:
    """Retry all matching tasks, in batches. Returns the number of retried tasks."""
    check_not_everything(which)
    if store.served:
        served = cast("ServedStore", store)
        return (yield from _change_all(lambda cursor: _run_one(served.tasks.retry_matching(which, cursor)), note))
    database = cast("DatabaseStore", store)
    return (yield from _change_all(lambda cursor: retry_some(database, which, cursor, PROGRESS_INTERVAL), note))


def cancel_some(store: DatabaseStore, which: TaskMatch, cursor: int | None, enough: float) -> Procedure[BulkResult]:
    """Cancel the next matching tasks, for about `enough` seconds."""
    change = partial(store.tasks.cancel_many, only=which.queues, state=which.state)
    return (yield from _change_some(store, which, cursor, BulkChange(change, CANCELLABLE, enough)))


def retry_some(store: DatabaseStore, which: TaskMatch, cursor: int | None, enough: float) -> Procedure[BulkResult]:
    """Retry the next matching tasks, for about `enough` seconds."""
    change = partial(store.tasks.retry_many, only=which.queues, state=which.state)
    return (yield from _change_some(store, which, cursor, BulkChange(change, RETRYABLE, enough)))


@dataclass(frozen=True, slots=True)
class BulkChange:
    """An operation on many tasks in these states, and the seconds for which to repeat it."""

    change: Callable[[list[int]], Operation[int]]
    states: frozenset[State]
    seconds: float


def _change_some(store: DatabaseStore, which: TaskMatch, cursor: int | None, work: BulkChange) -> Procedure[BulkResult]:
    """Search for a batch of tasks, then change them, again and again.

    The search is a separate operation, so that no lock is held while many tasks are read. A batch starts below the last
    task of the previous one, so that no task is changed twice."""
    began, search_time, moved, looked = time.monotonic(), 0.0, 0, 0
    span, batches = batch_size.first_span(which.text), batch_size.BatchSize()
    while True:
        start = time.monotonic()
        found: FoundTasks = yield store.tasks.search(
            TaskSearch(**which.filters(), cursor=cursor, limit=batches.size), span
        )
        cursor, looked, search_time = found.cursor, looked + found.looked, search_time + time.monotonic() - start
        if ids := [task.id for task in found.tasks if task.state in work.states]:
            start = time.monotonic()
            moved += yield work.change(ids)
            batches.took(time.monotonic() - start)
        if cursor is None or time.monotonic() - began >= work.seconds:
            return BulkResult(moved, cursor)
        span = batch_size.next_span(span, looked, search_time, batch_size.READ_TIME)


def _change_all(some: Callable[[int | None], Procedure[BulkResult]], note: OnProgress | None) -> Procedure[int]:
    moved, cursor = 0, None
    while True:
        batch = yield from some(cursor)
        moved, cursor = moved + batch.moved, batch.cursor
        if note is not None:
            note(batch.moved)
        if cursor is None:
            return moved


def _run_one(operation: Operation[BulkResult]) -> Procedure[BulkResult]:
    moved: BulkResult = yield operation
    return moved


def upkeep(store: Store, processor: str) -> Procedure[Upkept]:
    """Tick, promote, recover, expire, finalize, mend and prune, in batches, until nothing is left or MAX_BATCHES is
    reached."""
    ticked = yield from tick(store)
    promoted, recovered, expired, finalized = yield from run_urgent_upkeep(store, processor)
    pruned, history, workers, mended = yield from run_cleanup(store)
    if mended:
        finalized += yield from finalize_due(store, processor)
    return Upkept(
        promoted=promoted,
        recovered=recovered,
        pruned=pruned,
        history_pruned=history,
        workers_pruned=workers,
        ticked=ticked,
        expired=expired,
        finalized=finalized,
        mended=mended,
    )


def run_urgent_upkeep(store: Store, processor: str) -> Procedure[tuple[int, int, int, int]]:
    """The urgent half of upkeep: promote, recover, expire and finalize. Returns the number of each."""
    promoted = yield from _until_done(store.upkeep.promote())
    recovered = yield from _until_done(store.upkeep.recover())
    yield from park_queues(store)
    expired = yield from _until_done(store.upkeep.expire_workflows(), 1)
    finalized = yield from finalize_due(store, processor)
    return promoted, recovered, expired, finalized


def park_queues(store: Store) -> Procedure[int]:
    """Park the tasks of paused queues and unpark those of resumed queues, for about PARK_FOR seconds. Returns their
    number. The next round continues. A server does this by itself."""
    if store.served:
        return 0
    upkeep, until, moved = cast("DatabaseStore", store).upkeep, time.monotonic() + PARK_FOR, 0
    while True:
        queues: QueuesToPark = yield upkeep.queues_to_park()
        for queue in queues.resumed:
            moved += yield upkeep.unpark(queue)
        for queue in queues.paused:
            moved += yield upkeep.park(queue)
        if not (queues.paused or queues.resumed) or time.monotonic() > until:
            return moved


def run_cleanup(store: Store, pruning: Pruning | None = None) -> Procedure[tuple[int, int, int, int]]:
    """The other half of upkeep: mend, and prune tasks, history and workers. Returns the number of each.

    With a `pruning`, only one round of it. Mending comes first: a step must not be deleted before its workflow has
    counted it.
    """
    mended = yield from _until_done(store.upkeep.mend_workflows(), 1)
    pruned = yield from _prune_all(store) if pruning is None else _prune_some(store, pruning)
    history = yield from _until_done(store.upkeep.prune_history())
    workers: int = yield store.upkeep.prune_workers()
    if not store.served:
        yield cast("DatabaseStore", store).upkeep.end_random_orders()
    return pruned, history, workers, mended


def _prune_all(store: Store) -> Procedure[int]:
    """Prune in a complete pass, from the oldest finished task to the newest that can be past its retention."""
    done: Pruned = yield store.upkeep.prune()
    total = done.count
    while done.next is not None:
        done = yield store.upkeep.prune(after=done.next)
        total += done.count
    return total


def _prune_some(store: Store, pruning: Pruning) -> Procedure[int]:
    """Prune in one round: the part of a pass that takes a fraction of a second if there is little to delete."""
    total, idle, position = 0, 0.0, pruning.position
    for _ in range(MAX_BATCHES):
        done: Pruned = yield store.upkeep.prune(after=position)
        total, position = total + done.count, done.next
        idle += max(0.0, 1 - done.count / BATCH)
        if position is None or idle >= MAX_IDLE_BATCHES:
            break
    pruning.position = None if position is None else position.resumed()
    return total


def finalize_due(store: Store, processor: str) -> Procedure[int]:
    """Finalize the due workflows that no processor has claimed. Returns how many ended or started their finalizer.

    A workflow that cannot be finalized does not delay the others: its error is raised at the end.
    """
    done = 0
    seen: set[int] = set()
    failed: DibsError | None = None
    while ids := [each for each in (yield store.finalization.due_finalizations()) if each not in seen]:
        seen.update(ids)
        for workflow_id in ids:
            try:
                finalized = yield from _finalize(store, workflow_id, processor)
            except DibsError as error:
                if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
                    raise
                failed = error
            else:
                done += finalized is not None and finalized.action is not FinalizationAction.RECHECK_LATER
    if failed is not None:
        raise failed
    return done


def finalize_one(store: Store, workflow_id: int, processor: str) -> Procedure[Finalized | None]:
    """Claim the finalization of the workflow and finalize it; None if another processor holds the claim or it is done.

    If the workflow was the last step of an outer workflow, the outer workflow is finalized as well.
    """
    finalized = yield from _finalize(store, workflow_id, processor)
    for outer in () if finalized is None else finalized.due:
        yield from finalize_one(store, outer, processor)
    return finalized


def _finalize(store: Store, workflow_id: int, processor: str) -> Procedure[Finalized | None]:
    claim: FinalizationClaim = yield store.finalization.claim_finalization(workflow_id, processor, FINALIZATION_LEASE)
    if not claim.claimed or claim.token is None:
        return None
    try:
        finalized: Finalized = yield store.finalization.finalize(workflow_id, processor, claim.token)
    except FinalizationLost:  # another thread of this processor has finalized it, or another processor has claimed it
        return None
    except Exception:
        with suppress(DibsError):  # the first error is raised; the claim expires by itself
            yield store.finalization.release_finalization(workflow_id, processor, claim.token)
        raise
    return finalized


def tick(store: Store) -> Procedure[int]:
    """Enqueue the tasks of all due schedules. Returns the number of tasks."""
    due: list[DueSchedule] = yield store.schedules.due_schedules()
    ticked = 0
    for each in due:
        ticked += yield store.schedules.tick_schedule(each)
    return ticked


def prune(store: Store) -> Procedure[int]:
    """Prune finished tasks, ended workflows and old history. Returns the number of deleted rows."""
    tasks = yield from _prune_all(store)
    return tasks + (yield from _until_done(store.upkeep.prune_history()))


def all_history(store: Store) -> Procedure[list[HistoryEntry]]:
    """Read the whole history, in pages."""
    entries: list[HistoryEntry] = []
    while True:
        page: list[HistoryEntry] = yield store.history.history_after(entries[-1].id if entries else 0, PAGE)
        entries += page
        if len(page) < PAGE:
            return entries


def _until_done(operation: Operation[int], batch: int = BATCH) -> Procedure[int]:
    """Repeat the operation until it changes less than a batch."""
    total = 0
    for _ in range(MAX_BATCHES):
        moved: int = yield operation
        total += moved
        if moved < batch:
            break
    return total
