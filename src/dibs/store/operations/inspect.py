"""Inspect tasks: one task, a page of tasks, and the reasons why a task is not running."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dibs.errors import TaskNotFound
from dibs.model.checks import from_micros
from dibs.model.explanation import Explanation, Reason
from dibs.model.registry import WorkerState
from dibs.model.search import PAGE_CONTENT, TaskFilter, TaskPage, TasksById
from dibs.model.task import RETRY_EXPIRED, STATES, WAITING, Event, SetAside, State, Task, expiry_text
from dibs.model.workflow import FinalizeWhen, StepKind, WorkflowState
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.filters import LIST_FILTERS, conditions, filter_params
from dibs.store.operations.flow import RulesCache
from dibs.store.operations.flow_reasons import flow_reasons
from dibs.store.operations.history import read_latest
from dibs.store.operations.registry import read_workers
from dibs.store.operations.rows import ROWS_AT_ONCE, add_tasks, read_task, read_workflow

PARENTS_NAMED = 10
"""The largest number of parents that an explanation names."""

FEW = 20
"""Up to this number of rows by primary key is a point read."""

_QUEUE = 2
"""The position of the queue among the task columns."""

RECENT_ENTRIES = 20
"""The newest entries of the history, among which the cancellation of a step is searched."""


class Inspect:
    """Read tasks and explain them."""

    def __init__(self, rules: RulesCache) -> None:
        self._rules = rules

    def get(self, task_id: int) -> Operation[Task | None]:
        """The task, or None."""
        return Operation("get", lambda: _get(task_id), mode=Mode.POINT_READ)

    def get_many(self, ids: Sequence[int], only: Sequence[str] | None = None) -> Operation[TasksById]:
        """The tasks with these ids that exist; with `only`, those of these queues."""
        return Operation("get_many", lambda: _get_many(list(ids), only), mode=Mode.READ)

    def states(self, ids: Sequence[int], only: Sequence[str] | None = None) -> Operation[dict[int, State]]:
        """The state of each of these tasks that exists; with `only`, of those in these queues."""
        mode = Mode.POINT_READ if len(ids) <= FEW else Mode.READ
        return Operation("states", lambda: _states(list(ids), only), mode=mode)

    def list_tasks(self, which: TaskFilter, content: int | None = None) -> Operation[TaskPage]:
        """A page of tasks by state, type and queue, newest first; `find` has the other filters. The page ends before
        its limit where its tasks have more than `content` characters."""
        return Operation("list", lambda: _list(which, content), mode=Mode.READ)

    def queues_of(self, task_ids: Sequence[int]) -> Operation[dict[int, str]]:
        """The queue of each of these tasks that exists."""
        mode = Mode.POINT_READ if len(task_ids) <= FEW else Mode.READ
        return Operation("queues_of", lambda: _queues_of(list(task_ids)), mode=mode)

    def explain(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Explanation]:
        """The reasons why the task is not running. With `only`, no steps of other queues are named."""
        return Operation("explain", lambda: _explain(task_id, only, self._rules), mode=Mode.READ)


def _get(task_id: int) -> Statements[Task | None]:
    rows = yield Statement("get", {"ids": [task_id]})
    return read_task(rows[0]) if rows else None


def _get_many(ids: list[int], only: Sequence[str] | None) -> Statements[TasksById]:
    tasks: list[Task] = []
    content = float(PAGE_CONTENT)
    for start in range(0, len(ids), ROWS_AT_ONCE):
        some = ids[start : start + ROWS_AT_ONCE]
        found = {row[0]: row for row in (yield Statement("get", {"ids": some}))}
        places = [n for n, id in enumerate(some) if id in found and (only is None or found[id][_QUEUE] in only)]
        before = len(tasks)
        content = add_tasks(tasks, [found[some[place]] for place in places], content)
        if (read := len(tasks) - before) < len(places):
            return TasksById(tasks, ids[start + places[read] :])
    return TasksById(tasks, [])


def _states(ids: list[int], only: Sequence[str] | None) -> Statements[dict[int, State]]:
    rows = yield Statement("task_states", {"ids": ids})
    return {row[0]: STATES[row[1]] for row in rows if only is None or row[2] in only}


def _list(which: TaskFilter, content: int | None) -> Statements[TaskPage]:
    given = {**filter_params(which), "state": State.FAILED.value if which.dead else which.state}
    tasks: list[Task] = []
    left = math.inf if content is None else content
    while True:
        before, wanted = len(tasks), which.limit - len(tasks)
        count = wanted if content is None else min(wanted, ROWS_AT_ONCE)
        rows = yield Statement("list", given, words=(conditions(given, LIST_FILTERS), *limited(count)))
        left = add_tasks(tasks, rows, left)
        if cut := len(tasks) < before + len(rows):
            return TaskPage(tasks, tasks[-1].id, len(tasks), cut)
        if len(rows) < count:
            return TaskPage(tasks, None, len(tasks))
        if len(tasks) == which.limit:
            return TaskPage(tasks, tasks[-1].id, len(tasks))
        given["cursor"] = tasks[-1].id


def _queues_of(task_ids: list[int]) -> Statements[dict[int, str]]:
    return dict((yield Statement("queues_of", {"ids": task_ids})))


def _explain(task_id: int, only: Sequence[str] | None, rules: RulesCache) -> Statements[Explanation]:
    task = yield from _get(task_id)
    if task is None:
        raise TaskNotFound(task_id)
    if task.state in WAITING and (yield from _is_past_expiry(task)):
        message = f"It does not run any more: {expiry_text(task)}. The next upkeep cancels it."
        reasons = [Reason("expired", message)]
    elif task.state is State.PENDING:
        reasons = yield from _reasons_pending(task, rules)
    elif task.state is State.SCHEDULED:
        reasons = [(yield from _reason_scheduled(task))]
    elif task.state is State.BLOCKED:
        reasons = yield from _reasons_blocked(task, only)
    elif task.expired:
        reasons = [Reason("expired", f"It was cancelled: {expiry_text(task)}. {RETRY_EXPIRED}")]
    elif task.state is State.CANCELLED and task.workflow_id is not None:
        reasons = [(yield from _reason_cancelled_step(task, task.workflow_id, only))]
    else:
        reasons = [_reason(task)]
    return Explanation(task.id, task.state, reasons)


def _is_past_expiry(task: Task) -> Statements[bool]:
    if task.expires_at is None:
        return False
    [[now]] = yield Statement("clock")
    return task.expires_at <= from_micros(now)


def _reason_scheduled(task: Task) -> Statements[Reason]:
    [[now]] = yield Statement("clock")
    due_at = f"{task.run_at:%Y-%m-%d %H:%M:%S} UTC"
    after = f" (attempt {task.attempts} of {task.max_attempts} failed)" if task.attempts else ""
    if task.run_at <= from_micros(now):
        return Reason("due", f"It is due since {due_at}{after}: the next claim or upkeep makes it pending.")
    return Reason("not_due", f"It is not due until {due_at}{after}.")


def _reason(task: Task) -> Reason:
    if task.state is State.CLAIMED:
        stop_note = " Its cancellation was requested." if task.cancel_requested else ""
        if task.lease_until is None:  # a sub-workflow has no lease: it ends with its steps
            return Reason("claimed", f"It is running: it represents a workflow ({task.worker_id}).{stop_note}")
        until = f"{task.lease_until:%Y-%m-%d %H:%M:%S} UTC"
        return Reason("claimed", f"It is running: claimed by {task.worker_id} until {until}.{stop_note}")
    if task.state is State.FAILED:
        cause = f": {task.error.type}: {task.error.message}" if task.error else ""
        after = _AFTER_FAILURE[task.set_aside]
        if task.error and task.error.permanent:
            return Reason("failed", f"{_permanent(task)}{cause}. {after}")
        return Reason("failed", f"It failed after {_attempts(task.attempts)}{cause}. {after}")
    return Reason(task.state.value, f"It is {task.state} since {task.finished_at:%Y-%m-%d %H:%M:%S} UTC.")


_AFTER_FAILURE = {
    None: "Retry it to run it again.",
    SetAside.IGNORED: "Its workflow ignored the failure and continued without it.",
    SetAside.DISCARDED: "It was discarded from the dead letter. Retry it to run it again.",
}


def _reason_cancelled_step(task: Task, workflow_id: int, only: Sequence[str] | None) -> Statements[Reason]:
    """The reason for a cancelled step. If its workflow cancelled it: why the workflow stopped."""
    past = yield from read_latest(task.id, RECENT_ENTRIES)
    ends = [entry for entry in past.entries if entry.event is Event.CANCELLED]
    if not ends or (ends[-1].detail or {}).get("by") != "workflow":
        return _reason(task)
    step = yield Statement("step", {"ids": [task.id]})
    if step and step[0][3] == StepKind.FINALIZER and step[0][5] == WorkflowState.COMPLETED:
        message = f"It did not run: workflow {workflow_id} has completed, and its finalizer runs only after a failure."
        return Reason("cancelled", message)
    cause = yield from _why_stopped(workflow_id, only)
    if cause is None:
        return _reason(task)
    return Reason("cancelled", f"It was cancelled at {task.finished_at:%Y-%m-%d %H:%M:%S} UTC because {cause}.")


def _why_stopped(workflow_id: int, only: Sequence[str] | None) -> Statements[str | None]:
    """Why the workflow starts no more steps. A sub-workflow stops with its outer workflow."""
    rows = yield Statement("get_workflow", {"id": workflow_id})
    workflow = read_workflow(rows[0]) if rows else None
    if workflow is None or workflow.stopping is None:
        return None
    if workflow.stopping == "failed":
        return (yield from _first_failure(workflow_id, only))
    if workflow.stopping == "deadline":
        return f"workflow {workflow_id} passed its deadline"
    if workflow.step_of is not None:
        outer_step = yield from _get(workflow.step_of)
        if outer_step is not None and outer_step.workflow_id is not None:
            return (yield from _why_stopped(outer_step.workflow_id, only))
    return f"workflow {workflow_id} was cancelled"


def _first_failure(workflow_id: int, only: Sequence[str] | None) -> Statements[str]:
    found = yield Statement("first_failure", {"id": workflow_id})
    step = (yield from _get(found[0][1])) if found else None
    if step is None or (only is not None and step.queue not in only):
        return f"another step of workflow {workflow_id} failed"
    error = f": {step.error.type}: {step.error.message}" if step.error and step.state is State.FAILED else ""
    how = "failed" if step.state is State.FAILED else "expired" if step.expired else "was cancelled"
    return f"step {found[0][0]!r} (task {step.id}) of workflow {workflow_id} {how}{error}"


def _permanent(task: Task) -> str:
    """The text for a permanent failure, which ends a task that has attempts left."""
    return f"It failed permanently in attempt {task.attempts} of {task.max_attempts}, so no further attempt was made"


def _attempts(count: int) -> str:
    return f"{count} attempt" if count == 1 else f"{count} attempts"


def _reasons_blocked(task: Task, only: Sequence[str] | None) -> Statements[list[Reason]]:
    waits = yield Statement("waits_for", {"id": task.id}, words=limited(PARENTS_NAMED))
    if waits:
        return list(dict.fromkeys(_reason_blocked(parent, only) for parent in waits))
    step = yield Statement("step", {"ids": [task.id]})
    if step and step[0][3] == StepKind.FINALIZER:
        return [(yield from _reason_finalizer(step[0][1]))]
    return [Reason("blocked", f"It is a step of workflow {task.workflow_id}, which has not begun.")]


_FINALIZER_RUNS = {
    FinalizeWhen.SUCCESS: "it runs when all steps are done.",
    FinalizeWhen.FAILURE: "it runs when all steps are done, if the workflow fails or is cancelled.",
    FinalizeWhen.ALWAYS: "it runs when all steps are done, whether they have passed or not.",
}


def _reason_finalizer(workflow_id: int) -> Statements[Reason]:
    """The reason why a finalizer has not begun."""
    [row] = yield Statement("get_workflow", {"id": workflow_id})
    text = _FINALIZER_RUNS[read_workflow(row).finalize_when]
    return Reason("blocked", f"It is the finalizer of workflow {workflow_id}: {text}")


def _reason_blocked(row: Row, only: Sequence[str] | None) -> Reason:
    name, parent, state, queue = row
    if only is not None and queue not in only:
        return Reason("blocked", "It waits for another step.")
    return Reason("blocked", f"It waits for step {name!r} (task {parent}), which is {state}.")


def _reasons_pending(task: Task, rules: RulesCache) -> Statements[list[Reason]]:
    reasons: list[Reason] = []
    for row in (yield Statement("pauses_of_task", {"id": task.id})):
        reasons += _reasons_paused(task, row)
    waits = yield from flow_reasons(task, rules)
    reasons += [reason for reason in waits if reason.code != "turn"]
    workers = yield from read_workers()
    serving = [worker for worker in workers if worker.state is WorkerState.ACTIVE and worker.serves(task)]
    if not serving:
        message = f"No live worker serves queue {task.queue!r} and type {task.type!r}."
        reasons.append(Reason("no_worker", message))
    reasons += [reason for reason in waits if reason.code == "turn"]  # which would come if there were a worker
    return reasons or [Reason("ready", f"It is claimable: {len(serving)} live worker(s) serve its queue and type.")]


def _reasons_paused(task: Task, row: Row) -> Iterator[Reason]:
    """The pauses of the task's queue and type, from a row of `pauses_of_task`."""
    queue_at, type_at, parked, by_type = row
    scopes = (("queue", task.queue, queue_at), ("type", task.type, type_at))
    for scope, name, paused_at in scopes:
        if paused_at is not None:
            since = f"{from_micros(paused_at):%Y-%m-%d %H:%M:%S} UTC"
            yield Reason(f"{scope}_paused", f"Its {scope} {name!r} is paused since {since}.")
    if parked and queue_at is None and type_at is None:
        scope, name, _ = scopes[bool(by_type)]
        message = f"Its {scope} {name!r} was resumed; upkeep makes its parked tasks claimable, the first ones first."
        yield Reason(f"{scope}_resuming", message)
