"""Advance: a step has ended, its children may begin, and the last one makes the finalization due.

All of it happens in the transaction that ended the step, while the root of the workflow's tree is held. Every step is
settled once, so whoever is told twice of an end counts it once; and the counters are never the only truth: upkeep can
derive from the steps what was missed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from dibs.model.task import Failure, State
from dibs.model.workflow import STOP_CANCELLED, STOP_DEADLINE, STOP_FAILED, OnFailure, StepKind, Workflow, WorkflowState
from dibs.store.operation import WIDTH, Rows, Statement, Steps
from dibs.store.operations.rows import read_workflow
from dibs.store.witness import Witnessed

WAITING = ("scheduled", "pending", "blocked")
"""In the order in which tasks become due by themselves: what is promoted meanwhile is found in its next state."""


class Tally:
    """By how much the counters of some workflows change."""

    def __init__(self) -> None:
        self._changes: defaultdict[int, dict[str, int]] = defaultdict(
            lambda: {"steps": 0, "active": 0, "ended": 0, "failures": 0}
        )
        self.ignored: set[int] = set()
        """Steps that failed and that their workflows go on without."""

    def note(self, workflow_id: int, **changes: int) -> None:
        """So many more; with no changes the workflow is only looked at."""
        counts = self._changes[workflow_id]
        for name, by in changes.items():
            counts[name] += by

    def rows(self) -> list[dict[str, Any]]:
        """For `count_steps`."""
        return [{"id": workflow_id, **counts} for workflow_id, counts in sorted(self._changes.items())]


class Advancing(Witnessed, ABC):
    """From the end of a step to what follows."""

    # Holding

    def hold_steps(self, task_ids: Collection[int]) -> Steps[set[int]]:
        """Hold the trees of those tasks that are steps; which they are."""
        rows = yield Statement("steps_among", {"ids": list(task_ids)})
        yield from self.hold_roots(sorted({row[1] for row in rows}))
        return {row[0] for row in rows}

    def hold_trees(self, workflow_ids: Collection[int]) -> Steps[set[int]]:
        """Hold the trees of these workflows; which of them exist."""
        rows = yield Statement("roots_of", {"ids": list(workflow_ids)})
        yield from self.hold_roots(sorted({row[1] for row in rows}))
        return {row[0] for row in rows}

    @abstractmethod
    def hold_roots(self, ids: list[int]) -> Steps[None]:
        """Let nobody else change the trees of these roots before the transaction ends."""

    def read_workflow(self, workflow_id: int) -> Steps[Workflow | None]:
        """The workflow as it is now."""
        rows = yield Statement("get_workflow", {"id": workflow_id})
        return read_workflow(rows[0]) if rows else None

    # Advancing

    def advance(self, ended: Sequence[int], begun: bool = True, ignored: set[int] | None = None) -> Steps[list[int]]:
        """These steps have ended, and are held: let their children begin, if their workflow has. The workflows that now
        wait for their finalization. The steps whose failure is ignored are added to `ignored`."""
        if not ended:
            return []
        tally = Tally()
        yield from self.settle(ended, tally, begun)
        if ignored is not None:
            ignored |= tally.ignored
        return (yield from self.count(tally))

    def count(self, tally: Tally) -> Steps[list[int]]:
        """Write the counters; the workflows that now wait for their finalization."""
        rows = tally.rows()
        if not rows:
            return []
        counted = yield Statement("count_steps", rows=rows)
        return [row[0] for row in counted if row[1] is not None]

    def settle(self, ended: Sequence[int], tally: Tally, begun: bool = True) -> Steps[None]:
        """What the end of these steps means to their children and their workflows."""
        rows = yield Statement("settle_steps", {"ids": list(ended), "given_up": False})
        _tally(rows, tally)
        yield from self._ignore([row[0] for row in rows if row[5] and row[6] == State.FAILED], tally)
        yield from self._drop_subs(rows, tally)
        steps = [row for row in rows if row[2] != StepKind.FINALIZER]
        yield from self._open_children([row[0] for row in steps if row[5]], tally, begun)
        for workflow_id in sorted({row[1] for row in steps if not row[5] and row[3] == OnFailure.FAIL}):
            yield from self.give_up(workflow_id, STOP_FAILED, tally)
        yield from self._end_finalized(rows, tally)

    def _ignore(self, failed: list[int], tally: Tally) -> Steps[None]:
        """These steps failed, and their workflows go on without them: they are no dead letters."""
        if failed:
            yield Statement("ignore_failures", {"ids": failed}, change=True)
            tally.ignored.update(failed)

    def _open_children(self, passed: list[int], tally: Tally, begun: bool) -> Steps[None]:
        if not passed:
            return
        children = yield Statement("open_children", {"ids": passed})
        free = [row for row in children if row[3] == 0 and row[4] is None]
        if begun:
            yield from self.ready(free, tally)
        elif free:  # they wait for their workflow, as those without parents do
            yield Statement("add_waits", rows=[{"task_id": row[0], "more": 1} for row in free])

    def ready(self, steps: Rows, tally: Tally) -> Steps[None]:
        """These steps wait for nothing any more. A sub-workflow begins with its first steps, which may be others."""
        while steps:
            yield Statement("ready_steps", {"ids": [row[0] for row in steps]}, change=True)
            for row in steps:
                tally.note(row[1], active=1)
            gates = [row[0] for row in steps if row[2] == StepKind.WORKFLOW]
            steps = (yield from self._begin(gates, tally)) if gates else []

    def begun(self, workflow: Workflow) -> Steps[bool]:
        """True of a workflow of its own, and of a part of another one whose turn has come."""
        if workflow.step_of is None:
            return True
        rows = yield Statement("get", {"ids": [workflow.step_of]})
        return bool(rows) and rows[0][3] == State.CLAIMED

    def _begin(self, gates: list[int], tally: Tally) -> Steps[Rows]:
        opened = yield Statement("open_gates", {"ids": gates}, change=True)
        workflows = [row[WIDTH] for row in opened]
        for workflow_id in workflows:
            tally.note(workflow_id)  # one without steps is due at once
        yield Statement("begin_workflows", {"ids": workflows})
        steps = yield Statement("begin_steps", {"ids": workflows})
        return [row for row in steps if row[4] is None]

    # Stopping

    def give_up(self, workflow_id: int, why: str, tally: Tally) -> Steps[None]:
        """Begin nothing more. What runs may end, unless somebody wants the workflow to stop: that also those of a
        workflow that is failing, which so far were left to end."""
        if not (yield Statement("stop_workflow", {"id": workflow_id, "why": why})):
            return
        tally.note(workflow_id)
        yield from self.cancel_waiting(workflow_id, tally)
        if why != STOP_FAILED:
            yield Statement("stop_steps", {"id": workflow_id}, change=True)
            yield from self.cancel_waiting(workflow_id, tally)  # what was recovered from its worker in between
            for (sub,) in (yield Statement("sub_workflows", {"id": workflow_id})):
                yield from self.give_up(sub, STOP_CANCELLED, tally)

    def cancel_waiting(self, workflow_id: int, tally: Tally) -> Steps[None]:
        """Cancel what has not begun, sub-workflows with all that is in them."""
        cancelled: list[int] = []
        for state in WAITING:
            rows = yield Statement("cancel_steps", {"id": workflow_id, "from_state": state}, change=True)
            cancelled += [row[0] for row in rows]
        if cancelled:
            settled = yield Statement("settle_steps", {"ids": cancelled, "given_up": True})
            _tally(settled, tally)
            yield from self._drop_subs(settled, tally)
            yield from self._end_finalized(settled, tally)

    def _drop_subs(self, settled: Rows, tally: Tally) -> Steps[None]:
        """Sub-workflows whose step was cancelled before it began are cancelled: there is nothing to finalize."""
        gates = [row[0] for row in settled if row[2] == StepKind.WORKFLOW and row[-1] == State.CANCELLED]
        for sub in (yield from self.sub_workflows_of(gates)):
            yield from self.cancel_waiting(sub, tally)
            yield Statement("end_workflow", {"id": sub, "state": WorkflowState.CANCELLED.value, "error": None})

    def sub_workflows_of(self, steps: list[int]) -> Steps[list[int]]:
        """The sub-workflows that these steps represent."""
        rows = (yield Statement("workflows_of_steps", {"ids": steps})) if steps else []
        return [row[0] for row in rows]

    # Ending

    def end(
        self, workflow: Workflow, state: str, error: str | None, tally: Tally, result: str | None = None
    ) -> Steps[None]:
        """The workflow has ended so; if it is a step of another one, so has that step."""
        ended = yield Statement("end_workflow", {"id": workflow.id, "state": state, "error": error})
        if not ended or workflow.step_of is None:
            return
        if state == State.COMPLETED and workflow.finalizer_id is None:
            result = yield from self._last_results(workflow.id)
        said = {"id": workflow.step_of, "state": state, "result": result, "error": error}
        for before in ("claimed", "blocked"):
            if (yield Statement("finish_gate", {**said, "from_state": before}, change=True)):
                begun = before == "claimed" or (yield from self._begun_around(workflow.step_of))
                yield from self.settle([workflow.step_of], tally, begun)
                return

    def _begun_around(self, step: int) -> Steps[bool]:
        """Whether the workflow that has this step, which was cancelled before its turn, has begun itself."""
        [(_, workflow_id, *_)] = yield Statement("step", {"ids": [step]})
        workflow = yield from self.read_workflow(workflow_id)
        return workflow is not None and (yield from self.begun(workflow))

    def _end_finalized(self, settled: Rows, tally: Tally) -> Steps[None]:
        """A workflow whose finalizer has ended, has ended."""
        for task_id, workflow_id, kind, _, _, passed, _ in settled:
            if kind != StepKind.FINALIZER:
                continue
            workflow = yield from self.read_workflow(workflow_id)
            if workflow is None or workflow.state is not WorkflowState.FINALIZING:
                continue  # it was cancelled with the rest, before its turn came
            [(result, error)] = yield Statement("outcome", {"id": task_id})
            state = WorkflowState.COMPLETED if passed else stopped_state(workflow)
            if state is WorkflowState.FAILED and (error is None or workflow.stopping == STOP_DEADLINE):
                error = msgspec.json.encode(_why_not_finalized(workflow, task_id)).decode()
            yield from self.end(workflow, state, error if state is WorkflowState.FAILED else None, tally, result)

    def _last_results(self, workflow_id: int) -> Steps[str]:
        rows = yield Statement("last_results", {"id": workflow_id})
        results = {row[1]: None if row[4] is None else msgspec.Raw(row[4].encode()) for row in rows}
        return msgspec.json.encode(results).decode()

    # Going on

    def reopen(self, workflow_id: int, tally: Tally) -> Steps[None]:
        """An ended workflow runs again, from where it stopped."""
        if (yield Statement("reopen_workflow", {"id": workflow_id})):
            tally.note(workflow_id)
            rows = yield Statement("unpassed_steps", {"id": workflow_id})
            yield from self.reopen_steps(workflow_id, rows, tally)

    def reopen_steps(self, workflow_id: int, rows: Rows, tally: Tally) -> Steps[None]:
        """These steps (task, kind, waits, state) have not ended after all."""
        ids = [row[0] for row in rows]
        for state in (State.FAILED.value, State.CANCELLED.value):
            some = [row[0] for row in rows if row[3] == state]
            if some:
                if state == State.FAILED:
                    yield Statement("restore", {"ids": some}, change=True)
                yield Statement("reopen_steps", {"ids": some, "from_state": state}, change=True)
        if ids:
            yield Statement("unsettle_steps", {"ids": ids})
        steps = [row for row in rows if row[1] != StepKind.FINALIZER]
        tally.note(workflow_id, ended=-len(steps), failures=-len(steps))
        for sub in (yield from self.sub_workflows_of([row[0] for row in steps if row[1] == StepKind.WORKFLOW])):
            yield from self.reopen(sub, tally)
        ready = [(task_id, workflow_id, kind, waits) for task_id, kind, waits, _ in steps if waits == 0]
        yield from self.ready(ready, tally)


def stopped_state(workflow: Workflow) -> WorkflowState:
    """The state in which a workflow ends that did not complete."""
    return WorkflowState.CANCELLED if workflow.stopping == STOP_CANCELLED else WorkflowState.FAILED


def deadline_exceeded(workflow: Workflow) -> Failure:
    """Why a workflow failed that ran for too long."""
    return Failure("DeadlineExceeded", f"It was not done by {workflow.deadline:%Y-%m-%d %H:%M:%S} UTC.")


def finalizer_cancelled(task_id: int) -> Failure:
    """Why a workflow failed all of whose steps are done."""
    return Failure("FinalizerCancelled", f"The finalizer, task {task_id}, was cancelled.")


def _why_not_finalized(workflow: Workflow, task_id: int) -> Failure:
    return deadline_exceeded(workflow) if workflow.stopping == STOP_DEADLINE else finalizer_cancelled(task_id)


def _tally(settled: Rows, tally: Tally) -> None:
    for _, workflow_id, kind, _, waits, passed, _ in settled:
        if kind != StepKind.FINALIZER:  # it is not one of those that it waits for
            tally.note(workflow_id, active=-(waits == 0), ended=1, failures=int(not passed))
