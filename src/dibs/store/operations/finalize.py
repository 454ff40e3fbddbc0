"""Finalize workflows: exactly one processor decides about a workflow, under a claim with a token and a lease.

A processor that does not get the claim loses nothing: the workflow's row says that its finalization is due until it is
done.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dibs.codec import check_name
from dibs.errors import FinalizationLost, WorkflowNotFound
from dibs.model.checks import check_integer, from_micros
from dibs.model.finalization import (
    ACTION_FOR_STATUS,
    ClaimReason,
    ExecutionContext,
    ExecutionStatus,
    FinalizationAction,
    FinalizationAttempt,
    FinalizationClaim,
    Finalized,
)
from dibs.model.task import Failure, State
from dibs.model.workflow import STOP_DEADLINE, Workflow, WorkflowState
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.advance import Advance, CounterChanges, deadline_exceeded, finalizer_cancelled, stopped_state
from dibs.store.operations.dialect import FinalizationAnswer, FinalizationStatements
from dibs.store.operations.finish import encode_failure
from dibs.store.operations.rows import moment, read_failure

_STATES = ("pending", "scheduled", "claimed", "blocked", "completed", "failed", "cancelled")

DUE_BATCH = 100
"""Workflows in one list of due finalizations."""


class Finalize:
    """Claim, renew and release a finalization, and act under the claim."""

    def __init__(self, statements: FinalizationStatements) -> None:
        self._statements = statements

    def claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        """The right to finalize, for one processor alone."""
        check_name(processor, "The processor's id")
        return Operation(
            "claim_finalization",
            lambda: self._statements.claim(workflow_id, processor, lease),
            decode=partial(_read_claim, workflow_id, processor),
        )

    def renew_finalization(
        self, workflow_id: int, processor: str, token: int, lease: int
    ) -> Operation[FinalizationClaim]:
        """Extend the claim that this processor has under this token."""
        _check_claim(processor, token)
        return Operation(
            "renew_finalization",
            lambda: self._statements.renew(workflow_id, processor, token, lease),
            decode=partial(_read_claim, workflow_id, processor),
        )

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> Operation[bool]:
        """Give up the claim that this processor has under this token."""
        _check_claim(processor, token)
        given = {"id": workflow_id, "processor": processor, "token": token}
        return Operation("release_finalization", lambda: _any(Statement("release_finalization", given)), wakes=True)

    def finalize(self, workflow_id: int, processor: str, token: int) -> Operation[Finalized]:
        """Act on the execution context, in one transaction, if the claim is live."""
        _check_claim(processor, token)
        begin = partial(self._statements.act, workflow_id, processor, token)
        return Operation("finalize", begin, mode=Mode.TRANSACTION, wakes=True)

    # Read

    def execution_context(self, workflow_id: int) -> Operation[ExecutionContext]:
        """The state of the workflow's steps."""
        return Operation("execution_context", lambda: _found_context(workflow_id), mode=Mode.READ)

    def due_finalizations(self, limit: int = DUE_BATCH) -> Operation[list[int]]:
        """Workflows that wait for a processor to finalize them."""
        return Operation(
            "due_finalizations", lambda: _ids(Statement("due_finalizations", words=limited(limit))), mode=Mode.READ
        )

    def finalization_attempts(self, workflow_id: int) -> Operation[list[FinalizationAttempt]]:
        """Every recorded attempt to claim the finalization of the workflow."""
        return Operation("finalization_attempts", lambda: _attempts(workflow_id), mode=Mode.READ)


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


def _found_context(workflow_id: int) -> Statements[ExecutionContext]:
    context = yield from _context(workflow_id)
    if context is None:
        raise WorkflowNotFound(workflow_id)
    return context


def _context(workflow_id: int) -> Statements[ExecutionContext | None]:
    rows = yield Statement("execution_context", {"id": workflow_id})
    return _read_context(rows[0]) if rows else None


def _execution_status(workflow: Workflow) -> Statements[ExecutionStatus]:
    """The state of the workflow's steps. They are read only if some are active: otherwise the counters are enough,
    however many steps there are."""
    if workflow.active:
        context = yield from _context(workflow.id)
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
    """There is no such workflow: that is no race."""
    return False, None, "not_found", "Workflow not found", ClaimReason.NOT_FOUND, None, None


def _already_complete(workflow: Workflow) -> FinalizationAnswer:
    """Whatever was to be decided has been."""
    return (
        False,
        None,
        workflow.state.value,
        "Workflow already complete",
        ClaimReason.ALREADY_COMPLETE,
        None,
        None,
    )


def _read_claim(workflow_id: int, processor: str, answer: FinalizationAnswer) -> FinalizationClaim:
    claimed, holder, state, message, reason, token, until = answer
    return FinalizationClaim(
        workflow_id, processor, bool(claimed), ClaimReason(reason), state, message, holder, token, moment(until)
    )


def _not_extended(workflow: Workflow, status: str, now: int) -> FinalizationAnswer:
    """The claim is another one, or there is none."""
    by, until = workflow.finalization_by, workflow.finalization_until
    if by is None or until is None or until <= from_micros(now):
        message = "Nobody holds the finalization of this workflow"
        return False, None, status, message, ClaimReason.NOT_CLAIMED, None, None
    message = f"Workflow already claimed for finalization by {by} under token {workflow.finalization_token}"
    return False, by, status, message, ClaimReason.ALREADY_CLAIMED, None, None


def _check_claim(processor: str, token: int) -> None:
    """A processor and a token that a claim may have."""
    check_name(processor, "The processor's id")
    check_integer(token, "token", 0, 2**63 - 1)


def _check_holder(workflow: Workflow, processor: str, token: int) -> None:
    """The fence: the token is issued once, and belongs to one processor."""
    held = (workflow.state, workflow.finalization_by, workflow.finalization_token)
    if held != (WorkflowState.RUNNING, processor, token):
        raise finalization_lost(workflow, processor, token)


def finalization_lost(workflow: Workflow, processor: str, token: int) -> FinalizationLost:
    """The claim is not this processor's under this token."""
    if workflow.state is not WorkflowState.RUNNING:
        where = f"it is {workflow.state}"
    elif workflow.finalization_by is None:
        where = "nobody holds it now"
    else:
        where = f"{workflow.finalization_by} holds it under token {workflow.finalization_token}"
    message = f"{processor} does not hold the finalization of workflow {workflow.id} under token {token}: {where}."
    return FinalizationLost(message, workflow_id=workflow.id, token=token)


def _cause(workflow: Workflow) -> Statements[str]:
    """Why the workflow failed."""
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


def _read_context(row: Row) -> ExecutionContext:
    workflow_id, state, steps, *counts, passed, failures, percentage, status, action = row
    by_state = {name: int(count) for name, count in zip(_STATES, counts, strict=True) if count}
    return ExecutionContext(
        workflow_id,
        WorkflowState(state),
        steps,
        by_state,
        passed,
        failures,
        float(percentage),
        ExecutionStatus(status),
        FinalizationAction(action),
    )


def _attempts(workflow_id: int) -> Statements[list[FinalizationAttempt]]:
    rows = yield Statement("finalization_attempts", {"id": workflow_id}, words=limited(2**31 - 1))
    return [read_attempt(row) for row in reversed(rows)]


def read_attempt(row: Row) -> FinalizationAttempt:
    """A recorded attempt to claim a finalization, from its row."""
    entry, workflow_id, processor, claimed, reason, state, message, holder, token, at = row
    return FinalizationAttempt(
        entry,
        workflow_id,
        processor,
        bool(claimed),
        ClaimReason(reason),
        state,
        message,
        holder,
        token,
        from_micros(at),
    )


def _any(statement: Statement) -> Statements[bool]:
    rows = yield statement
    return bool(rows)


def _ids(statement: Statement) -> Statements[list[int]]:
    rows = yield statement
    return [row[0] for row in rows]
