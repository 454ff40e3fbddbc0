"""What the server says of workflows, read into our words."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dibs.model.finalization import (
    ClaimReason,
    ExecutionContext,
    ExecutionStatus,
    FinalizationAction,
    FinalizationAttempt,
    FinalizationClaim,
    Finalized,
)
from dibs.model.task import Failure, State
from dibs.model.workflow import OnFailure, Step, StepKind, StepResult, Workflow, WorkflowState
from dibs.store.remote.wire import reader


class WireFinalization(msgspec.Struct):
    """Who may finalize a workflow."""

    token: int
    processor_id: str | None = None
    lease_until: datetime | None = None


class WireWorkflow(msgspec.Struct):
    """A workflow."""

    id: int
    name: str
    status: WorkflowState
    steps: int
    active: int
    ended: int
    failures: int
    created_at: datetime
    queues: list[str]
    root_id: int
    finalization: WireFinalization
    idempotency_key: str | None = None
    deadline: datetime | None = None
    finished_at: datetime | None = None
    on_failure: OnFailure = OnFailure.FAIL
    stopping: str | None = None
    error: Failure | None = None
    step_of: int | None = None
    finalizer_id: int | None = None

    def read(self, deduplicated: bool = False) -> Workflow:
        """The workflow."""
        held = self.finalization
        return Workflow(
            self.id, self.name, self.status, self.steps, self.active, self.ended, self.failures, self.created_at,
            self.queues, self.root_id, self.idempotency_key, self.deadline, self.finished_at, self.on_failure,
            self.stopping, self.error, self.step_of, self.finalizer_id, held.token, held.processor_id,
            held.lease_until, deduplicated,
        )  # fmt: skip


class WireStep(msgspec.Struct):
    """A step."""

    task_id: int
    name: str
    kind: StepKind
    task_type: str
    queue: str
    status: State
    attempts: int
    max_attempts: int
    after: list[int]
    waits: int
    on_failure: OnFailure
    passed: bool | None = None
    worker_id: str | None = None
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    error: Failure | None = None
    workflow_id: int | None = None

    def read(self) -> Step:
        """The step."""
        return Step(
            self.task_id, self.name, self.kind, self.task_type, self.queue, self.status, self.attempts,
            self.max_attempts, self.after, self.waits, self.on_failure, self.passed, self.worker_id, self.claimed_at,
            self.finished_at, self.error, self.workflow_id,
        )  # fmt: skip


class WireResult(msgspec.Struct):
    """What a parent came to."""

    task_id: int
    name: str
    task_type: str
    status: State
    result: Any = None
    error: Failure | None = None

    def read(self) -> StepResult:
        """The result."""
        return StepResult(self.task_id, self.name, self.task_type, self.status, self.result, self.error)


class WireContext(msgspec.Struct):
    """How a workflow's steps stand."""

    workflow_id: int
    status: WorkflowState
    total_steps: int
    by_state: dict[str, int]
    passed: int
    failures: int
    completion_percentage: float
    execution_status: ExecutionStatus
    recommended_action: FinalizationAction

    def read(self) -> ExecutionContext:
        """The context."""
        return ExecutionContext(
            self.workflow_id, self.status, self.total_steps, self.by_state, self.passed, self.failures,
            self.completion_percentage, self.execution_status, self.recommended_action,
        )  # fmt: skip


class WireFinalizationClaim(msgspec.Struct):
    """The answer to a wish to finalize."""

    workflow_id: int
    processor_id: str
    claimed: bool
    reason: ClaimReason
    state: str
    message: str
    already_claimed_by: str | None = None
    token: int | None = None
    lease_until: datetime | None = None

    def read(self) -> FinalizationClaim:
        """The answer."""
        return FinalizationClaim(
            self.workflow_id, self.processor_id, self.claimed, self.reason, self.state, self.message,
            self.already_claimed_by, self.token, self.lease_until,
        )  # fmt: skip


class WireAttempt(msgspec.Struct):
    """A recorded wish to finalize."""

    id: int
    workflow_id: int
    processor_id: str
    claimed: bool
    reason: ClaimReason
    state: str
    message: str
    at: datetime
    already_claimed_by: str | None = None
    token: int | None = None

    def read(self) -> FinalizationAttempt:
        """The attempt."""
        return FinalizationAttempt(
            self.id, self.workflow_id, self.processor_id, self.claimed, self.reason, self.state, self.message,
            self.already_claimed_by, self.token, self.at,
        )  # fmt: skip


class WireFinalized(msgspec.Struct):
    """What became of a workflow."""

    workflow_id: int
    status: WorkflowState
    execution_status: ExecutionStatus
    action: FinalizationAction

    def read(self) -> Finalized:
        """The same in our words."""
        return Finalized(self.workflow_id, self.status, self.execution_status, self.action)


class _Workflow(msgspec.Struct):
    workflow: WireWorkflow
    deduplicated: bool = False


class _Workflows(msgspec.Struct):
    workflows: list[WireWorkflow]


class _Steps(msgspec.Struct):
    steps: list[WireStep]


class _Results(msgspec.Struct):
    results: list[WireResult]


class _Context(msgspec.Struct):
    context: WireContext


class _Attempts(msgspec.Struct):
    attempts: list[WireAttempt]


class _DueWorkflows(msgspec.Struct):
    workflows: list[int]


class _Released(msgspec.Struct):
    released: bool


class _Checkpoints(msgspec.Struct):
    checkpoints: dict[str, Any]


class _Kept(msgspec.Struct):
    value: Any


read_workflow = reader(_Workflow, lambda said: said.workflow.read(said.deduplicated))
read_workflows = reader(_Workflows, lambda said: [workflow.read() for workflow in said.workflows])
read_steps = reader(_Steps, lambda said: [step.read() for step in said.steps])
read_results = reader(_Results, lambda said: [result.read() for result in said.results])
read_context = reader(_Context, lambda said: said.context.read())
read_attempts = reader(_Attempts, lambda said: [attempt.read() for attempt in said.attempts])
read_due_workflows = reader(_DueWorkflows, lambda said: said.workflows)
read_finalization_claim = reader(WireFinalizationClaim, lambda said: said.read())
read_finalized = reader(WireFinalized, lambda said: said.read())
read_released = reader(_Released, lambda said: said.released)
read_checkpoints = reader(_Checkpoints, lambda said: said.checkpoints)
read_kept = reader(_Kept, lambda said: said.value)
