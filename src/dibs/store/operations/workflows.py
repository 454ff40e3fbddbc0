"""Workflows: started whole, grown while they run, stopped, retried, looked at."""

from __future__ import annotations

import hashlib
from abc import ABC
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.codec import decode, encode_params
from dibs.errors import KeyConflict, WorkflowNotFound, WrongWorkflowState
from dibs.model.checks import check_names, to_micros
from dibs.model.task import STATES, NewTask
from dibs.model.workflow import (
    STOP_CANCELLED,
    STOP_DEADLINE,
    STOP_PRUNED,
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
from dibs.store.operation import Operation, Row, Rows, Statement, Steps, limited
from dibs.store.operations.adding import Adding, Home, Part, check_room, queues_of
from dibs.store.operations.advancing import Tally
from dibs.store.operations.checking import Checks
from dibs.store.operations.filters import conditions
from dibs.store.operations.rows import moment, read_failure, read_workflow

SOME = 100
"""Workflows that one batch of upkeep looks after."""

CONDITIONS = (
    "workflow_state",
    "workflow_name",
    "workflow_cursor",
    "workflow_floor",
    "workflow_ids",
    "workflow_queues",
)


class Workflows(Adding, ABC):
    """The verbs of workflows."""

    def start_workflow(self, new: NewWorkflow) -> Operation[Workflow]:
        """Store the whole graph, or nothing."""
        checks = Checks.of(new.tasks())
        return Operation(
            "start_workflow", lambda: self._start_workflow(new, checks), wakes=True, atomic=True, checks=checks
        )

    def _start_workflow(self, new: NewWorkflow, checks: Checks) -> Steps[Workflow]:
        content = None if new.key is None else fingerprint(new)
        while True:
            if (known := (yield from self._with_key(new, content))) is not None:
                return known
            self.check_tasks(new.tasks(), checks)
            workflow_id = yield from self.insert_workflow(new, content=content)
            if workflow_id is not None:
                break  # else somebody was faster with this key
        tally = Tally()
        home = Home(workflow_id, workflow_id, new.on_failure)
        yield from self.insert_graph(Part(home, new.steps, new.finalizer, checks=checks), tally)
        tally.note(workflow_id)
        yield from self.count(tally)
        return (yield from self._found(workflow_id))

    def _with_key(self, new: NewWorkflow, content: str | None) -> Steps[Workflow | None]:
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
        """More steps for a workflow that runs."""
        checks = Checks.of(tasks_in(steps))
        return Operation(
            "add_steps", lambda: self._add_steps(workflow_id, steps, checks), wakes=True, atomic=True, checks=checks
        )

    def _add_steps(self, workflow_id: int, steps: Sequence[NewStep], checks: Checks) -> Steps[Workflow]:
        workflow = yield from self._held(workflow_id)
        if workflow.state is not WorkflowState.RUNNING or workflow.stopping is not None:
            raise _wrong_state(workflow, "cannot get more steps", "Only a workflow that runs can grow.")
        check_room(workflow, steps)
        tasks = list(tasks_in(steps))
        self.check_tasks(tasks, checks)
        known = yield from self.known_steps(workflow_id, steps)
        tally = Tally()
        home = Home(workflow_id, workflow.root_id, workflow.on_failure, begun=(yield from self.begun(workflow)))
        yield from self.insert_graph(Part(home, steps, None, known, checks), tally)
        yield from self.add_queues(workflow_id, tasks)
        yield from self.count(tally)
        return (yield from self._found(workflow_id))

    # Stop and go on

    def cancel_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Begin nothing more, and ask what runs to stop."""
        return Operation("cancel_workflow", lambda: self._cancel_workflow(workflow_id), wakes=True, atomic=True)

    def _cancel_workflow(self, workflow_id: int) -> Steps[Workflow]:
        workflow = yield from self._held(workflow_id)
        if workflow.state is WorkflowState.CANCELLED or workflow.stopping == STOP_CANCELLED:
            return workflow
        if workflow.finished:
            raise _wrong_state(workflow, "cannot be cancelled", "Ended workflows stay as they are.")
        tally = Tally()
        yield from self.give_up(workflow_id, STOP_CANCELLED, tally)
        yield from self.count(tally)
        stopping = yield from self._found(workflow_id)
        if stopping.active == 0 and stopping.state is WorkflowState.RUNNING:
            yield from self._end_now(stopping)  # nothing runs that somebody would have to wait for
        return (yield from self._found(workflow_id))

    def _end_now(self, workflow: Workflow) -> Steps[None]:
        tally = Tally()
        yield from self.end(workflow, WorkflowState.CANCELLED, None, tally)
        yield from self.count(tally)

    def retry_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Go on from where a failed or cancelled workflow stopped."""
        return Operation("retry_workflow", lambda: self._retry_workflow(workflow_id), wakes=True, atomic=True)

    def _retry_workflow(self, workflow_id: int) -> Steps[Workflow]:
        workflow = yield from self._held(workflow_id)
        if workflow.state not in (WorkflowState.FAILED, WorkflowState.CANCELLED):
            hint = "Only failed and cancelled workflows can be retried."
            raise _wrong_state(workflow, "cannot be retried", hint)
        if workflow.step_of is not None:
            hint = f"Retry workflow {workflow.root_id}, which it is a part of."
            raise _wrong_state(workflow, "cannot be retried on its own", hint)
        if workflow.stopping == STOP_PRUNED:
            raise _wrong_state(workflow, "cannot be retried", "It is past its retention: its steps are being deleted.")
        tally = Tally()
        yield from self.reopen(workflow_id, tally)
        yield from self.count(tally)
        return (yield from self._found(workflow_id))

    # Upkeep

    def expire_workflows(self, limit: int = SOME) -> Operation[int]:
        """Stop workflows that are past their deadline."""
        return Operation("expire_workflows", lambda: self._expire(limit), wakes=True, atomic=True)

    def _expire(self, limit: int) -> Steps[int]:
        rows = yield Statement("expired_workflows", words=limited(limit))
        if not rows:
            return 0
        held = yield from self.hold_trees([row[0] for row in rows])
        rows = yield Statement("expired_workflows", words=limited(limit))  # one may have been retried meanwhile
        tally = Tally()
        for (workflow_id,) in rows:
            if workflow_id in held:
                yield from self.give_up(workflow_id, STOP_DEADLINE, tally)
        yield from self.count(tally)
        return len(rows)

    def mend_workflows(self, limit: int = SOME) -> Operation[int]:
        """Make up for steps that ended without their workflow being told."""
        return Operation("mend_workflows", lambda: self._mend(limit), wakes=True, atomic=True)

    def _mend(self, limit: int) -> Steps[int]:
        rows = yield Statement("missed_steps", words=limited(limit))
        ids = [row[0] for row in rows]
        if ids:
            yield from self.hold_steps(ids)
            yield from self.advance(ids)
            return len(ids)
        forgotten = yield Statement("missed_finalizations")
        return len(forgotten)

    # Look

    def get_workflow(self, workflow_id: int) -> Operation[Workflow | None]:
        """The workflow, or None."""
        return Operation("get_workflow", lambda: self.read_workflow(workflow_id), writes=False, quick=True)

    def list_workflows(self, which: WorkflowFilter) -> Operation[list[Workflow]]:
        """A page of workflows, newest first."""
        return Operation("list_workflows", lambda: list_some(which), writes=False)

    def steps(self, workflow_id: int) -> Operation[list[Step]]:
        """The workflow's steps, in order."""
        return Operation("steps", lambda: self._steps(workflow_id), writes=False)

    def _steps(self, workflow_id: int) -> Steps[list[Step]]:
        yield from self._found(workflow_id)
        rows = yield Statement("steps", {"id": workflow_id})
        parents: defaultdict[int, list[int]] = defaultdict(list)
        for parent, child in (yield Statement("edges", {"id": workflow_id})):
            parents[child].append(parent)
        return [_read_step(row, parents[row[0]]) for row in rows]

    def results(self, task_id: int, only: Sequence[str] | None = None) -> Operation[list[StepResult]]:
        """The results of the step's parents; without those of parents outside of the queues `only`, if given."""
        check_names(only, "only", "The queue")
        return Operation("results", lambda: _results(task_id, only), writes=False)

    def _found(self, workflow_id: int) -> Steps[Workflow]:
        workflow = yield from self.read_workflow(workflow_id)
        if workflow is None:
            raise WorkflowNotFound(workflow_id)
        return workflow

    def _held(self, workflow_id: int) -> Steps[Workflow]:
        """The workflow, which nobody else changes until this transaction ends."""
        yield from self.hold_trees([workflow_id])
        return (yield from self._found(workflow_id))


def fingerprint(new: NewWorkflow) -> str:
    """What a workflow's key stands for: the whole graph, whatever the order of the params' keys, and however its times
    were written (60 or 60.0, in one time zone or another)."""
    for task in new.tasks():
        encode_params(task.params)  # refuses what dibs does not store, in words of its own
    content = msgspec.json.encode(_said(new), order="sorted")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _said(new: NewWorkflow) -> list[Any]:
    steps = [
        [step.name, list(step.after), step.on_failure, _task_said(step.task), step.workflow and _said(step.workflow)]
        for step in new.steps
    ]
    return [new.name, steps, _task_said(new.finalizer), new.on_failure, _micros(new.deadline)]


def _task_said(task: NewTask | None) -> list[Any] | None:
    if task is None:
        return None
    times = (task.delay, task.run_at, task.timeout, task.backoff.base, task.backoff.cap)
    return [task.type, task.params, task.queue, task.priority, task.max_attempts, *map(_micros, times)]


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
) -> Steps[list[Workflow]]:
    """A page of workflows, newest first; none below the floor, none but those with these ids."""
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
        task_id,
        name,
        StepKind(kind),
        type_name,
        queue,
        STATES[state],
        attempts,
        max_attempts,
        after,
        waits,
        OnFailure(on_failure),
        None if passed is None else bool(passed),
        worker_id,
        moment(claimed_at),
        moment(finished_at),
        read_failure(error),
        workflow_id,
    )


def _results(task_id: int, only: Sequence[str] | None) -> Steps[list[StepResult]]:
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
