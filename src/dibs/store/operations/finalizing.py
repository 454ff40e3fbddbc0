"""Finalize: exactly one processor decides what became of a workflow, under a claim with a token and a lease.

The loser of a claim loses nothing: that a finalization is due stands in the workflow's row until it is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from dibs.store.operation import Operation, Row, Statement, Steps, limited
from dibs.store.operations.advancing import Advancing, Tally, deadline_exceeded, finalizer_cancelled, stopped_state
from dibs.store.operations.finishing import encode_failure
from dibs.store.operations.rows import moment, read_failure
from dibs.store.operations.workflows import SOME

_STATES = ("pending", "scheduled", "claimed", "blocked", "completed", "failed", "cancelled")

Answered = tuple[bool, str | None, str, str, str, int | None, int | None]
"""claimed, already_claimed_by, state, message, reason, token, lease_until: what a wish to finalize is answered with."""


class Finalizing(Advancing, ABC):
    """Claim, renew, release, and act."""

    @abstractmethod
    def ask_for_finalization(self, workflow_id: int, processor: str, lease: int) -> Steps[Any]:
        """Claim the finalization or say why not, and record it; an `Answered`."""

    def claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        """The right to finalize, to one processor alone."""
        check_name(processor, "The processor's id")
        return Operation("claim_finalization", lambda: self._claim_finalization(workflow_id, processor, lease))

    def _claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Steps[FinalizationClaim]:
        return _answer(workflow_id, processor, (yield from self.ask_for_finalization(workflow_id, processor, lease)))

    def renew_finalization(
        self, workflow_id: int, processor: str, token: int, lease: int
    ) -> Operation[FinalizationClaim]:
        """Extend the claim that this processor has under this token."""
        _check_claim(processor, token)
        return Operation("renew_finalization", lambda: self._renew_finalization(workflow_id, processor, token, lease))

    def _renew_finalization(self, workflow_id: int, processor: str, token: int, lease: int) -> Steps[FinalizationClaim]:
        answer = yield from self.extend_finalization(workflow_id, processor, token, lease)
        return _answer(workflow_id, processor, answer)

    def extend_finalization(self, workflow_id: int, processor: str, token: int, lease: int) -> Steps[Any]:
        """Extend the claim or say why not; an `Answered`."""
        given = {"id": workflow_id, "processor": processor, "token": token, "lease": lease}
        rows = yield Statement("renew_finalization", given)
        workflow = yield from self.read_workflow(workflow_id)
        if workflow is None:
            return not_found()
        if workflow.finished:
            return already_complete(workflow)
        if workflow.state is WorkflowState.FINALIZING:
            return (yield from self.held_by_finalizer(workflow))
        status = (yield from self.execution_status(workflow)).value
        if rows:
            return True, processor, status, "Claim extended", ClaimReason.EXTENDED, *rows[0]
        [[now]] = yield Statement("clock")
        return _not_extended(workflow, status, now)

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> Operation[bool]:
        """Give up the claim that this processor has under this token."""
        _check_claim(processor, token)
        given = {"id": workflow_id, "processor": processor, "token": token}
        return Operation("release_finalization", lambda: _any(Statement("release_finalization", given)), wakes=True)

    def finalize(self, workflow_id: int, processor: str, token: int) -> Operation[Finalized]:
        """Act on the execution context, in one transaction, if the claim is live."""
        _check_claim(processor, token)
        steps = partial(self.finalize_held, workflow_id, processor, token)
        return Operation("finalize", steps, wakes=True, atomic=True)

    def finalize_held(self, workflow_id: int, processor: str, token: int) -> Steps[Finalized]:
        """Check the claim and act; raises FinalizationLost or WorkflowNotFound, and changes nothing then."""
        yield from self.hold_trees([workflow_id])
        workflow = yield from self.read_workflow(workflow_id)
        if workflow is None:
            raise WorkflowNotFound(workflow_id)
        _check_holder(workflow, processor, token)
        status = yield from self.execution_status(workflow)
        tally = Tally()
        action = yield from self._act(workflow, ACTION_FOR_STATUS[status], tally)
        due = yield from self.count(tally)
        now = yield from self.read_workflow(workflow_id)
        assert now is not None
        return Finalized(workflow_id, now.state, status, action, due)

    def _act(self, workflow: Workflow, action: FinalizationAction, tally: Tally) -> Steps[FinalizationAction]:
        if action is FinalizationAction.RECHECK_LATER or not (yield from self.begun(workflow)):
            action = FinalizationAction.RECHECK_LATER  # before its turn also where nothing in it could run
            yield Statement("leave_finalization", {"id": workflow.id})
        elif action is FinalizationAction.FAIL_WORKFLOW or workflow.stopping is not None:
            action = FinalizationAction.FAIL_WORKFLOW
            yield from self.cancel_waiting(workflow.id, tally)
            state = stopped_state(workflow)
            error = None if state is WorkflowState.CANCELLED else (yield from _cause(workflow))
            yield from self.end(workflow, state, error, tally)
        elif workflow.finalizer_id is None:
            yield from self.end(workflow, State.COMPLETED, None, tally)
        else:
            yield from self._begin_finalizer(workflow, workflow.finalizer_id, tally)
        return action

    def _begin_finalizer(self, workflow: Workflow, task_id: int, tally: Tally) -> Steps[None]:
        yield Statement("begin_finalizer", {"id": workflow.id})
        yield Statement("begin_finalizer_step", {"id": task_id})
        if not (yield Statement("ready_steps", {"ids": [task_id]}, change=True)):
            yield from self.end(workflow, WorkflowState.FAILED, encode_failure(finalizer_cancelled(task_id)), tally)

    # Look

    def execution_context(self, workflow_id: int) -> Operation[ExecutionContext]:
        """How the workflow's steps stand."""
        return Operation("execution_context", lambda: self._found_context(workflow_id), writes=False)

    def _found_context(self, workflow_id: int) -> Steps[ExecutionContext]:
        context = yield from self._context(workflow_id)
        if context is None:
            raise WorkflowNotFound(workflow_id)
        return context

    def _context(self, workflow_id: int) -> Steps[ExecutionContext | None]:
        rows = yield Statement("execution_context", {"id": workflow_id})
        return _read_context(rows[0]) if rows else None

    def execution_status(self, workflow: Workflow) -> Steps[ExecutionStatus]:
        """How the workflow's steps stand. Only where some are active must they be looked at: who is about to finalize
        gets its answer from the counters, however many steps there are."""
        if workflow.active:
            context = yield from self._context(workflow.id)
            assert context is not None
            return context.execution_status
        if workflow.failures:
            return ExecutionStatus.BLOCKED_BY_FAILURES
        if workflow.ended >= workflow.steps:
            return ExecutionStatus.ALL_COMPLETE
        return ExecutionStatus.WAITING_FOR_DEPENDENCIES

    def held_by_finalizer(self, workflow: Workflow) -> Steps[Answered]:
        """The right to finalize has passed to the finalizer's own claim."""
        rows = yield Statement("get", {"ids": [workflow.finalizer_id]})
        holder = rows[0][16] if rows else None
        message = "Workflow already claimed for finalization: its finalizer runs"
        return False, holder, workflow.state.value, message, ClaimReason.ALREADY_CLAIMED, None, None

    def due_finalizations(self, limit: int = SOME) -> Operation[list[int]]:
        """Workflows that wait for somebody to finalize them."""
        return Operation(
            "due_finalizations", lambda: _ids(Statement("due_finalizations", words=limited(limit))), writes=False
        )

    def finalization_attempts(self, workflow_id: int) -> Operation[list[FinalizationAttempt]]:
        """Every recorded wish to finalize the workflow."""
        return Operation("finalization_attempts", lambda: _attempts(workflow_id), writes=False)


def not_found() -> Answered:
    """There is no such workflow: that is no race."""
    return False, None, "not_found", "Workflow not found", ClaimReason.NOT_FOUND, None, None


def already_complete(workflow: Workflow) -> Answered:
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


def _answer(workflow_id: int, processor: str, answered: Answered) -> FinalizationClaim:
    claimed, holder, state, message, reason, token, until = answered
    return FinalizationClaim(
        workflow_id, processor, bool(claimed), ClaimReason(reason), state, message, holder, token, moment(until)
    )


def _not_extended(workflow: Workflow, status: str, now: int) -> Answered:
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


def _cause(workflow: Workflow) -> Steps[str]:
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


def _attempts(workflow_id: int) -> Steps[list[FinalizationAttempt]]:
    rows = yield Statement("finalization_attempts", {"id": workflow_id}, words=limited(2**31 - 1))
    return [read_attempt(row) for row in reversed(rows)]


def read_attempt(row: Row) -> FinalizationAttempt:
    """A recorded wish to finalize, from its row."""
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


def _any(statement: Statement) -> Steps[bool]:
    rows = yield statement
    return bool(rows)


def _ids(statement: Statement) -> Steps[list[int]]:
    rows = yield statement
    return [row[0] for row in rows]
