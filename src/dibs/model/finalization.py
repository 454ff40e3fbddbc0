"""Finalization: which processor may end a workflow, what it decides by, and the record of every attempt to claim it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from dibs.codec import MAX_NAME, check_name
from dibs.model.workflow import WorkflowState

DEFAULT_FINALIZATION_LEASE = 30.0


class ExecutionStatus(StrEnum):
    """How a workflow's steps stand, the first that holds."""

    HAS_READY_STEPS = "has_ready_steps"
    PROCESSING = "processing"
    WAITING_FOR_RETRY = "waiting_for_retry"
    BLOCKED_BY_FAILURES = "blocked_by_failures"
    ALL_COMPLETE = "all_complete"
    WAITING_FOR_DEPENDENCIES = "waiting_for_dependencies"


class FinalizationAction(StrEnum):
    """What the one who holds the finalization should do."""

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
    """How far a workflow is: its steps by state, and what follows from that. The finalizer is not counted."""

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
    """How an attempt to claim a finalization ended: a word for programs, tables and metrics."""

    CLAIMED = "claimed"
    EXTENDED = "extended"  # the same processor asked again
    ALREADY_CLAIMED = "already_claimed"  # by another
    NOT_CLAIMED = "not_claimed"  # nobody has a claim that could be extended
    ALREADY_COMPLETE = "already_complete"
    NOT_READY = "not_ready"  # no step has completed or failed yet
    NOT_FOUND = "not_found"
    RACE_CONDITION = "race_condition"  # another claimed it between the look and the write


class FinalizationClaim(msgspec.Struct, frozen=True):
    """The answer to a wish to finalize. `token` and `lease_until` are there if it was granted."""

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
    """A recorded wish to finalize."""

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
    """What became of a workflow whose finalization was held: the `action` taken, and where it stands now.

    `due`: the workflows that wait for their finalization because of it, as the one that it is a part of may.
    """

    workflow_id: int
    state: WorkflowState
    execution_status: ExecutionStatus
    action: FinalizationAction
    due: Sequence[int] = ()


def unique_processor(name: str) -> str:
    """The name with a random part, for one process: a claim under the name of its holder is an extension."""
    check_name(name, "The processor's id")
    suffix = f"-{secrets.token_hex(8)}"
    return name[: MAX_NAME - len(suffix)] + suffix
