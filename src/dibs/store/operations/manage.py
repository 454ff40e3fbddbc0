"""Cancel, retry, redrive and discard tasks, without holding a claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from dibs.errors import InvalidValue, TaskNotFound, WrongState
from dibs.model.checks import check_integer, check_names
from dibs.model.search import ALL_DEAD, BULK_BATCH, REDRIVE_BATCH, DeadFilter
from dibs.model.task import FINAL, RETRYABLE, SetAside, State, Task
from dibs.model.workflow import ENDED, STOP_PRUNED, WORKFLOW_STEP, Workflow, WorkflowState
from dibs.store.operation import (
    WIDTH,
    Mode,
    Operation,
    ReleaseSavepoint,
    RollBackToSavepoint,
    Row,
    Rows,
    SetSavepoint,
    Statement,
    Statements,
    limited,
)
from dibs.store.operations.advance import WAITING, Advance, CounterChanges
from dibs.store.operations.filters import DEAD_LETTER_FILTERS, conditions, filter_params
from dibs.store.operations.graph import Graph
from dibs.store.operations.rows import read_task

LockedTasks = dict[int, Row]
"""The id of a task -> its row of `lock_tasks`: (id, state, queue, workflow_id, cancel_requested)."""


class Manage:
    """Cancel, retry and discard tasks."""

    def __init__(self, advance: Advance, graph: Graph) -> None:
        self._advance = advance
        self._graph = graph

    def cancel(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Task]:
        """Cancel a waiting task at once; request the cancellation of a running task from its worker. `only`: the queues
        of the caller; a task that represents a workflow with other queues is TaskNotFound."""
        return Operation("cancel", lambda: self._cancel(task_id, only), mode=Mode.TRANSACTION, wakes=True)

    def _cancel(self, task_id: int, only: Sequence[str] | None) -> Statements[Task]:
        steps = yield from self._advance.lock_steps([task_id])
        while True:
            task = yield from _get(task_id)
            if task.type == WORKFLOW_STEP and task.workflow_id is not None:
                _check_queues(task, (yield from self._advance.read_workflow(task.workflow_id)), only)
            if task.state is State.CANCELLED or (task.state is State.CLAIMED and task.cancel_requested):
                return task
            if task.state in FINAL:
                message = f"Task {task_id} cannot be cancelled: it is {task.state}."
                raise WrongState(message, task_id=task_id, state=task.state, hint="Finished tasks stay as they are.")
            if task.type == WORKFLOW_STEP and task.state is State.CLAIMED:
                raise _represents_workflow(task, "cancelled", "Cancel")
            name = "request_cancel" if task.state is State.CLAIMED else "cancel"
            if (yield Statement(name, {"ids": [task_id], "from_state": task.state.value}, change=True)):
                if task_id in steps:
                    yield from self._advance_cancelled(task)
                return (yield from _get(task_id))
            # The task changed between the read and the write: read it again.

    def _advance_cancelled(self, task: Task) -> Statements[None]:
        """Advance the workflow of a step that was cancelled, or asked to stop. The workflow may not have begun."""
        assert task.workflow_id is not None
        workflow = yield from self._advance.read_workflow(task.workflow_id)
        assert workflow is not None
        yield from self._advance.advance([task.id], (yield from self._advance.has_begun(workflow)))

    def retry(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Task]:
        """Make a failed, cancelled or scheduled task pending, with all its attempts. `only`: the queues of the caller;
        a step that continues a workflow with other queues is TaskNotFound."""
        return Operation("retry", lambda: self._retry(task_id, only), mode=Mode.TRANSACTION, wakes=True)

    def _retry(self, task_id: int, only: Sequence[str] | None) -> Statements[Task]:
        steps = yield from self._advance.lock_steps([task_id])
        while True:
            task = yield from _get(task_id)
            if task.state not in RETRYABLE:
                message = f"Task {task_id} cannot be retried: it is {task.state}."
                hint = "Only failed, cancelled and scheduled tasks can be retried. Enqueue a new task instead."
                raise WrongState(message, task_id=task_id, state=task.state, hint=hint)
            if task_id in steps and task.state is not State.SCHEDULED:
                yield from self._retry_step(task, task_id, only)
                return (yield from _get(task_id))
            if task.set_aside is SetAside.DISCARDED:
                yield Statement("restore", {"ids": [task_id]}, change=True)
            rows = yield Statement("retry", {"ids": [task_id], "from_state": task.state.value}, change=True)
            if rows:
                yield from _take_back_keys(rows)
                return (yield from _get(task_id))

    def _retry_step(self, task: Task, step: int, only: Sequence[str] | None) -> Statements[None]:
        """Retry a step. If its workflow has ended, the whole workflow continues, and with it the outer workflows that
        have ended. `step`: the task itself, or the step that represents its workflow in an outer workflow."""
        rows = yield Statement("step", {"ids": [step]})
        if not rows:  # the outer workflow was pruned before its sub-workflow
            raise _cannot_continue(task, None, STOP_PRUNED)
        _, workflow_id, _, _, passed, state, stopping, *_ = rows[0]
        finalizing = state == WorkflowState.FINALIZING
        if passed or stopping == STOP_PRUNED or (stopping is not None and state not in ENDED) or finalizing:
            raise _cannot_continue(task, passed, stopping)
        workflow = yield from self._advance.read_workflow(workflow_id)
        assert workflow is not None
        if workflow.finished and workflow.step_of is not None:
            yield from self._retry_step(task, workflow.step_of, only)
            return
        _check_queues(task, workflow, only)
        changes = CounterChanges()
        if workflow.finished:
            yield from self._advance.reopen(workflow_id, changes)
            yield from self._graph.renew_finalizers(changes.reopened)
        else:
            rows = yield Statement("unpassed_steps", {"id": workflow_id})
            yield from self._advance.reopen_steps(workflow_id, [row for row in rows if row[0] == step], changes)
        yield from self._advance.write_counters(changes)

    def cancel_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, state: str | None = None
    ) -> Operation[int]:
        """Cancel the tasks among these that can be cancelled and are in the queues `only` and in this state, if given.
        Returns their number."""
        given = check_many(ids, only)
        return Operation(
            "cancel_many", lambda: self._cancel_many(given, only, state), mode=Mode.TRANSACTION, wakes=True
        )

    def _cancel_many(self, ids: list[int], only: Sequence[str] | None, state_only: str | None) -> Statements[int]:
        steps, plain = yield from self._lock_many(ids, only, state_only)
        moved = yield from self._each(steps, lambda task_id: self._cancel(task_id, only))
        for state in WAITING:
            moved += yield from _change("cancel", plain, state)
        return moved + (yield from _change("request_cancel", plain, State.CLAIMED))

    def retry_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, state: str | None = None
    ) -> Operation[int]:
        """Retry the tasks among these that can be retried and are in the queues `only` and in this state, if given.
        Returns their number."""
        given = check_many(ids, only)
        return Operation("retry_many", lambda: self._retry_many(given, only, state), mode=Mode.TRANSACTION, wakes=True)

    def _retry_many(self, ids: list[int], only: Sequence[str] | None, state_only: str | None) -> Statements[int]:
        steps, plain = yield from self._lock_many(ids, only, state_only)
        moved = yield from self._each(steps, lambda task_id: self._retry(task_id, only))
        yield from _change("restore", plain, State.FAILED)
        for state in (State.FAILED, State.CANCELLED, State.SCHEDULED):
            if ids := [row[0] for row in plain.values() if row[1] == state]:
                rows = yield Statement("retry", {"ids": ids, "from_state": str(state)}, change=True)
                yield from _take_back_keys(rows)
                moved += len(rows)
        return moved

    def _lock_many(
        self, ids: list[int], only: Sequence[str] | None, state: str | None
    ) -> Statements[tuple[LockedTasks, LockedTasks]]:
        """Lock these tasks. Returns the steps among them, and the other tasks. Workflows are locked first, then tasks
        in the order of their ids, as in every other operation, so that no deadlock is possible."""
        yield from self._advance.lock_steps(ids)
        rows = yield Statement("lock_tasks", {"ids": ids})
        matching_rows = [row for row in rows if (only is None or row[2] in only) and state in (None, row[1])]
        return _by_id(matching_rows, steps=True), _by_id(matching_rows, steps=False)

    def _each(self, steps: LockedTasks, do: Callable[[int], Statements[Task]]) -> Statements[int]:
        """Change steps one by one, because the change of a step can change other steps of its workflow. Returns the
        number of steps that have changed."""
        for task_id in steps:
            with suppress(WrongState, TaskNotFound):
                yield from do(task_id)
        rows = (yield Statement("lock_tasks", {"ids": list(steps)})) if steps else []
        return sum(row != steps[row[0]] for row in rows)

    def discard(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Task]:
        """Take a failed task out of the dead letter. The task stays failed, and retention prunes it as usual. A second
        call changes nothing; WrongState for a task that is not in the dead letter. `only`: the queues of the caller."""
        check_names(only, "only", "The queue")
        return Operation("discard", lambda: _discard(task_id, only), mode=Mode.TRANSACTION)

    def discard_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, which: DeadFilter = ALL_DEAD
    ) -> Operation[int]:
        """Discard the tasks among these that are in the dead letter, match, and are in the queues `only`, if given.
        Returns their number."""
        given = check_many(ids, only)
        return Operation("discard_many", lambda: _discard_many(given, which, only), mode=Mode.TRANSACTION)

    def discard_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Discard up to `limit` matching tasks of the dead letter, the oldest failures first. Returns their number."""
        check_integer(limit, "limit", 1, REDRIVE_BATCH)
        given = filter_params(which)
        words = (conditions(given, DEAD_LETTER_FILTERS), *limited(limit))
        statement = Statement("discard_dead", given, words=words, change=True)
        return Operation("discard_some", lambda: _count(statement), mode=Mode.TRANSACTION)

    def redrive_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Retry up to `limit` matching tasks of the dead letter, the oldest failures first. Returns their number."""
        check_integer(limit, "limit", 1, REDRIVE_BATCH)
        given = {**filter_params(which), "queues": which.only and list(which.only)}
        return Operation("redrive", lambda: self._redrive(given, limit), mode=Mode.TRANSACTION, wakes=True)

    def _redrive(self, given: dict[str, Any], limit: int) -> Statements[int]:
        """Retry steps first: their workflows must be locked before any task is."""
        which = conditions(given, DEAD_LETTER_FILTERS)
        whole = conditions(given, (*DEAD_LETTER_FILTERS, "only"))
        dead = Statement("dead_steps", given, words=(whole, *limited(limit)))
        steps = yield from self._redrive_steps(dead, given["only"])
        if steps == limit:
            return steps
        rows = yield Statement("redrive", given, words=(which, *limited(limit - steps)), change=True)
        yield from _take_back_keys(rows)
        return steps + len(rows)

    def _redrive_steps(self, dead: Statement, only: Sequence[str] | None) -> Statements[int]:
        rows = yield dead
        if not rows:
            return 0
        yield from self._advance.lock_trees({row[1] for row in rows})
        moved = 0
        for task_id, _ in rows:
            with suppress(WrongState, TaskNotFound):  # its workflow is stopping, or was pruned
                task = yield from _get(task_id)
                if task.state is State.FAILED:  # else it was retried together with another step of its workflow
                    yield from self._retry_step(task, task_id, only)
                moved += 1
        return moved


def check_many(ids: Sequence[int], only: Sequence[str] | None) -> list[int]:
    """The ids of a bulk change, checked, in order."""
    check_names(only, "only", "The queue")
    if len(ids) > BULK_BATCH:
        raise InvalidValue(
            f"{len(ids):,} tasks are too many for one call.", hint=f"Pass up to {BULK_BATCH} ids per call."
        )
    return sorted({check_integer(task_id, "A task's id", 0, 2**63 - 1) for task_id in ids})


def _discard(task_id: int, only: Sequence[str] | None) -> Statements[Task]:
    while True:
        task = yield from _get(task_id)
        if only is not None and task.queue not in only:
            raise TaskNotFound(task_id)
        if task.set_aside is SetAside.DISCARDED:
            return task
        if task.state is not State.FAILED or task.set_aside is not None:
            raise _not_dead(task)
        yield Statement(
            "discard", {"ids": [task_id]}, change=True
        )  # changes nothing if the task changed meanwhile: read it again


def _discard_many(ids: list[int], which: DeadFilter, only: Sequence[str] | None) -> Statements[int]:
    """Discard the matching tasks. Their rows are locked in the order of their ids, so that two discards of the same
    tasks cannot deadlock."""
    if not ids:
        return 0
    rows = yield Statement("lock_tasks", {"ids": ids})
    matching_rows = {row[0] for row in rows if row[1] == State.FAILED and (only is None or row[2] in only)}
    matching = [task_id for task_id in ids if task_id in matching_rows]
    if matching and which != ALL_DEAD:
        tasks = [read_task(row) for row in (yield Statement("get", {"ids": matching}))]
        matching = [task.id for task in tasks if _matches(task, which)]
    return (yield from _count(Statement("discard", {"ids": matching}, change=True))) if matching else 0


def _matches(task: Task, which: DeadFilter) -> bool:
    error = f"{task.error.type}: {task.error.message}" if task.error else ""
    of_queue, of_type = which.queue in (None, task.queue), which.type in (None, task.type)
    tagged = which.tags is None or set(which.tags) <= set(task.tags)
    return of_queue and of_type and tagged and (which.error is None or which.error in error)


def _count(statement: Statement) -> Statements[int]:
    return len((yield statement))


def _not_dead(task: Task) -> WrongState:
    why = (
        f"it is {task.state}" if task.set_aside is None else "its workflow ignored its failure and continued without it"
    )
    hint = "Only failed tasks that are in the dead letter can be discarded."
    return WrongState(f"Task {task.id} cannot be discarded: {why}.", task_id=task.id, state=task.state, hint=hint)


def _by_id(rows: Sequence[Row], *, steps: bool) -> LockedTasks:
    return {row[0]: row for row in rows if (row[3] is not None) is steps}


def _take_back_keys(retried: Rows) -> Statements[None]:
    """Bring the keys into force again that ended with these tasks, which are waiting again. A task whose key another
    task has taken runs without its key: no retry fails because of a key. Each key has a savepoint, because only the
    unique index knows the keys that other clients are inserting."""
    for row in retried:
        if not row[WIDTH]:
            continue
        yield SetSavepoint()
        try:
            yield Statement("take_back_key", {"id": row[0]})
        except Exception as error:  # RollBackToSavepoint raises an error again that is not about the key
            yield RollBackToSavepoint(error)
        else:
            yield ReleaseSavepoint()


def _change(name: str, tasks: LockedTasks, state: str) -> Statements[int]:
    """Run the statement for the tasks in this state. Returns the number of changed tasks."""
    ids = [row[0] for row in tasks.values() if row[1] == state]
    rows = (yield Statement(name, {"ids": ids, "from_state": str(state)}, change=True)) if ids else []
    return len(rows)


def _get(task_id: int) -> Statements[Task]:
    rows = yield Statement("get", {"ids": [task_id]})
    if not rows:
        raise TaskNotFound(task_id)
    return read_task(rows[0])


def _check_queues(task: Task, workflow: Workflow | None, only: Sequence[str] | None) -> None:
    """Raise TaskNotFound if the caller has no access to all queues of the workflow: the call would change the whole
    workflow."""
    if only is not None and (workflow is None or not set(workflow.queues) <= set(only)):
        raise TaskNotFound(task.id)


def _cannot_continue(task: Task, passed: object, stopping: str | None) -> WrongState:
    stopping_text = "its workflow is being deleted" if stopping == STOP_PRUNED else "its workflow is stopping"
    why = "its failure was ignored and its workflow continued" if passed else stopping_text
    hint = None if stopping == STOP_PRUNED else "Retry the workflow once it has ended."
    return WrongState(f"Step {task.id} cannot be retried: {why}.", task_id=task.id, state=task.state, hint=hint)


def _represents_workflow(task: Task, done: str, do: str) -> WrongState:
    message = f"Task {task.id} cannot be {done}: it represents a workflow ({task.worker_id})."
    return WrongState(message, task_id=task.id, state=task.state, hint=f"{do} that workflow instead.")
