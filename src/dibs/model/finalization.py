"""Finalization: the claim to end a workflow, the execution status that decides how, and the record of all claims."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from dibs.json_values import MAX_NAME, check_name
from dibs.model.workflow import WorkflowState

DEFAULT_FINALIZATION_LEASE = 30.0


class ExecutionStatus(StrEnum):
    """The status of a workflow's steps: the first of these that applies."""

    HAS_READY_STEPS = "has_ready_steps"
    PROCESSING = "processing"
    WAITING_FOR_RETRY = "waiting_for_retry"
    BLOCKED_BY_FAILURES = "blocked_by_failures"
    ALL_COMPLETE = "all_complete"
    WAITING_FOR_DEPENDENCIES = "waiting_for_dependencies"


class FinalizationAction(StrEnum):
    """What the holder of the finalization claim should do."""

    RECHECK_LATER = "recheck_later"
    FAIL_WORKFLOW = "fail_workflow"
    COMPLETE_WORKFLOW = "complete_workflow"


ACTION_FOR_STATUS = {
    ExecutionStatus.HAS_READY_STEPS: FinalizationAction.RECHECK_LATER,
    ExecutionStatus.PROCESSING: FinalizationAction.RECHECK_LATER,
    ExecutionStatus.WAITING_FOR_RETRY: FinalizationAction.RECHECK_LATER,
    ExecutionStatus.BLOCKED_BY_FAILURES: FinalizationAction.FAIL_WORKFLOW,
    ExecutionStatus.ALL_COMPLETE: FinalizationAction.COMPLETE_WORKFLOW,
    ExecutionStatus.WAITING_FOR_DEPENDENCIES: FinalizationAction.RECHECK_LATER,
}


class ExecutionContext(msgspec.Struct, frozen=True):
    """The progress of a workflow: its steps by state, and the recommended action. The finalizer is not counted.

    `passed`: the number of steps whose children may start. `failures`: the number of the other steps that have ended.
    """

    workflow_id: int
    state: WorkflowState
    total_steps: int
    by_state: dict[str, int]
    passed: int
    failures: int
    completion_percentage: float
    execution_status: ExecutionStatus
    recommended_action: FinalizationAction


class ClaimReason(StrEnum):
    """The result of an attempt to claim a finalization, for programs, tables and metrics."""

    CLAIMED = "claimed"
    EXTENDED = "extended"  # the same processor claimed it again
    ALREADY_CLAIMED = "already_claimed"  # by another processor
    NOT_CLAIMED = "not_claimed"  # the processor has no claim to extend
    ALREADY_COMPLETE = "already_complete"
    NOT_READY = "not_ready"  # no step has completed or failed yet
    NOT_FOUND = "not_found"
    RACE_CONDITION = "race_condition"  # another processor claimed it between the read and the write


class FinalizationClaim(msgspec.Struct, frozen=True):
    """The result of a claim of a finalization. `token` and `lease_until` are set if the claim was granted."""

    workflow_id: int
    processor: str
    claimed: bool
    reason: ClaimReason
    state: str
    message: str
    already_claimed_by: str | None = None
    token: int | None = None
    lease_until: datetime | None = None


class FinalizationAttempt(msgspec.Struct, frozen=True):
    """A recorded attempt to claim a finalization."""

    id: int
    workflow_id: int
    processor: str
    claimed: bool
    reason: ClaimReason
    state: str
    message: str
    already_claimed_by: str | None
    token: int | None
    at: datetime


class Finalized(msgspec.Struct, frozen=True):
    """The result of a finalization: the `action` taken, and the state of the workflow afterwards.

    `due`: the workflows that are due for finalization because of it, such as the workflow that contains this one.
    """

    workflow_id: int
    state: WorkflowState
    execution_status: ExecutionStatus
    action: FinalizationAction
    due: Sequence[int] = ()


def unique_processor(name: str) -> str:
    """The name with a random suffix. It must be unique, because a second claim under the same name extends the
    first."""
    check_name(name, "The processor's id")
    suffix = f"-{secrets.token_hex(8)}"
    return name[: MAX_NAME - len(suffix)] + suffix
