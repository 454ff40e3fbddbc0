"""Finalize workflows: exactly one processor decides about a workflow, under a claim with a token and a lease.

A processor that crashes or does not get the claim loses nothing: the workflow's row shows that the finalization is due
until it is done.
"""

from __future__ import annotations

from functools import partial

from dibs.errors import FinalizationLost, WorkflowNotFound
from dibs.json_values import check_name
from dibs.model.checks import check_integer, from_micros
from dibs.model.finalization import (
    ClaimReason,
    ExecutionContext,
    ExecutionStatus,
    FinalizationAction,
    FinalizationAttempt,
    FinalizationClaim,
    Finalized,
)
from dibs.model.workflow import Workflow, WorkflowState
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.dialect import FinalizationAnswer, FinalizationStatements
from dibs.store.operations.rows import moment

_STATES = ("pending", "scheduled", "claimed", "blocked", "completed", "failed", "cancelled")

DUE_BATCH = 100
"""Workflows in one list of due finalizations."""


class Finalize:
    """Claim, renew and release a finalization, and act under the claim."""

    def __init__(self, statements: FinalizationStatements) -> None:
        self._statements = statements

    def claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        """Claim the right to finalize, for one processor alone."""
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


def _found_context(workflow_id: int) -> Statements[ExecutionContext]:
    context = yield from read_context(workflow_id)
    if context is None:
        raise WorkflowNotFound(workflow_id)
    return context


def read_context(workflow_id: int) -> Statements[ExecutionContext | None]:
    """The execution context of the workflow, or None."""
    rows = yield Statement("execution_context", {"id": workflow_id})
    return _read_context(rows[0]) if rows else None


def _read_claim(workflow_id: int, processor: str, answer: FinalizationAnswer) -> FinalizationClaim:
    claimed, holder, state, message, reason, token, until = answer
    return FinalizationClaim(
        workflow_id=workflow_id,
        processor=processor,
        claimed=bool(claimed),
        reason=ClaimReason(reason),
        state=state,
        message=message,
        already_claimed_by=holder,
        token=token,
        lease_until=moment(until),
    )


def _check_claim(processor: str, token: int) -> None:
    """Raise InvalidValue for a processor id or token that no claim can have."""
    check_name(processor, "The processor's id")
    check_integer(token, "token", 0, 2**63 - 1)


def finalization_lost(workflow: Workflow, processor: str, token: int) -> FinalizationLost:
    """The error: this processor does not hold the claim under this token."""
    if workflow.state is not WorkflowState.RUNNING:
        where = f"it is {workflow.state}"
    elif workflow.finalization_by is None:
        where = "no processor holds it now"
    else:
        where = f"{workflow.finalization_by} holds it under token {workflow.finalization_token}"
    message = f"{processor} does not hold the finalization of workflow {workflow.id} under token {token}: {where}."
    return FinalizationLost(message, workflow_id=workflow.id, token=token)


def _read_context(row: Row) -> ExecutionContext:
    workflow_id, state, steps, *counts, passed, failures, percentage, status, action = row
    by_state = {name: int(count) for name, count in zip(_STATES, counts, strict=True) if count}
    return ExecutionContext(
        workflow_id=workflow_id,
        state=WorkflowState(state),
        total_steps=steps,
        by_state=by_state,
        passed=passed,
        failures=failures,
        completion_percentage=float(percentage),
        execution_status=ExecutionStatus(status),
        recommended_action=FinalizationAction(action),
    )


def _attempts(workflow_id: int) -> Statements[list[FinalizationAttempt]]:
    rows = yield Statement("finalization_attempts", {"id": workflow_id}, words=limited(2**31 - 1))
    return [read_attempt(row) for row in reversed(rows)]


def read_attempt(row: Row) -> FinalizationAttempt:
    """A recorded attempt to claim a finalization, from its row."""
    entry, workflow_id, processor, claimed, reason, state, message, holder, token, at = row
    return FinalizationAttempt(
        id=entry,
        workflow_id=workflow_id,
        processor=processor,
        claimed=bool(claimed),
        reason=ClaimReason(reason),
        state=state,
        message=message,
        already_claimed_by=holder,
        token=token,
        at=from_micros(at),
    )


def _any(statement: Statement) -> Statements[bool]:
    rows = yield statement
    return bool(rows)


def _ids(statement: Statement) -> Statements[list[int]]:
    rows = yield statement
    return [row[0] for row in rows]
