"""Finalization as JSON: claim the finalization of a workflow, and finalize it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, field

from dibs.json_values import check_name
from dibs.model import finalization as model_finalization
from dibs.model.checks import check_integer
from dibs.model.claim import MAX_BATCH
from dibs.model.finalization import (
    DEFAULT_FINALIZATION_LEASE,
    ClaimReason,
    ExecutionStatus,
    FinalizationAction,
)
from dibs.model.workflow import WorkflowState
from dibs.wire.fields import (
    Lease,
    ProcessorId,
    Query,
    RequestBody,
    Timestamp,
    Token,
    to_datetime,
    to_datetime_or_none,
    to_text,
    to_text_or_none,
)


class ProcessorBody(RequestBody, frozen=True):
    """The processor that sends the request."""

    processor: ProcessorId = field(name="processor_id")


class ClaimFinalizationBody(ProcessorBody, frozen=True):
    """The processor that claims the finalization, and the lease of the claim."""

    lease: Lease = field(name="timeout_seconds", default=DEFAULT_FINALIZATION_LEASE)


class HolderBody(ProcessorBody, frozen=True):
    """The claim: its processor and its token."""

    token: Token

    @classmethod
    def from_model(cls, processor: str, token: int, **more: Any) -> Self:
        """The claim to send. It is checked first, because the server would call an invalid token invalid JSON."""
        check_name(processor, "The processor's id")
        return cls(processor=processor, token=check_integer(token, "token", 0, 2**63 - 1), **more)


class ExtendBody(HolderBody, frozen=True):
    """The claim, and for how long to extend it."""

    lease: Lease = field(name="timeout_seconds", default=DEFAULT_FINALIZATION_LEASE)


class FinalizationClaim(msgspec.Struct, frozen=True):
    """The answer to a claim of the finalization. `token` and `lease_until` are set if the claim was granted."""

    success: bool
    workflow_id: int
    processor: str = field(name="processor_id")
    claimed: bool
    already_claimed_by: str | None
    state: Annotated[str, Meta(description="The state of the workflow.")]
    message: str
    reason: ClaimReason
    token: Annotated[int | None, Meta(description="Proves the claim when the workflow is finalized.")]
    lease_until: Annotated[Timestamp | None, Meta(description="When the claim ends unless it is renewed.")]

    @classmethod
    def from_model(cls, claim: model_finalization.FinalizationClaim) -> Self:
        """The claim, or why it was not granted, as an answer."""
        return cls(
            success=claim.claimed,
            workflow_id=claim.workflow_id,
            processor=claim.processor,
            claimed=claim.claimed,
            already_claimed_by=claim.already_claimed_by,
            state=claim.state,
            message=claim.message,
            reason=claim.reason,
            token=claim.token,
            lease_until=to_text_or_none(claim.lease_until),
        )

    def to_model(self) -> model_finalization.FinalizationClaim:
        """The claim, or why it was not granted."""
        return model_finalization.FinalizationClaim(
            workflow_id=self.workflow_id,
            processor=self.processor,
            claimed=self.claimed,
            reason=self.reason,
            state=self.state,
            message=self.message,
            already_claimed_by=self.already_claimed_by,
            token=self.token,
            lease_until=to_datetime_or_none(self.lease_until),
        )


# The answers with status 404 and 409 have types of their own, so that the OpenAPI document gives each its example.


class UnknownWorkflow(FinalizationClaim, frozen=True):
    """The answer to a claim of the finalization of a workflow that does not exist."""


class NotClaimed(FinalizationClaim, frozen=True):
    """The answer to a claim of the finalization that was not granted."""


class FinalizationReleased(msgspec.Struct, frozen=True):
    """Whether the processor held the claim under the token. If not, nothing changed."""

    success: bool
    released: bool

    @classmethod
    def from_model(cls, released: bool) -> Self:
        """The result as an answer."""
        return cls(success=released, released=released)

    def to_model(self) -> bool:
        """True if the claim was given up."""
        return self.released


class Finalized(msgspec.Struct, frozen=True):
    """The result of a finalization."""

    success: bool
    workflow_id: int
    state: WorkflowState = field(name="status")
    execution_status: ExecutionStatus
    action: FinalizationAction

    @classmethod
    def from_model(cls, done: model_finalization.Finalized) -> Self:
        """The result as an answer."""
        return cls(
            success=True,
            workflow_id=done.workflow_id,
            state=done.state,
            execution_status=done.execution_status,
            action=done.action,
        )

    def to_model(self) -> model_finalization.Finalized:
        """The result. The server itself finalizes the outer workflows, so `due` is left out."""
        return model_finalization.Finalized(
            workflow_id=self.workflow_id,
            state=self.state,
            execution_status=self.execution_status,
            action=self.action,
        )


class ExecutionContext(msgspec.Struct, frozen=True):
    """The states of a workflow's steps, and the action that follows from them. The finalizer is not counted.

    `passed`: the number of steps whose children may start. `failures`: the number of the other steps that have ended.
    """

    workflow_id: int
    state: WorkflowState = field(name="status")
    total_steps: int
    by_state: dict[str, int]
    passed: int
    failures: int
    completion_percentage: float
    execution_status: ExecutionStatus
    recommended_action: FinalizationAction

    @classmethod
    def from_model(cls, context: model_finalization.ExecutionContext) -> Self:
        """The context as JSON."""
        return cls(
            workflow_id=context.workflow_id,
            state=context.state,
            total_steps=context.total_steps,
            by_state=context.by_state,
            passed=context.passed,
            failures=context.failures,
            completion_percentage=context.completion_percentage,
            execution_status=context.execution_status,
            recommended_action=context.recommended_action,
        )

    def to_model(self) -> model_finalization.ExecutionContext:
        """The context."""
        return model_finalization.ExecutionContext(
            workflow_id=self.workflow_id,
            state=self.state,
            total_steps=self.total_steps,
            by_state=self.by_state,
            passed=self.passed,
            failures=self.failures,
            completion_percentage=self.completion_percentage,
            execution_status=self.execution_status,
            recommended_action=self.recommended_action,
        )


class OneContext(msgspec.Struct, frozen=True):
    """The execution context of a workflow."""

    context: ExecutionContext

    @classmethod
    def from_model(cls, context: model_finalization.ExecutionContext) -> Self:
        """The context as an answer."""
        return cls(context=ExecutionContext.from_model(context))

    def to_model(self) -> model_finalization.ExecutionContext:
        """The context."""
        return self.context.to_model()


class FinalizationAttempt(msgspec.Struct, frozen=True):
    """A recorded attempt to claim the finalization of a workflow."""

    id: int
    workflow_id: int
    processor: str = field(name="processor_id")
    claimed: bool
    reason: ClaimReason
    state: str
    message: str
    already_claimed_by: str | None
    token: int | None
    at: Timestamp

    @classmethod
    def from_model(cls, attempt: model_finalization.FinalizationAttempt) -> Self:
        """The attempt as JSON."""
        return cls(
            id=attempt.id,
            workflow_id=attempt.workflow_id,
            processor=attempt.processor,
            claimed=attempt.claimed,
            reason=attempt.reason,
            state=attempt.state,
            message=attempt.message,
            already_claimed_by=attempt.already_claimed_by,
            token=attempt.token,
            at=to_text(attempt.at),
        )

    def to_model(self) -> model_finalization.FinalizationAttempt:
        """The attempt."""
        return model_finalization.FinalizationAttempt(
            id=self.id,
            workflow_id=self.workflow_id,
            processor=self.processor,
            claimed=self.claimed,
            reason=self.reason,
            state=self.state,
            message=self.message,
            already_claimed_by=self.already_claimed_by,
            token=self.token,
            at=to_datetime(self.at),
        )


class FinalizationAttempts(msgspec.Struct, frozen=True):
    """Every recorded attempt to claim the finalization of a workflow."""

    attempts: list[FinalizationAttempt]

    @classmethod
    def from_model(cls, attempts: Sequence[model_finalization.FinalizationAttempt]) -> Self:
        """The attempts as an answer."""
        return cls(attempts=[FinalizationAttempt.from_model(attempt) for attempt in attempts])

    def to_model(self) -> list[model_finalization.FinalizationAttempt]:
        """The attempts."""
        return [attempt.to_model() for attempt in self.attempts]


class DueQuery(Query, frozen=True):
    """The size of the page."""

    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH, description="The largest number of ids.")] = 100


class DueWorkflows(msgspec.Struct, frozen=True):
    """The ids of workflows that wait for their finalization, the longest wait first."""

    workflows: list[int]

    def to_model(self) -> list[int]:
        """The ids."""
        return self.workflows
