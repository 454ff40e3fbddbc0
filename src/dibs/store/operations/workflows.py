"""Start workflows, add steps to them, cancel, retry and read them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.encoded import comparable
from dibs.errors import DibsError, KeyConflict, TaskNotFound, WorkflowNotFound, WrongState, WrongWorkflowState
from dibs.json_values import decode, encode_params
from dibs.model.checks import check_names, to_micros
from dibs.model.execution import Execution
from dibs.model.task import STATES, NewTask
from dibs.model.workflow import (
    STOP_CANCELLED,
    STOP_PRUNED,
    FinalizeWhen,
    NewStep,
    NewWorkflow,
    OnFailure,
    Step,
    StepKind,
    StepResult,
    Workflow,
    WorkflowFilter,
    WorkflowState,
    tasks_in,
)
from dibs.store.operation import Mode, Operation, Row, Rows, Statement, Statements, limited
from dibs.store.operations.advance import Advance, CounterChanges
from dibs.store.operations.filters import conditions
from dibs.store.operations.graph import Graph, StepBatch, TargetWorkflow, check_room, queues_of
from dibs.store.operations.rows import moment, read_failure, read_workflow
from dibs.store.operations.validation import TaskValidation

CONDITIONS = (
    "workflow_state",
    "workflow_name",
    "workflow_cursor",
    "workflow_floor",
    "workflow_ids",
    "workflow_queues",
)


class Workflows:
    """Start, extend, cancel, retry and read workflows."""

    def __init__(self, advance: Advance, graph: Graph) -> None:
        self._advance = advance
        self._graph = graph

    def start_workflow(self, new: NewWorkflow) -> Operation[Workflow]:
        """Store the whole graph, or nothing."""
        validation = TaskValidation.of(new.tasks())
        return Operation(
            "start_workflow",
            lambda: self._start_workflow(new, validation),
            mode=Mode.TRANSACTION,
            wakes=True,
            validation=validation,
        )

    def _start_workflow(self, new: NewWorkflow, validation: TaskValidation) -> Statements[Workflow]:
        content = None if new.key is None else fingerprint(new)
        while True:
            if (known := (yield from self._with_key(new, content))) is not None:
                return known
            validation.check(new.tasks())
            workflow_id = yield from self._graph.insert_workflow(new, content=content)
            if workflow_id is not None:
                break  # else another process has inserted a workflow with this key
        changes = CounterChanges()
        target = TargetWorkflow(workflow_id, workflow_id, new.on_failure)
        yield from self._graph.insert_graph(StepBatch(target, new.steps, new.finalizer, validation=validation), changes)
        changes.add(workflow_id)
        yield from self._advance.write_counters(changes)
        return (yield from self._found(workflow_id))

    def _with_key(self, new: NewWorkflow, content: str | None) -> Statements[Workflow | None]:
        """The workflow that has this key among those started in the same queues."""
        if new.key is None:
            return None
        rows = yield Statement("workflow_with_key", {"key": new.key, "queues": queues_of(new.tasks())})
        if not rows:
            return None
        workflow = read_workflow(rows[0], 1, deduplicated=True)
        if rows[0][0] != content:
            raise KeyConflict(new.key, workflow_id=workflow.id)
        return workflow

    def add_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Operation[Workflow]:
        """Add steps to a running workflow."""
        validation = TaskValidation.of(tasks_in(steps))
        return Operation(
            "add_steps",
            lambda: self._add_steps(workflow_id, steps, validation),
            mode=Mode.TRANSACTION,
            wakes=True,
            validation=validation,
        )

    def _add_steps(
        self, workflow_id: int, steps: Sequence[NewStep], validation: TaskValidation
    ) -> Statements[Workflow]:
        workflow = yield from self._locked(workflow_id)
        if workflow.state is not WorkflowState.RUNNING or workflow.stopping is not None:
            raise _wrong_state(workflow, "cannot get more steps", "Only a running workflow can get more steps.")
        check_room(workflow, steps)
        tasks = list(tasks_in(steps))
        validation.check(tasks)
        known = yield from self._graph.check_steps(workflow_id, steps)
        changes = CounterChanges()
        target = TargetWorkflow(
            workflow_id, workflow.root_id, workflow.on_failure, begun=(yield from self._advance.has_begun(workflow))
        )
        yield from self._graph.insert_graph(StepBatch(target, steps, None, known, validation), changes)
        yield from self._graph.add_queues(workflow_id, tasks)
        yield from self._advance.write_counters(changes)
        return (yield from self._found(workflow_id))

    # Cancel and retry

    def cancel_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Start no more steps, and request the cancellation of running steps."""
        return Operation(
            "cancel_workflow", lambda: self._cancel_workflow(workflow_id), mode=Mode.TRANSACTION, wakes=True
        )

    def _cancel_workflow(self, workflow_id: int) -> Statements[Workflow]:
        workflow = yield from self._locked(workflow_id)
        if workflow.state is WorkflowState.CANCELLED or workflow.stopping == STOP_CANCELLED:
            return workflow
        if workflow.finished:
            raise _wrong_state(workflow, "cannot be cancelled", "Ended workflows stay as they are.")
        if workflow.state is WorkflowState.FINALIZING and workflow.finalize_when is not FinalizeWhen.SUCCESS:
            hint = f"Its steps have ended. To stop its finalizer, cancel task {workflow.finalizer_id}."
            raise _wrong_state(workflow, "cannot be cancelled", hint)
        changes = CounterChanges()
        yield from self._advance.stop(workflow_id, STOP_CANCELLED, changes)
        yield from self._advance.write_counters(changes)
        stopping = yield from self._found(workflow_id)
        if stopping.active == 0 and stopping.state is WorkflowState.RUNNING:
            yield from self._end_now(stopping)  # no step is running, so nothing has to be waited for
        return (yield from self._found(workflow_id))

    def _end_now(self, workflow: Workflow) -> Statements[None]:
        changes = CounterChanges()
        if (yield from self._advance.has_begun(workflow)):
            yield from self._advance.conclude(workflow, WorkflowState.CANCELLED, None, changes)
        else:
            yield from self._advance.end_workflow(workflow, WorkflowState.CANCELLED, None, changes)
        yield from self._advance.write_counters(changes)

    def retry_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Continue a failed or cancelled workflow from the steps that did not pass."""
        return Operation("retry_workflow", lambda: self._retry_workflow(workflow_id), mode=Mode.TRANSACTION, wakes=True)

    def _retry_workflow(self, workflow_id: int) -> Statements[Workflow]:
        workflow = yield from self._locked(workflow_id)
        if workflow.state not in (WorkflowState.FAILED, WorkflowState.CANCELLED):
            hint = "Only failed and cancelled workflows can be retried."
            raise _wrong_state(workflow, "cannot be retried", hint)
        if workflow.step_of is not None:
            hint = f"Retry workflow {workflow.root_id}, which it is a part of."
            raise _wrong_state(workflow, "cannot be retried on its own", hint)
        if workflow.stopping == STOP_PRUNED:
            raise _wrong_state(workflow, "cannot be retried", "It is past its retention: its steps are being deleted.")
        changes = CounterChanges()
        yield from self._advance.reopen(workflow_id, changes)
        yield from self._graph.renew_finalizers(changes.reopened)
        yield from self._advance.write_counters(changes)
        return (yield from self._found(workflow_id))

    # Read

    def get_workflow(self, workflow_id: int) -> Operation[Workflow | None]:
        """The workflow, or None."""
        return Operation("get_workflow", lambda: self._advance.read_workflow(workflow_id), mode=Mode.POINT_READ)

    def list_workflows(self, which: WorkflowFilter) -> Operation[list[Workflow]]:
        """A page of workflows, newest first."""
        return Operation("list_workflows", lambda: list_some(which), mode=Mode.READ)

    def steps(self, workflow_id: int) -> Operation[list[Step]]:
        """The workflow's steps, in order."""
        return Operation("steps", lambda: self._steps(workflow_id), mode=Mode.READ)

    def _steps(self, workflow_id: int) -> Statements[list[Step]]:
        yield from self._found(workflow_id)
        rows = yield Statement("steps", {"id": workflow_id})
        parents: defaultdict[int, list[int]] = defaultdict(list)
        for parent, child in (yield Statement("edges", {"id": workflow_id})):
            parents[child].append(parent)
        return [_read_step(row, parents[row[0]]) for row in rows]

    def results(self, task_id: int, only: Sequence[str] | None = None) -> Operation[list[StepResult]]:
        """The results of the step's parents. With `only`: of the parents in these queues."""
        check_names(only, "only", "The queue")
        return Operation("results", lambda: _results(task_id, only), mode=Mode.READ)

    def execution(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Execution]:
        """How the steps of the task's workflow ended. With `only`: the steps in these queues."""
        check_names(only, "only", "The queue")
        return Operation("execution", lambda: self._execution(task_id, only), mode=Mode.SNAPSHOT)

    def _execution(self, task_id: int, only: Sequence[str] | None) -> Statements[Execution]:
        own = yield Statement("step", {"ids": [task_id]})
        if not own:
            raise (yield from _no_step(task_id))
        workflow = yield from self._found(own[0][1])
        steps = [_read_step(row, []) for row in (yield Statement("steps", {"id": workflow.id}))]
        if only is None or set(workflow.queues) <= set(only):
            return Execution.of(workflow, steps)
        # The name of the workflow and its error, which names a step, may be those of other queues.
        hidden = msgspec.structs.replace(workflow, name="", error=None)
        return Execution.of(hidden, [step for step in steps if step.queue in only])

    def _found(self, workflow_id: int) -> Statements[Workflow]:
        workflow = yield from self._advance.read_workflow(workflow_id)
        if workflow is None:
            raise WorkflowNotFound(workflow_id)
        return workflow

    def _locked(self, workflow_id: int) -> Statements[Workflow]:
        """The workflow, with its tree locked until this transaction ends."""
        yield from self._advance.lock_trees([workflow_id])
        return (yield from self._found(workflow_id))


def fingerprint(new: NewWorkflow) -> str:
    """A digest of the whole graph, by which a repeated start with the same key is recognized. The order of keys in
    params and the notation of times (60 or 60.0, the time zone) do not matter."""
    for task in new.tasks():
        encode_params(task.params)  # raises a clear error for params that dibs cannot store
    content = msgspec.json.encode(_content(new), order="sorted")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _content(new: NewWorkflow) -> list[Any]:
    steps = [
        [
            step.name,
            list(step.after),
            step.on_failure,
            _task_content(step.task),
            step.workflow and _content(step.workflow),
        ]
        for step in new.steps
    ]
    when = [] if new.finalize_when == FinalizeWhen.SUCCESS else [new.finalize_when]
    return [new.name, steps, _task_content(new.finalizer), new.on_failure, _micros(new.deadline), *when]


def _task_content(task: NewTask | None) -> list[Any] | None:
    if task is None:
        return None
    times = (
        task.delay, task.run_at, task.timeout, task.backoff.base, task.backoff.cap, task.expires_in, task.expires_at
    )  # fmt: skip
    params = comparable(task.params)
    content = [task.type, params, task.queue, task.priority, task.max_attempts, *map(_micros, times), *task.tags]
    return [*content, {"limits": sorted(task.limits), "group": task.group}] if task.limits or task.group else content


def _micros(time: float | datetime | None) -> int | None:
    if time is None:
        return None
    return to_micros(time) if isinstance(time, datetime) else round(time * 1e6)


def _wrong_state(workflow: Workflow, what: str, hint: str) -> WrongWorkflowState:
    state = f"{workflow.state}, and stopping" if workflow.stopping and not workflow.finished else workflow.state
    message = f"Workflow {workflow.id} {what}: it is {state}."
    return WrongWorkflowState(message, workflow_id=workflow.id, state=workflow.state, hint=hint)


def list_some(
    which: WorkflowFilter, floor: int | None = None, ids: Sequence[int] | None = None
) -> Statements[list[Workflow]]:
    """A page of workflows, newest first. `floor`: the lowest id. `ids`: only workflows with these ids."""
    only = None if which.only is None else list(which.only)
    given = {
        "workflow_state": which.state,
        "workflow_name": which.name,
        "workflow_cursor": which.cursor,
        "workflow_floor": floor,
        "workflow_ids": ids,
        "ids": ids,
        "workflow_queues": only,
        "queues": only,
    }
    which_ones = conditions(given, CONDITIONS)
    rows = yield Statement("list_workflows", given, words=(which_ones, *limited(which.limit)))
    return [read_workflow(row) for row in rows]


def _read_step(row: Row, after: list[int]) -> Step:
    (task_id, name, kind, type_name, queue, state, attempts, max_attempts, waits, on_failure, passed, worker_id,
     claimed_at, finished_at, error, workflow_id) = row  # fmt: skip
    return Step(
        task_id=task_id,
        name=name,
        kind=StepKind(kind),
        type=type_name,
        queue=queue,
        state=STATES[state],
        attempts=attempts,
        max_attempts=max_attempts,
        after=after,
        waits=waits,
        on_failure=OnFailure(on_failure),
        passed=None if passed is None else bool(passed),
        worker_id=worker_id,
        claimed_at=moment(claimed_at),
        finished_at=moment(finished_at),
        error=read_failure(error),
        workflow_id=workflow_id,
    )


def _no_step(task_id: int) -> Statements[DibsError]:
    """The error: the task is not a step, or does not exist."""
    rows = yield Statement("task_states", {"ids": [task_id]})
    if not rows:
        return TaskNotFound(task_id)
    hint = "Only the steps and the finalizer of a workflow have an execution."
    return WrongState(f"Task {task_id} is not a step of a workflow.", task_id=task_id, state=rows[0][1], hint=hint)


def _results(task_id: int, only: Sequence[str] | None) -> Statements[list[StepResult]]:
    rows: Rows = yield Statement("results", {"id": task_id})
    if not rows:
        step = yield Statement("step", {"ids": [task_id]})
        if step and step[0][3] == StepKind.FINALIZER:
            rows = yield Statement("last_results", {"id": step[0][1]})
    return [_read_result(row) for row in rows if only is None or row[-1] in only]


def _read_result(row: Row) -> StepResult:
    task_id, name, type_name, state, result, error, _ = row
    value = None if result is None else decode(result)
    return StepResult(task_id, name, type_name, STATES[state], value, read_failure(error))
