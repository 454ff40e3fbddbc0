"""Finalization on SQLite: claim, renew, release and end in small statements under the write lock.

PostgreSQL has the same as functions in the database, for programs in other languages."""

from __future__ import annotations

from typing import Any

from dibs.errors import WorkflowNotFound
from dibs.model.finalization import (
    ACTION_FOR_STATUS,
    ClaimReason,
    FinalizationAction,
    Finalized,
)
from dibs.model.task import State
from dibs.model.workflow import Workflow, WorkflowState
from dibs.store.operation import Statement, Statements
from dibs.store.operations.advance import Advance, CounterChanges, finalizer_cancelled, stopped_state
from dibs.store.operations.dialect import FinalizationAnswer
from dibs.store.operations.finalize import (
    _already_complete,
    _cause,
    _check_holder,
    _execution_status,
    _held_by_finalizer,
    _not_extended,
    _not_found,
)
from dibs.store.operations.finish import encode_failure


class FinalizationByStatements:
    """Finalization for engines without functions in the database. See FinalizationStatements."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def claim(self, workflow_id: int, processor: str, lease: int) -> Statements[FinalizationAnswer]:
        """Claim the finalization, or find the reason why not, and record the attempt.

        Safe: the operation holds the write lock of the database, so no other processor can claim between the read and
        the write.
        """
        answer = yield from self._claim(workflow_id, processor, lease)
        names = ("claimed", "already_claimed_by", "state", "message", "reason", "token")
        yield Statement(
            "note_finalization",
            {"id": workflow_id, "processor": processor, **dict(zip(names, answer, strict=False))},
        )
        return answer

    def _claim(self, workflow_id: int, processor: str, lease: int) -> Statements[FinalizationAnswer]:
        workflow = yield from self._advance.read_workflow(workflow_id)
        if workflow is None:
            return _not_found()
        if workflow.finished:
            return _already_complete(workflow)
        if workflow.state is WorkflowState.FINALIZING:
            return (yield from _held_by_finalizer(workflow))
        status = (yield from _execution_status(workflow)).value
        if workflow.ended == 0 and workflow.steps > 0:
            return (
                False,
                None,
                status,
                "Workflow has no completed or failed steps",
                ClaimReason.NOT_READY,
                None,
                None,
            )
        given = {"id": workflow_id, "processor": processor, "lease": lease}
        claimed = yield Statement("claim_finalization", given)
        if not claimed:
            by = workflow.finalization_by
            return (
                False,
                by,
                status,
                "Workflow already claimed for finalization",
                ClaimReason.ALREADY_CLAIMED,
                None,
                None,
            )
        token, until = claimed[0]
        if token == workflow.finalization_token:
            return True, processor, status, "Claim extended", ClaimReason.EXTENDED, token, until
        return True, None, status, "Successfully claimed for finalization", ClaimReason.CLAIMED, token, until

    def renew(self, workflow_id: int, processor: str, token: int, lease: int) -> Statements[Any]:
        """Extend the claim, or find the reason why not."""
        given = {"id": workflow_id, "processor": processor, "token": token, "lease": lease}
        rows = yield Statement("renew_finalization", given)
        workflow = yield from self._advance.read_workflow(workflow_id)
        if workflow is None:
            return _not_found()
        if workflow.finished:
            return _already_complete(workflow)
        if workflow.state is WorkflowState.FINALIZING:
            return (yield from _held_by_finalizer(workflow))
        status = (yield from _execution_status(workflow)).value
        if rows:
            return True, processor, status, "Claim extended", ClaimReason.EXTENDED, *rows[0]
        [[now]] = yield Statement("clock")
        return _not_extended(workflow, status, now)

    def act(self, workflow_id: int, processor: str, token: int) -> Statements[Finalized]:
        """Check the claim and act on the state of the steps."""
        yield from self._advance.lock_trees([workflow_id])
        workflow = yield from self._advance.read_workflow(workflow_id)
        if workflow is None:
            raise WorkflowNotFound(workflow_id)
        _check_holder(workflow, processor, token)
        status = yield from _execution_status(workflow)
        changes = CounterChanges()
        action = yield from self._act(workflow, ACTION_FOR_STATUS[status], changes)
        due = yield from self._advance.write_counters(changes)
        now = yield from self._advance.read_workflow(workflow_id)
        assert now is not None
        return Finalized(workflow_id, now.state, status, action, due)

    def _act(
        self, workflow: Workflow, action: FinalizationAction, changes: CounterChanges
    ) -> Statements[FinalizationAction]:
        if action is FinalizationAction.RECHECK_LATER or not (yield from self._advance.has_begun(workflow)):
            action = FinalizationAction.RECHECK_LATER  # before its turn also where nothing in it could run
            yield Statement("leave_finalization", {"id": workflow.id})
        elif action is FinalizationAction.FAIL_WORKFLOW or workflow.stopping is not None:
            action = FinalizationAction.FAIL_WORKFLOW
            yield from self._advance.cancel_waiting(workflow.id, changes)
            state = stopped_state(workflow)
            error = None if state is WorkflowState.CANCELLED else (yield from _cause(workflow))
            yield from self._advance.end_workflow(workflow, state, error, changes)
        elif workflow.finalizer_id is None:
            yield from self._advance.end_workflow(workflow, State.COMPLETED, None, changes)
        else:
            yield from self._begin_finalizer(workflow, workflow.finalizer_id, changes)
        return action

    def _begin_finalizer(self, workflow: Workflow, task_id: int, changes: CounterChanges) -> Statements[None]:
        yield Statement("begin_finalizer", {"id": workflow.id})
        yield Statement("begin_finalizer_step", {"id": task_id})
        if not (yield Statement("ready_steps", {"ids": [task_id]}, change=True)):
            yield from self._advance.end_workflow(
                workflow, WorkflowState.FAILED, encode_failure(finalizer_cancelled(task_id)), changes
            )
