"""Advance a workflow after the end of a step: its children may begin, and the last step makes the finalization due.

All of it happens in the transaction that ended the step, while the root of the workflow's tree is locked. Whether a
step has passed is decided once, so an end that is reported twice is counted once. The counters can be derived from the
steps: upkeep corrects counters that missed a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from dibs.model.task import Failure, State
from dibs.model.workflow import STOP_CANCELLED, STOP_DEADLINE, STOP_FAILED, OnFailure, StepKind, Workflow, WorkflowState
from dibs.store.operation import WIDTH, Rows, Statement, Statements
from dibs.store.operations.dialect import Dialect
from dibs.store.operations.rows import read_workflow

WAITING = ("scheduled", "pending", "blocked")
"""States of tasks that wait. The order is that of a promotion, so a task that is promoted between two statements is
found in its next state."""


class CounterChanges:
    """The changes of the counters of some workflows."""

    def __init__(self) -> None:
        self._changes: defaultdict[int, dict[str, int]] = defaultdict(
            lambda: {"steps": 0, "active": 0, "ended": 0, "failures": 0}
        )
        self.ignored: set[int] = set()
        """Steps whose failure their workflow ignores."""
        self.reopened: list[int] = []
        """Workflows that run again."""

    def add(self, workflow_id: int, **changes: int) -> None:
        """Add to the counters of a workflow. Without changes, only its finalization is checked."""
        counts = self._changes[workflow_id]
        for name, by in changes.items():
            counts[name] += by

    def rows(self) -> list[dict[str, Any]]:
        """The rows for `count_steps`."""
        return [{"id": workflow_id, **counts} for workflow_id, counts in sorted(self._changes.items())]


class Advance:
    """Statements that change workflows, for the operations that end, stop or reopen steps."""

    def __init__(self, dialect: Dialect) -> None:
        self.lock_roots = dialect.lock_roots

    # Lock

    def lock_steps(self, task_ids: Collection[int]) -> Statements[set[int]]:
        """Lock the workflow trees of the steps among these tasks. Returns the ids of the steps."""
        rows = yield Statement("steps_among", {"ids": list(task_ids)})
        yield from self.lock_roots(sorted({row[1] for row in rows}))
        return {row[0] for row in rows}

    def lock_trees(self, workflow_ids: Collection[int]) -> Statements[set[int]]:
        """Lock the trees of these workflows. Returns the ids of the workflows that exist."""
        rows = yield Statement("roots_of", {"ids": list(workflow_ids)})
        yield from self.lock_roots(sorted({row[1] for row in rows}))
        return {row[0] for row in rows}

    def read_workflow(self, workflow_id: int) -> Statements[Workflow | None]:
        """The workflow as it is now."""
        rows = yield Statement("get_workflow", {"id": workflow_id})
        return read_workflow(rows[0]) if rows else None

    # Advance

    def advance(
        self, ended: Sequence[int], begun: bool = True, ignored: set[int] | None = None
    ) -> Statements[list[int]]:
        """Count steps that have ended, and start their children if their workflow has `begun`. The caller has locked
        the trees. Returns the ids of the workflows that now wait for their finalization. The steps whose failure is
        ignored are added to `ignored`."""
        if not ended:
            return []
        changes = CounterChanges()
        yield from self.apply_ends(ended, changes, begun)
        if ignored is not None:
            ignored |= changes.ignored
        return (yield from self.write_counters(changes))

    def advance_each(self, ended: Sequence[int]) -> Statements[None]:
        """`advance` for steps that ended while they waited, of any workflows: a workflow may not have begun."""
        rows = (yield Statement("step", {"ids": list(ended)})) if ended else []
        for workflow_id in sorted({row[1] for row in rows}):
            workflow = yield from self.read_workflow(workflow_id)
            assert workflow is not None
            begun = yield from self.has_begun(workflow)
            yield from self.advance([row[0] for row in rows if row[1] == workflow_id], begun)

    def write_counters(self, changes: CounterChanges) -> Statements[list[int]]:
        """Write the counters. Returns the ids of the workflows that now wait for their finalization."""
        rows = changes.rows()
        if not rows:
            return []
        counted = yield Statement("count_steps", rows=rows)
        return [row[0] for row in counted if row[1] is not None]

    def apply_ends(self, ended: Sequence[int], changes: CounterChanges, begun: bool = True) -> Statements[None]:
        """Apply the end of these steps to their children and their workflows."""
        rows = yield Statement("decide_steps", {"ids": list(ended), "given_up": False})
        _count_decided(rows, changes)
        yield from self._ignore([row[0] for row in rows if row[5] and row[6] == State.FAILED], changes)
        yield from self._cancel_sub_workflows(rows, changes)
        steps = [row for row in rows if row[2] != StepKind.FINALIZER]
        yield from self._open_children([row[0] for row in steps if row[5]], changes, begun)
        for workflow_id in sorted({row[1] for row in steps if not row[5] and row[3] == OnFailure.FAIL}):
            yield from self.stop(workflow_id, STOP_FAILED, changes)
        yield from self._end_finalized(rows, changes)

    def _ignore(self, failed: list[int], changes: CounterChanges) -> Statements[None]:
        """Mark failed steps whose workflow ignores the failure: they are not in the dead letter."""
        if failed:
            yield Statement("ignore_failures", {"ids": failed}, change=True)
            changes.ignored.update(failed)

    def _open_children(self, passed: list[int], changes: CounterChanges, begun: bool) -> Statements[None]:
        if not passed:
            return
        children = yield Statement("open_children", {"ids": passed})
        free = [row for row in children if row[3] == 0 and row[4] is None]
        if begun:
            yield from self.make_ready(free, changes)
        elif free:  # like steps without parents, these steps wait until their workflow begins
            yield Statement("add_waits", rows=[{"task_id": row[0], "more": 1} for row in free])

    def make_ready(self, steps: Rows, changes: CounterChanges) -> Statements[None]:
        """Start steps that wait for nothing any more. A sub-workflow starts with its first steps, which may again be
        sub-workflows."""
        while steps:
            yield Statement("ready_steps", {"ids": [row[0] for row in steps]}, change=True)
            for row in steps:
                changes.add(row[1], active=1)
            sub_steps = [row[0] for row in steps if row[2] == StepKind.WORKFLOW]
            steps = (yield from self._begin(sub_steps, changes)) if sub_steps else []

    def has_begun(self, workflow: Workflow) -> Statements[bool]:
        """True for a top-level workflow, and for a sub-workflow whose step has started."""
        if workflow.step_of is None:
            return True
        rows = yield Statement("get", {"ids": [workflow.step_of]})
        return bool(rows) and rows[0][3] == State.CLAIMED

    def _begin(self, sub_steps: list[int], changes: CounterChanges) -> Statements[Rows]:
        opened = yield Statement("start_sub_workflow_steps", {"ids": sub_steps}, change=True)
        workflows = [row[WIDTH] for row in opened]
        for workflow_id in workflows:
            changes.add(workflow_id)  # the finalization of a workflow without steps is due at once
        yield Statement("begin_workflows", {"ids": workflows})
        steps = yield Statement("begin_steps", {"ids": workflows})
        return [row for row in steps if row[4] is None]

    # Stop

    def stop(self, workflow_id: int, why: str, changes: CounterChanges) -> Statements[None]:
        """Start no more steps of the workflow. Running steps may end, unless the workflow is cancelled or past its
        deadline: then they are asked to stop, also where the workflow was failing before."""
        if not (yield Statement("stop_workflow", {"id": workflow_id, "why": why})):
            return
        changes.add(workflow_id)
        yield from self.cancel_waiting(workflow_id, changes)
        if why != STOP_FAILED:
            yield Statement("stop_steps", {"id": workflow_id}, change=True)
            yield from self.cancel_waiting(workflow_id, changes)  # steps that were recovered in between
            for (sub,) in (yield Statement("sub_workflows", {"id": workflow_id})):
                yield from self.stop(sub, STOP_CANCELLED, changes)

    def cancel_waiting(self, workflow_id: int, changes: CounterChanges) -> Statements[None]:
        """Cancel the steps that have not begun, and sub-workflows with all their steps."""
        cancelled: list[int] = []
        for state in WAITING:
            rows = yield Statement("cancel_steps", {"id": workflow_id, "from_state": state}, change=True)
            cancelled += [row[0] for row in rows]
        if cancelled:
            decided = yield Statement("decide_steps", {"ids": cancelled, "given_up": True})
            _count_decided(decided, changes)
            yield from self._cancel_sub_workflows(decided, changes)
            yield from self._end_finalized(decided, changes)

    def _cancel_sub_workflows(self, decided: Rows, changes: CounterChanges) -> Statements[None]:
        """Cancel the sub-workflows whose step was cancelled before it began: they have nothing to finalize."""
        sub_steps = [row[0] for row in decided if row[2] == StepKind.WORKFLOW and row[-1] == State.CANCELLED]
        for sub in (yield from self.sub_workflows_of(sub_steps)):
            yield from self.cancel_waiting(sub, changes)
            yield Statement("end_workflow", {"id": sub, "state": WorkflowState.CANCELLED.value, "error": None})
            workflow = yield from self.read_workflow(sub)
            assert workflow is not None
            yield from self._cancel_finalizer(workflow)

    def sub_workflows_of(self, steps: list[int]) -> Statements[list[int]]:
        """The sub-workflows that these steps represent."""
        rows = (yield Statement("workflows_of_steps", {"ids": steps})) if steps else []
        return [row[0] for row in rows]

    # End

    def conclude(
        self, workflow: Workflow, state: WorkflowState, error: str | None, changes: CounterChanges
    ) -> Statements[None]:
        """The steps of the workflow have ended in this way: begin its finalizer, if that runs after such an end, else
        end the workflow. The caller has locked the tree."""
        if workflow.finalizer_id is not None and workflow.finalize_when.includes(state):
            if (yield from self._begin_finalizer(workflow.id, workflow.finalizer_id, error)):
                return
            if state is WorkflowState.COMPLETED:
                state = WorkflowState.FAILED
                error = msgspec.json.encode(finalizer_cancelled(workflow.finalizer_id)).decode()
        yield from self.end_workflow(workflow, state, error, changes)

    def _begin_finalizer(self, workflow_id: int, task_id: int, error: str | None) -> Statements[bool]:
        """False if a client has cancelled the finalizer."""
        yield Statement("begin_finalizer", {"id": workflow_id, "error": error})
        yield Statement("begin_finalizer_step", {"id": task_id})
        return bool((yield Statement("ready_steps", {"ids": [task_id]}, change=True)))

    def _cancel_finalizer(self, workflow: Workflow) -> Statements[None]:
        """Cancel the finalizer of an ended workflow, if it has not run."""
        if workflow.finalizer_id is None:
            return
        if (yield Statement("cancel_finalizer", {"id": workflow.finalizer_id}, change=True)):
            yield Statement("decide_steps", {"ids": [workflow.finalizer_id], "given_up": True})

    def end_workflow(
        self, workflow: Workflow, state: str, error: str | None, changes: CounterChanges, result: str | None = None
    ) -> Statements[None]:
        """End the workflow in this state, and the step of the outer workflow that represents it."""
        ended = yield Statement("end_workflow", {"id": workflow.id, "state": state, "error": error})
        if not ended:
            return
        yield from self._cancel_finalizer(workflow)
        if workflow.step_of is None:
            return
        if state == State.COMPLETED and workflow.state is not WorkflowState.FINALIZING:
            result = yield from self._last_results(workflow.id)
        outcome = {"id": workflow.step_of, "state": state, "result": result, "error": error}
        for before in ("claimed", "blocked"):
            if (yield Statement("finish_sub_workflow_step", {**outcome, "from_state": before}, change=True)):
                begun = before == "claimed" or (yield from self._outer_has_begun(workflow.step_of))
                yield from self.apply_ends([workflow.step_of], changes, begun)
                return

    def _outer_has_begun(self, step: int) -> Statements[bool]:
        """True if the workflow of this step, which was cancelled before it began, has begun itself."""
        [(_, workflow_id, *_)] = yield Statement("step", {"ids": [step]})
        workflow = yield from self.read_workflow(workflow_id)
        return workflow is not None and (yield from self.has_begun(workflow))

    def _end_finalized(self, decided: Rows, changes: CounterChanges) -> Statements[None]:
        """End the workflows whose finalizer has ended."""
        for task_id, workflow_id, kind, _, _, passed, _ in decided:
            if kind != StepKind.FINALIZER:
                continue
            workflow = yield from self.read_workflow(workflow_id)
            if workflow is None or workflow.state is not WorkflowState.FINALIZING:
                continue  # the finalizer was cancelled with the other steps, before it began
            [(result, error)] = yield Statement("outcome", {"id": task_id})
            if workflow.ends_as is not WorkflowState.COMPLETED:
                yield from self.end_workflow(workflow, workflow.ends_as, _encoded(workflow.error), changes)
                continue
            state = WorkflowState.COMPLETED if passed else stopped_state(workflow)
            if state is WorkflowState.FAILED and (error is None or workflow.stopping == STOP_DEADLINE):
                error = msgspec.json.encode(_why_not_finalized(workflow, task_id)).decode()
            yield from self.end_workflow(
                workflow, state, error if state is WorkflowState.FAILED else None, changes, result
            )

    def _last_results(self, workflow_id: int) -> Statements[str]:
        rows = yield Statement("last_results", {"id": workflow_id})
        results = {row[1]: None if row[4] is None else msgspec.Raw(row[4].encode()) for row in rows}
        return msgspec.json.encode(results).decode()

    # Reopen

    def reopen(self, workflow_id: int, changes: CounterChanges) -> Statements[None]:
        """Run an ended workflow again, from the steps that did not pass."""
        if (yield Statement("reopen_workflow", {"id": workflow_id})):
            changes.add(workflow_id)
            changes.reopened.append(workflow_id)
            rows = yield Statement("unpassed_steps", {"id": workflow_id})
            yield from self.reopen_steps(workflow_id, rows, changes)

    def reopen_steps(self, workflow_id: int, rows: Rows, changes: CounterChanges) -> Statements[None]:
        """Undo the end of these steps (task, kind, waits, state)."""
        ids = [row[0] for row in rows]
        for state in (State.FAILED.value, State.CANCELLED.value):
            some = [row[0] for row in rows if row[3] == state]
            if some:
                if state == State.FAILED:
                    yield Statement("restore", {"ids": some}, change=True)
                yield Statement("reopen_steps", {"ids": some, "from_state": state}, change=True)
        if ids:
            yield Statement("undecide_steps", {"ids": ids})
        steps = [row for row in rows if row[1] != StepKind.FINALIZER]
        changes.add(workflow_id, ended=-len(steps), failures=-len(steps))
        for sub in (yield from self.sub_workflows_of([row[0] for row in steps if row[1] == StepKind.WORKFLOW])):
            yield from self.reopen(sub, changes)
        ready = [(task_id, workflow_id, kind, waits) for task_id, kind, waits, _ in steps if waits == 0]
        yield from self.make_ready(ready, changes)


def stopped_state(workflow: Workflow) -> WorkflowState:
    """The state in which a workflow ends that did not complete."""
    return WorkflowState.CANCELLED if workflow.stopping == STOP_CANCELLED else WorkflowState.FAILED


def deadline_exceeded(workflow: Workflow) -> Failure:
    """The error of a workflow that passed its deadline."""
    return Failure("DeadlineExceeded", f"The workflow had not ended by {workflow.deadline:%Y-%m-%d %H:%M:%S} UTC.")


def finalizer_cancelled(task_id: int) -> Failure:
    """The error of a workflow whose finalizer was cancelled."""
    return Failure("FinalizerCancelled", f"The finalizer, task {task_id}, was cancelled.")


def _why_not_finalized(workflow: Workflow, task_id: int) -> Failure:
    return deadline_exceeded(workflow) if workflow.stopping == STOP_DEADLINE else finalizer_cancelled(task_id)


def _encoded(error: Failure | None) -> str | None:
    return None if error is None else msgspec.json.encode(error).decode()


def _count_decided(decided: Rows, changes: CounterChanges) -> None:
    """Count the rows of `decide_steps` in their workflows."""
    for _, workflow_id, kind, _, waits, passed, _ in decided:
        if kind != StepKind.FINALIZER:  # the finalizer is not counted: it waits for the counted steps
            changes.add(workflow_id, active=-(waits == 0), ended=1, failures=int(not passed))
