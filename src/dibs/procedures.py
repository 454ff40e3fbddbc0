"""Procedures: sequences of operations and waits, written once for the sync and the async client."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from dibs import batch_size
from dibs.errors import (
    DibsError,
    FinalizationLost,
    ScheduleNotFound,
    StoreError,
    StoreRefused,
    TaskNotFound,
    WaitTimeout,
    WorkflowNotFound,
)
from dibs.model.change import TaskChange, check_for_many
from dibs.model.checks import check_integer, deadline_after
from dibs.model.claim import Claim, ClaimRequest, FinishResult, OutcomeReport
from dibs.model.declaration import Declarations, StoredDeclarations
from dibs.model.finalization import DEFAULT_FINALIZATION_LEASE, FinalizationAction, FinalizationClaim, Finalized
from dibs.model.history import HistoryEntry
from dibs.model.limit import (
    WITHOUT_WAITING,
    NewQueueSettings,
    NewTypeSettings,
    QueueSettings,
    Settled,
    TypeSettings,
)
from dibs.model.registry import DeclaredSchema, batches_of_schemas
from dibs.model.schedule import DueSchedule, NewSchedule
from dibs.model.search import (
    BULK_BATCH,
    MAX_SEARCH_PAGE,
    MAX_STATES,
    REDRIVE_BATCH,
    BulkResult,
    DeadFilter,
    FoundTasks,
    TaskFilter,
    TaskMatch,
    TaskPage,
    TasksById,
    TaskSearch,
    check_not_everything,
)
from dibs.model.task import CANCELLABLE, RETRYABLE, WAITING, State, Task
from dibs.model.upkeep import BATCH, PausesToPark, Pruned, PrunePosition, Upkept
from dibs.model.workflow import FINALIZER_NAME, Step, Workflow, WorkflowState
from dibs.store.contract import DatabaseStore, IndexMissing, NumbersMissing, ServedStore, Store
from dibs.store.operation import Operation

if TYPE_CHECKING:
    from dibs.many.watch import Watch
    from dibs.workflow.task_data import DecodeOf

T = TypeVar("T")
Waited = TypeVar("Waited", Task, Workflow)

FINALIZATION_LEASE = round(DEFAULT_FINALIZATION_LEASE * 1e6)

POLL_INTERVAL = 0.25
"""Seconds after which a waiting procedure polls without a wake-up: a wake-up can be lost, and tasks become due."""

COARSE_WAIT = 0.05
"""The shortest wait for a due time for a claimer whose last waits for such times were in vain."""

EXACT_WAIT = 0.001
"""The same for other claimers. A rate does not catch up on starts that came late, so they must not be late."""

EXACT_WAITS = 2
"""Waits in vain after which a claimer becomes coarse."""

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

RESTS = 4.0
"""How much longer than it reads a wait for many tasks rests."""

SERVED_REST = 1.0
"""Seconds of the longest rest between two requests of a wait for many tasks."""

OPEN_TRANSACTIONS = 60.0
"""Seconds for which a change of a setting waits for transactions that may have enqueued tasks before it."""

PROGRESS_INTERVAL = 0.25
"""Seconds of bulk work after which its progress is reported."""

OnProgress = Callable[[int], None]
"""Receives the number of tasks that were changed since the last call."""


class Pruning(msgspec.Struct):
    """The pruning of a process, in rounds: the position of its pass over the finished tasks."""

    position: PrunePosition | None = None


class DueWaits:
    """How long a claimer that found nothing waits for the next time at which a task becomes due or a rate opens.

    With many claimers, one gets the task and the others wait in vain. So a claimer waits exactly only as long as it
    finds tasks: the one that found the last task takes the next one in time, and the others wait `coarse` seconds at
    least, although each start closes the rate again."""

    def __init__(self, coarse: float | None = None) -> None:
        self._coarse = COARSE_WAIT if coarse is None else coarse
        self._in_vain = 0
        self._waited = False

    def seconds(self, due: float | None, longest: float) -> float:
        """The wait before the next claim. `due`: seconds until the next due time. 0: something is overdue that this
        claimer cannot claim."""
        self._waited = due is not None and due < longest
        if due is None:
            return longest
        return min(longest, max(due, EXACT_WAIT if due and self._in_vain < EXACT_WAITS else self._coarse))

    def claimed(self, found: bool) -> None:
        """Note the result of a claim. A claim after a wake-up does not count as a wait."""
        if found:
            self._in_vain = 0
        elif self._waited:
            self._in_vain += 1
        self._waited = False

    def woken(self) -> None:
        """Note that a wake-up ended the wait."""
        self._waited = False


class WaitForChange(msgspec.Struct, frozen=True):
    """Wait for a change of the store since `seen`, for up to `timeout` seconds."""

    seen: int
    timeout: float


class PauseFor(msgspec.Struct, frozen=True):
    """Do nothing for so many seconds."""

    seconds: float


Procedure = Generator[Operation[Any] | WaitForChange | PauseFor, Any, T]
Operations = Generator[Operation[Any], Any, T]
"""A procedure that never waits."""


def claim(store: Store, request: ClaimRequest, wait: float) -> Procedure[list[Claim]]:
    """Claim, and wait for up to `wait` seconds for a task."""
    if store.served:
        return (yield from _claim_served(store, request, wait))
    claims = yield from claim_now(store, request)
    deadline, waits = time.monotonic() + wait, DueWaits()
    while not claims and (left := deadline - time.monotonic()) > 0:
        # read before the claim, so that a task enqueued meanwhile ends the wait at once
        seen = store.wakeups.generation
        claims = yield from claim_now(store, request)
        waits.claimed(bool(claims))
        if not claims:
            yield WaitForChange(seen, min(left, (yield from until_next_poll(cast("DatabaseStore", store), waits))))
    return claims


def until_next_poll(store: DatabaseStore, waits: DueWaits) -> Operations[float]:
    """Seconds after which a waiting claim polls: POLL_INTERVAL, or less if a rate opens before. A process that has seen
    no rate does not ask for that."""
    if not store.limits.knows_rates:
        return POLL_INTERVAL
    due: float | None = yield store.upkeep.next_due()
    return waits.seconds(due, POLL_INTERVAL)


def claim_now(store: Store, request: ClaimRequest) -> Operations[list[Claim]]:
    """Claim without waiting."""
    return _prepared(store, store.queue.claim(request))


def claim_each(store: DatabaseStore, requests: Sequence[ClaimRequest]) -> Operations[list[list[Claim]]]:
    """Claim for several workers at once, without waiting."""
    return _prepared(store, store.queue.claim_each(requests))


def exchange(
    store: Store, reports: Sequence[OutcomeReport], request: ClaimRequest
) -> Operations[tuple[list[FinishResult], list[Claim]]]:
    """Write outcomes and claim, both or neither."""
    return _prepared(store, store.queue.exchange(reports, request))


def _prepared(store: Store, operation: Operation[T]) -> Operations[T]:
    """Run an operation that claims. If random-order numbers or an index are missing, it has changed nothing: number the
    waiting tasks, in short transactions, or provide the index, and begin again."""
    while True:
        try:
            result: T = yield operation
            return result
        except NumbersMissing as missing:
            numbering = cast("DatabaseStore", store).queue.number_random_order(missing.order)
            while (yield numbering):
                pass
        except IndexMissing as missing:
            yield cast("DatabaseStore", store).queue.provide_index(missing.index)


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


def wait_for_some(store: Store, watch: Watch, deadline: float | None) -> Procedure[dict[int, str]]:
    """Wait until more of the tasks have ended. Returns them with their final states ("pruned" for one that does not
    exist); none if all had ended before, or if the deadline (by `time.monotonic`) has passed."""
    while watch.open:
        if watch.rest:
            yield PauseFor(min(_left(deadline), watch.rest))
        seen, began = store.wakeups.generation, time.monotonic()
        ended = yield from _read_ends(store, watch)
        watch.rounds += 1
        watch.rest = _rest(store, time.monotonic() - began, watch.rounds)
        if ended or _left(deadline) <= 0:
            return ended
        yield WaitForChange(seen, min(_left(deadline), POLL_INTERVAL))
    return {}


def _left(deadline: float | None) -> float:
    return math.inf if deadline is None else max(deadline - time.monotonic(), 0.0)


def _read_ends(store: Store, watch: Watch) -> Operations[dict[int, str]]:
    """Read the states of the first open tasks, as long as some have ended, and of one further part in turn."""
    ended: dict[int, str] = {}
    start = 0
    while part := watch.part(start):
        news = watch.note(start, (yield store.tasks.states(part)))
        ended |= news
        start += len(part) - len(news)
        if not news:
            break
    if (turn := watch.part_in_turn(start)) is not None:
        ended |= watch.note(turn, (yield store.tasks.states(watch.part(turn))))
    return ended


def _rest(store: Store, took: float, rounds: int) -> float:
    """Seconds to rest after a round: a wait that is woken by every change must not read all the time. A server counts
    requests: the standard limit is 100 a minute."""
    served = min(SERVED_REST, 0.01 * 2 ** min(rounds, 10)) if store.served else 0.0
    return max(served, RESTS * took)


def count_states(store: Store, ids: Sequence[int]) -> Operations[dict[str, int]]:
    """How many of the tasks are in each state; "pruned" for tasks that do not exist."""
    counts: Counter[str] = Counter()
    ids = list(dict.fromkeys(ids))  # items with the same key are one task
    for start in range(0, len(ids), MAX_STATES):
        part = ids[start : start + MAX_STATES]
        states: dict[int, State] = yield store.tasks.states(part)
        counts.update(str(state) for state in states.values())
        counts["pruned"] += len(part) - len(states)
    return {state: counts[state] for state in (*map(str, State), "pruned") if counts[state]}


def read_many(store: Store, ids: Sequence[int]) -> Operations[tuple[list[Task], Sequence[int]]]:
    """The first of these tasks that exist, a page of them, and the ids that are left to read."""
    page, rest = ids[:PAGE], ids[PAGE:]
    found: TasksById = yield store.tasks.get_many(page)
    return found.tasks, [*found.left, *rest]


def workflow_result(store: Store, workflow_id: int, timeout: float | None, decode_of: DecodeOf) -> Procedure[Any]:
    """Wait for the workflow. Returns the result of its finalizer, or those of its steps by name, as
    plain JSON. Raises WorkflowFailed, or what `decode_of` raises."""
    from dibs.model.execution import Execution, result_steps, workflow_failed  # noqa: PLC0415 - few programs need it
    from dibs.workflow.task_data import plain_result  # noqa: PLC0415 - as above

    workflow = yield from wait_workflow(store, workflow_id, timeout)
    steps: list[Step] = yield store.workflows.steps(workflow_id)
    if workflow.state is not WorkflowState.COMPLETED:
        raise workflow_failed(Execution.of(workflow, steps))
    results: dict[int, Any] = {}
    wanted = {step.task_id: step.name for step in result_steps(steps)}
    left: Sequence[int] = list(wanted)
    while left:
        tasks, left = yield from read_many(store, left)
        for task in tasks:
            results[task.id] = plain_result(wanted[task.id], task.type, task.raw_result, decode_of)
    if [*wanted.values()] == [FINALIZER_NAME]:
        return results.get(workflow.finalizer_id)  # type: ignore[arg-type]
    return {name: results.get(task_id) for task_id, name in wanted.items()}


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
    deadline = deadline_after(timeout)
    seen = 0
    while True:
        found: Waited | None = yield read
        if found is None or found.finished or (deadline is not None and time.monotonic() >= deadline):
            return found
        left = POLL_INTERVAL if deadline is None else deadline - time.monotonic()
        yield WaitForChange(seen, min(left, POLL_INTERVAL))
        seen = store.wakeups.generation


def set_queue(store: Store, new: NewQueueSettings, note: OnProgress | None) -> Procedure[QueueSettings]:
    """Change settings of a queue. The tasks that wait obey them when the procedure ends."""
    settings: QueueSettings = yield store.limits.put_queue(new, "command")
    yield from settle(store, note)
    return settings


def set_type(store: Store, new: NewTypeSettings, note: OnProgress | None) -> Procedure[TypeSettings]:
    """Change the limits of a task type. The tasks that wait obey them when the procedure ends."""
    settings: TypeSettings = yield store.limits.put_type(new, "command")
    yield from settle(store, note)
    return settings


def declare(
    store: Store,
    declarations: Declarations,
    schedules: Sequence[NewSchedule],
    schemas: Sequence[DeclaredSchema],
) -> Procedure[None]:
    """Store what a program declares. Raises the first refusal, after the other limits and settings are stored. A limit
    or schedule that was removed by hand stays removed."""
    stored: StoredDeclarations = yield store.limits.declare(declarations)
    if stored.unsettled:
        yield from settle(store, None, strict=False)
    for schedule in schedules:
        try:
            yield store.schedules.put_schedule(schedule, "code")
        except ScheduleNotFound:
            continue
    refused = list(stored.refused)
    for batch in batches_of_schemas(schemas):
        refused += yield store.registry.declare_schemas(batch)
    for each in refused:
        raise each.error


def settle(store: Store, note: OnProgress | None, *, strict: bool = True) -> Procedure[None]:
    """Bring the tasks that wait in line with the settings of queues and types, in batches.

    First wait for transactions that may have enqueued tasks before the change. `strict`: raise WaitTimeout if one of
    them stays open. Otherwise its tasks are left to the next program that declares the same."""
    after: int | None = 0
    change = 0
    until = time.monotonic() + (OPEN_TRANSACTIONS if strict else 0.0)
    while after is not None:
        settled: Settled = yield store.limits.settle(after, change=change)
        after, change = settled.after, settled.change
        if after == 0 and time.monotonic() > until:
            if strict:
                raise WaitTimeout(
                    f"The setting is stored, but transactions that wrote tasks before it have been open for "
                    f"{OPEN_TRANSACTIONS:.0f} seconds; the tasks that they enqueue may not obey it.",
                    hint="Commit or roll back these transactions, then repeat the call.",
                )
            change = WITHOUT_WAITING
        if note is not None:
            note(settled.count)


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


def change_matching(store: Store, change: TaskChange, which: TaskMatch, note: OnProgress | None) -> Procedure[int]:
    """Change all matching tasks that wait, in batches. Returns the number of changed tasks."""
    check_not_everything(which)
    check_for_many(change)
    if store.served:
        served = cast("ServedStore", store)
        return (yield from _change_all(lambda at: _run_one(served.tasks.change_matching(change, which, at)), note))
    database = cast("DatabaseStore", store)
    return (yield from _change_all(lambda at: change_some(database, change, which, at, PROGRESS_INTERVAL), note))


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


def change_some(
    store: DatabaseStore, change: TaskChange, which: TaskMatch, cursor: int | None, enough: float
) -> Procedure[BulkResult]:
    """Change the next matching tasks, for about `enough` seconds."""
    some = partial(store.tasks.change_many, change=change, only=which.queues, state=which.state)
    return (yield from _change_some(store, which, cursor, BulkChange(some, WAITING, enough)))


def cancel_some(store: DatabaseStore, which: TaskMatch, cursor: int | None, enough: float) -> Procedure[BulkResult]:
    """Cancel the next matching tasks, for about `enough` seconds."""
    change = partial(store.tasks.cancel_many, only=which.queues, state=which.state)
    return (yield from _change_some(store, which, cursor, BulkChange(change, CANCELLABLE, enough)))


def retry_some(store: DatabaseStore, which: TaskMatch, cursor: int | None, enough: float) -> Procedure[BulkResult]:
    """Retry the next matching tasks, for about `enough` seconds."""
    change = partial(store.tasks.retry_many, only=which.queues, state=which.state)
    return (yield from _change_some(store, which, cursor, BulkChange(change, RETRYABLE, enough)))


class BulkChange(msgspec.Struct, frozen=True):
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
    promoted, recovered, expired, stopped, finalized = yield from run_urgent_upkeep(store, processor)
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
        workflows_expired=stopped,
        finalized=finalized,
        mended=mended,
    )


def run_urgent_upkeep(store: Store, processor: str) -> Procedure[tuple[int, int, int, int, int]]:
    """The urgent half of upkeep: promote, recover, expire tasks and workflows, finalize. Returns the number of each."""
    promoted = yield from _until_done(store.upkeep.promote())
    recovered = yield from _until_done(store.upkeep.recover())
    expired = yield from _until_done(store.upkeep.expire_tasks())
    yield from park_paused(store)
    stopped = yield from _until_done(store.upkeep.expire_workflows(), 1)
    finalized = yield from finalize_due(store, processor)
    return promoted, recovered, expired, stopped, finalized


def park_paused(store: Store) -> Procedure[int]:
    """Park the tasks of paused queues and types and unpark those of resumed ones, for about PARK_FOR seconds. Returns
    their number. The next round continues. A server does this by itself."""
    if store.served:
        return 0
    database, until, moved = cast("DatabaseStore", store), time.monotonic() + PARK_FOR, 0
    upkeep = database.upkeep
    while True:
        pauses: PausesToPark = yield upkeep.pauses_to_park()
        if pauses.missing_index is not None:
            yield database.queue.provide_index(pauses.missing_index)
        for pause in pauses.resumed:
            moved += yield upkeep.unpark(pause)
        for pause in pauses.paused:
            moved += yield upkeep.park(pause)
        if not (pauses.paused or pauses.resumed) or time.monotonic() > until:
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
