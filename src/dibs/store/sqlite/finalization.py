"""Claim, renew and act on finalizations in SQLite, which has no functions in the database."""

from __future__ import annotations

from typing import Any

from dibs.errors import WorkflowNotFound
from dibs.model.checks import from_micros
from dibs.model.finalization import (
    ACTION_FOR_STATUS,
    ClaimReason,
    ExecutionStatus,
    FinalizationAction,
    Finalized,
)
from dibs.model.task import Failure, State
from dibs.model.workflow import STOP_DEADLINE, Workflow, WorkflowState
from dibs.store.operation import Statement, Statements
from dibs.store.operations.advance import Advance, CounterChanges, deadline_exceeded, stopped_state
from dibs.store.operations.dialect import FinalizationAnswer
from dibs.store.operations.finalize import finalization_lost, read_context
from dibs.store.operations.finish import encode_failure
from dibs.store.operations.rows import read_failure


class SqliteFinalization:
    """Finalization by statements. See FinalizationStatements."""

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
            yield from self._advance.conclude(workflow, state, error, changes)
        else:
            yield from self._advance.conclude(workflow, WorkflowState.COMPLETED, None, changes)
        return action


def _execution_status(workflow: Workflow) -> Statements[ExecutionStatus]:
    """The state of the workflow's steps. They are read only if some are active: otherwise the counters are enough,
    however many steps there are."""
    if workflow.active:
        context = yield from read_context(workflow.id)
        assert context is not None
        return context.execution_status
    if workflow.failures:
        return ExecutionStatus.BLOCKED_BY_FAILURES
    if workflow.ended >= workflow.steps:
        return ExecutionStatus.ALL_COMPLETE
    return ExecutionStatus.WAITING_FOR_DEPENDENCIES


def _held_by_finalizer(workflow: Workflow) -> Statements[FinalizationAnswer]:
    """The answer while the finalizer runs: its own claim holds the workflow."""
    rows = yield Statement("get", {"ids": [workflow.finalizer_id]})
    holder = rows[0][16] if rows else None
    message = "Workflow already claimed for finalization: its finalizer runs"
    return False, holder, workflow.state.value, message, ClaimReason.ALREADY_CLAIMED, None, None


def _not_found() -> FinalizationAnswer:
    """The answer if the workflow does not exist."""
    return False, None, "not_found", "Workflow not found", ClaimReason.NOT_FOUND, None, None


def _already_complete(workflow: Workflow) -> FinalizationAnswer:
    """The answer if the workflow has ended."""
    return (
        False,
        None,
        workflow.state.value,
        "Workflow already complete",
        ClaimReason.ALREADY_COMPLETE,
        None,
        None,
    )


def _not_extended(workflow: Workflow, status: str, now: int) -> FinalizationAnswer:
    """The answer to a renewal by a processor that does not hold the claim: another processor holds it, or none."""
    by, until = workflow.finalization_by, workflow.finalization_until
    if by is None or until is None or until <= from_micros(now):
        message = "Nobody holds the finalization of this workflow"
        return False, None, status, message, ClaimReason.NOT_CLAIMED, None, None
    message = f"Workflow already claimed for finalization by {by} under token {workflow.finalization_token}"
    return False, by, status, message, ClaimReason.ALREADY_CLAIMED, None, None


def _check_holder(workflow: Workflow, processor: str, token: int) -> None:
    """The fence: the token is issued once, and belongs to one processor."""
    held = (workflow.state, workflow.finalization_by, workflow.finalization_token)
    if held != (WorkflowState.RUNNING, processor, token):
        raise finalization_lost(workflow, processor, token)


def _cause(workflow: Workflow) -> Statements[str]:
    """The error of the failed workflow, as JSON."""
    rows = yield Statement("first_failure", {"id": workflow.id})
    if workflow.stopping == STOP_DEADLINE:
        return encode_failure(deadline_exceeded(workflow))
    if not rows:
        return encode_failure(Failure("WorkflowStopped", "It was stopped before it was done."))
    name, task_id, state, error = rows[0]
    failure = read_failure(error)
    because = "." if failure is None else f": {failure.type}: {failure.message}"
    return encode_failure(
        Failure(
            "StepFailed",
            f"Step {name!r} (task {task_id}) was {state}{because}"
            if state == State.CANCELLED
            else f"Step {name!r} (task {task_id}) failed{because}",
        )
    )
