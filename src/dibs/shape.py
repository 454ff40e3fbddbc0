"""The JSON that dibs answers with: one shape for each thing, the same on the command line and over HTTP.

A shape is a struct, so that the API's description is made from what the API says.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dibs.model.claim import Finished
from dibs.model.explanation import Explanation
from dibs.model.finalization import (
    ClaimReason,
    ExecutionContext,
    ExecutionStatus,
    FinalizationAction,
    FinalizationAttempt,
    FinalizationClaim,
    Finalized,
)
from dibs.model.history import HistoryEntry, StoreEvent
from dibs.model.key import ApiKey, Scope, write_limit
from dibs.model.registry import QueueInfo, TaskType, WorkerInfo, WorkerState
from dibs.model.retention import Records, RetentionChange, RetentionRule
from dibs.model.retry import Backoff
from dibs.model.schedule import CatchUp, Schedule, ScheduleSource
from dibs.model.statistics import Percentiles, Stats
from dibs.model.task import Event, Failure, SetAside, State, Task
from dibs.model.upkeep import Check, Verdict
from dibs.model.workflow import OnFailure, Step, StepKind, StepResult, Workflow, WorkflowState

Moment = Annotated[
    str,
    Meta(
        description="A time in UTC, always with microseconds, so that texts sort like times.",
        extra_json_schema={"format": "date-time", "examples": ["2025-11-12T10:30:00.123456Z"]},
    ),
]
JsonObject = dict[str, Any]


class FailureShape(msgspec.Struct, frozen=True):
    """How an attempt ended that did not complete."""

    type: str
    message: str
    traceback: str | None
    permanent: Annotated[bool, Meta(description="No further attempt follows, whatever was left.")] = False


class TaskShape(msgspec.Struct, frozen=True):
    """A task. `status` and `task_type` are its state and type: the API's words, older than ours."""

    id: int
    task_type: Annotated[str, Meta(description="What to run.")]
    status: State
    params: JsonObject
    priority: Annotated[int, Meta(description="Higher first.")]
    attempts: Annotated[int, Meta(description="Attempts that have ended, lost ones included.")]
    max_attempts: Annotated[int, Meta(description="After so many it is a dead letter.")]
    worker_id: Annotated[str | None, Meta(description="Who holds it, or held it last.")]
    claimed_at: Annotated[Moment | None, Meta(description="When it was last claimed.")]
    created_at: Annotated[Moment, Meta(description="When it was enqueued.")]
    queue: str
    token: Annotated[int, Meta(description="Grows by one with every claim, and fences what its worker writes.")]
    lease_until: Annotated[Moment | None, Meta(description="When the claim ends unless it is renewed.")]
    run_at: Annotated[Moment, Meta(description="Not claimed before this.")]
    finished_at: Annotated[Moment | None, Meta(description="When it was completed, failed for good or cancelled.")]
    timeout_seconds: Annotated[float | None, Meta(description="How long one attempt may take.")]
    idempotency_key: str | None
    type_version: Annotated[int | None, Meta(description="The version of its type that its params were checked by.")]
    dropped: Annotated[int, Meta(description="How often its worker was lost before it began.")]
    cancel_requested: Annotated[bool, Meta(description="Its worker has been asked to stop.")]
    progress: Annotated[int | None, Meta(description="In percent, as its worker says.")]
    progress_message: str | None
    result: Annotated[Any, Meta(description="What it came to; null unless completed.")]
    error: Annotated[FailureShape | None, Meta(description="How the last failed attempt ended.")]
    workflow_id: Annotated[int | None, Meta(description="The workflow that it is a step of.")]
    traceparent: Annotated[str, Meta(description="The span of who enqueued it, if that traces.")] | UnsetType = UNSET
    set_aside: (
        Annotated[SetAside, Meta(description="Why the failed task is not in the dead letter; left out where it is.")]
        | UnsetType
    ) = UNSET


class FinishedShape(msgspec.Struct, frozen=True):
    """Where the task stands now. `repeated`: this outcome was told before, and nothing was written again."""

    success: bool
    task_id: int
    status: State
    attempts: int
    will_retry: bool
    run_at: Moment | None
    repeated: bool


class PageShape(msgspec.Struct, frozen=True):
    """A page of a list; `next_cursor` is null after the last."""

    tasks: list[TaskShape]
    next_cursor: int | None


class HistoryEntryShape(msgspec.Struct, frozen=True):
    """One thing that happened to a task."""

    id: int
    task_id: int
    event: Event
    from_state: State | None
    to_state: State
    worker_id: str | None
    token: int
    by: str | None
    at: Moment
    detail: JsonObject | None


class EventShape(HistoryEntryShape, frozen=True):
    """One thing that happened, with the queue and type of its task; both are null once the task is pruned."""

    queue: str | None
    task_type: str | None


class ReasonShape(msgspec.Struct, frozen=True):
    """One reason why a task is not running; `code` is for programs."""

    code: str
    message: str


class ExplanationShape(msgspec.Struct, frozen=True):
    """Why a task is not running, as of now."""

    task_id: int
    status: State
    reasons: list[ReasonShape]


class QueueShape(msgspec.Struct, frozen=True):
    """A queue and how many tasks it holds in each state."""

    name: str
    paused: bool
    paused_at: Moment | None
    depth: dict[str, int]


class WorkerShape(msgspec.Struct, frozen=True):
    """A worker and the ids of the tasks it holds."""

    id: str
    incarnation: str
    state: WorkerState
    queues: list[str] | None
    task_types: list[str] | None
    metadata: JsonObject
    started_at: Moment
    heartbeat_at: Moment
    stopped_at: Moment | None
    holds: list[int]


class TaskTypeShape(msgspec.Struct, frozen=True):
    """One version of a registered task type."""

    name: str
    version: int
    schema: JsonObject | bool | None
    defaults: JsonObject
    created_at: Moment


class BackoffShape(msgspec.Struct, frozen=True):
    """How long a failed task rests: base, doubled with every attempt, up to the cap."""

    base_seconds: float
    cap_seconds: float


class ScheduleShape(msgspec.Struct, frozen=True):
    """A schedule, when it ticks next, and what became of its last tick."""

    name: str
    cron: str
    timezone: str
    catch_up: CatchUp
    enabled: bool
    task_type: str
    params: JsonObject
    queue: str
    priority: int
    max_attempts: int
    timeout_seconds: float | None
    backoff: BackoffShape
    source: ScheduleSource
    next_at: Moment
    created_at: Moment
    updated_at: Moment
    last_at: Moment | None
    last_task_id: int | None
    last_error: str | None


class RetentionRuleShape(msgspec.Struct, frozen=True):
    """How long some records are kept. `keep_seconds`: null for ever, 0 until the next upkeep. Without a queue, task
    type or workflow it is the default of the store; `changed_at` is null where that was never changed."""

    records: Records
    keep_seconds: float | None
    queue: str | None
    task_type: str | None
    workflow: str | None
    changed_at: Moment | None
    changed_by: str | None


class RetentionChangeShape(msgspec.Struct, frozen=True):
    """A change of a retention rule: set to `keep_seconds` (null for ever), or removed."""

    id: int
    at: Moment
    by: str | None
    records: Records
    keep_seconds: float | None
    removed: bool
    queue: str | None
    task_type: str | None
    workflow: str | None


class KeyShape(msgspec.Struct, frozen=True):
    """An API key, without anything that would help to guess it. `queues`: null for all; `rate_limit`: or "none"."""

    id: str
    name: str
    scopes: list[Scope]
    queues: list[str] | None
    rate_limit: str
    created_at: Moment
    created_by: str | None
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None


class FinalizationShape(msgspec.Struct, frozen=True):
    """Who holds the right to finalize a workflow. `token` grows by one with every claim."""

    token: int
    processor_id: str | None
    lease_until: Moment | None


class WorkflowShape(msgspec.Struct, frozen=True):
    """A workflow."""

    id: int
    name: str
    status: WorkflowState
    steps: Annotated[int, Meta(description="How many it has, without its finalizer.")]
    active: Annotated[int, Meta(description="How many of them run, or may.")]
    ended: Annotated[int, Meta(description="How many of them are completed, failed for good or cancelled.")]
    failures: Annotated[int, Meta(description="How many of them failed or were cancelled, and are not ignored.")]
    completion_percentage: Annotated[float, Meta(description="How much of it has ended well.")]
    created_at: Moment
    finished_at: Moment | None
    deadline: Annotated[Moment | None, Meta(description="When what is left is stopped, and the workflow fails.")]
    idempotency_key: str | None
    on_failure: Annotated[OnFailure, Meta(description="What the failure of a step means to it.")]
    stopping: Annotated[str | None, Meta(description="Why nothing more is begun: failed, cancelled or deadline.")]
    error: Annotated[FailureShape | None, Meta(description="Why it failed.")]
    queues: Annotated[list[str], Meta(description="Those of its tasks.")]
    step_of: Annotated[int | None, Meta(description="The task that stands for it in the workflow that it is part of.")]
    root_id: Annotated[int, Meta(description="The outermost workflow, often itself.")]
    finalizer_id: Annotated[int | None, Meta(description="The task that runs once, when all others are done.")]
    finalization: FinalizationShape


class WorkflowPageShape(msgspec.Struct, frozen=True):
    """A page of a list; `next_cursor` is null after the last."""

    workflows: list[WorkflowShape]
    next_cursor: int | None


class StepShape(msgspec.Struct, frozen=True):
    """A step of a workflow: a task, as far as the workflow is concerned."""

    task_id: int
    name: str
    kind: StepKind
    task_type: str
    queue: str
    status: State
    attempts: int
    max_attempts: int
    after: Annotated[list[int], Meta(description="The tasks that it waits for, or waited for.")]
    waits: Annotated[int, Meta(description="How many of them it still waits for.")]
    on_failure: OnFailure
    passed: Annotated[bool | None, Meta(description="Whether its children may begin; null while that is open.")]
    worker_id: str | None
    claimed_at: Moment | None
    finished_at: Moment | None
    error: FailureShape | None
    workflow_id: Annotated[int | None, Meta(description="The workflow that it stands for, if it is one.")]


class StepResultShape(msgspec.Struct, frozen=True):
    """What a parent came to: its result, or its error where its failure is ignored."""

    task_id: int
    name: str
    task_type: str
    status: State
    result: Any
    error: FailureShape | None


class ContextShape(msgspec.Struct, frozen=True):
    """How a workflow's steps stand, and what follows from that. The finalizer is not counted."""

    workflow_id: int
    status: WorkflowState
    total_steps: int
    by_state: dict[str, int]
    passed: int
    failures: int
    completion_percentage: float
    execution_status: ExecutionStatus
    recommended_action: FinalizationAction


class FinalizationClaimShape(msgspec.Struct, frozen=True):
    """The answer to a wish to finalize. `token` and `lease_until` are there if it was granted."""

    success: bool
    workflow_id: int
    processor_id: str
    claimed: bool
    already_claimed_by: str | None
    state: Annotated[str, Meta(description="Where the workflow stands.")]
    message: str
    reason: ClaimReason
    token: Annotated[int | None, Meta(description="Proves the claim when the workflow is finalized.")]
    lease_until: Annotated[Moment | None, Meta(description="When the claim ends unless it is renewed.")]


class AttemptShape(msgspec.Struct, frozen=True):
    """A recorded wish to finalize."""

    id: int
    workflow_id: int
    processor_id: str
    claimed: bool
    reason: ClaimReason
    state: str
    message: str
    already_claimed_by: str | None
    token: int | None
    at: Moment


class FinalizedShape(msgspec.Struct, frozen=True):
    """What became of a workflow whose finalization was held."""

    success: bool
    workflow_id: int
    status: WorkflowState
    execution_status: ExecutionStatus
    action: FinalizationAction


class PercentilesShape(msgspec.Struct, frozen=True):
    """Seconds; null while nothing has completed."""

    p50: float | None
    p95: float | None
    p99: float | None


class StatsShape(msgspec.Struct, frozen=True):
    """The whole store in numbers; percentiles are over the last 1,000 completed tasks."""

    depth: dict[str, int]
    by_queue: dict[str, dict[str, int]]
    by_type: dict[str, dict[str, int]]
    oldest_pending_age_seconds: float | None
    finished_last_minute: dict[str, int]
    finished_last_hour: dict[str, int]
    wait_seconds: PercentilesShape
    run_seconds: PercentilesShape
    dead_letter: Annotated[int, Meta(description="Failed tasks that are neither ignored nor discarded.")]


class CheckShape(msgspec.Struct, frozen=True):
    """One finding of the doctor."""

    name: str
    verdict: Verdict
    message: str
    hint: str


def task(one: Task) -> TaskShape:
    """A task."""
    return TaskShape(
        one.id, one.type, one.state, one.params, one.priority, one.attempts, one.max_attempts, one.worker_id,
        moment(one.claimed_at), _moment(one.created_at), one.queue, one.token, moment(one.lease_until),
        _moment(one.run_at), moment(one.finished_at), one.timeout, one.key, one.type_version, one.dropped,
        one.cancel_requested, one.progress, one.progress_message, one.result, failure(one.error),
        one.workflow_id, one.trace or UNSET, one.set_aside or UNSET
    )  # fmt: skip


def finished(done: Finished) -> FinishedShape:
    """The answer to an outcome."""
    return FinishedShape(
        True, done.task_id, done.state, done.attempts, done.will_retry, moment(done.run_at), done.repeated
    )


def page(tasks: Sequence[Task], limit: int) -> PageShape:
    """A page of a list."""
    more = len(tasks) == limit
    return PageShape([task(one) for one in tasks], tasks[-1].id if more else None)


def failure(error: Failure | None) -> FailureShape | None:
    """How the last attempt failed."""
    return None if error is None else FailureShape(error.type, error.message, error.traceback, error.permanent)


def history_entry(entry: HistoryEntry) -> HistoryEntryShape:
    """One thing that happened to a task, as a recorded history holds it."""
    return HistoryEntryShape(
        entry.id, entry.task_id, entry.event, entry.from_state, entry.to_state, entry.worker_id, entry.token, entry.by,
        _moment(entry.at), entry.detail
    )  # fmt: skip


def event(one: StoreEvent) -> EventShape:
    """One thing that happened, with the queue and type of its task."""
    entry = one.entry
    return EventShape(
        entry.id, entry.task_id, entry.event, entry.from_state, entry.to_state, entry.worker_id, entry.token, entry.by,
        _moment(entry.at), entry.detail, one.queue, one.type
    )  # fmt: skip


def explanation(why: Explanation) -> ExplanationShape:
    """Why a task is not running."""
    reasons = [ReasonShape(each.code, each.message) for each in why.reasons]
    return ExplanationShape(why.task_id, why.state, reasons)


def queue(info: QueueInfo) -> QueueShape:
    """A queue and its depth by state."""
    return QueueShape(info.name, info.paused, moment(info.paused_at), info.depth)


def worker(info: WorkerInfo) -> WorkerShape:
    """A worker and the ids of the tasks it holds."""
    return WorkerShape(
        info.id, info.incarnation, info.state, info.queues, info.types, info.metadata, _moment(info.started_at),
        _moment(info.heartbeat_at), moment(info.stopped_at), info.holds
    )  # fmt: skip


def task_type(kind: TaskType) -> TaskTypeShape:
    """One version of a registered task type."""
    return TaskTypeShape(kind.name, kind.version, kind.schema, kind.defaults, _moment(kind.created_at))


def backoff(rest: Backoff) -> BackoffShape:
    """How long a failed task rests."""
    return BackoffShape(rest.base, rest.cap)


def schedule(plan: Schedule) -> ScheduleShape:
    """A schedule."""
    return ScheduleShape(
        plan.name, plan.cron, plan.timezone, plan.catch_up, plan.enabled, plan.type, plan.params, plan.queue,
        plan.priority, plan.max_attempts, plan.timeout, backoff(plan.backoff), plan.source, _moment(plan.next_at),
        _moment(plan.created_at), _moment(plan.updated_at), moment(plan.last_at), plan.last_task_id, plan.last_error
    )  # fmt: skip


def rule(one: RetentionRule) -> RetentionRuleShape:
    """A retention rule."""
    return RetentionRuleShape(
        one.records, one.keep, one.queue, one.type, one.workflow, moment(one.changed_at), one.changed_by
    )


def rule_change(one: RetentionChange) -> RetentionChangeShape:
    """A change of a retention rule."""
    return RetentionChangeShape(
        one.id, _moment(one.at), one.by, one.records, one.keep, one.removed, one.queue, one.type, one.workflow
    )


def key(one: ApiKey) -> KeyShape:
    """An API key."""
    return KeyShape(
        one.id, one.name, list(one.scopes), None if one.queues is None else list(one.queues),
        write_limit(one.rate_limit), _moment(one.created_at), one.created_by, moment(one.expires_at),
        moment(one.revoked_at), moment(one.last_used_at)
    )  # fmt: skip


def workflow(one: Workflow) -> WorkflowShape:
    """A workflow."""
    return WorkflowShape(
        one.id, one.name, one.state, one.steps, one.active, one.ended, one.failures, _percentage(one),
        _moment(one.created_at), moment(one.finished_at), moment(one.deadline), one.key, one.on_failure, one.stopping,
        failure(one.error), one.queues, one.step_of, one.root_id, one.finalizer_id,
        FinalizationShape(one.finalization_token, one.finalization_by, moment(one.finalization_until))
    )  # fmt: skip


def workflows(found: Sequence[Workflow], limit: int) -> WorkflowPageShape:
    """A page of a list."""
    more = len(found) == limit
    return WorkflowPageShape([workflow(one) for one in found], found[-1].id if more else None)


def step(one: Step) -> StepShape:
    """A step of a workflow."""
    return StepShape(
        one.task_id, one.name, one.kind, one.type, one.queue, one.state, one.attempts, one.max_attempts, one.after,
        one.waits, one.on_failure, one.passed, one.worker_id, moment(one.claimed_at), moment(one.finished_at),
        failure(one.error), one.workflow_id
    )  # fmt: skip


def step_result(one: StepResult) -> StepResultShape:
    """What a parent came to."""
    return StepResultShape(one.task_id, one.name, one.type, one.state, one.result, failure(one.error))


def context(found: ExecutionContext) -> ContextShape:
    """How a workflow's steps stand."""
    return ContextShape(
        found.workflow_id, found.state, found.total_steps, found.by_state, found.passed, found.failures,
        found.completion_percentage, found.execution_status, found.recommended_action
    )  # fmt: skip


def finalization_claim(answer: FinalizationClaim) -> FinalizationClaimShape:
    """The answer to a wish to finalize."""
    return FinalizationClaimShape(
        answer.claimed, answer.workflow_id, answer.processor, answer.claimed, answer.already_claimed_by, answer.state,
        answer.message, answer.reason, answer.token, moment(answer.lease_until)
    )  # fmt: skip


def attempt(one: FinalizationAttempt) -> AttemptShape:
    """A recorded wish to finalize."""
    return AttemptShape(
        one.id, one.workflow_id, one.processor, one.claimed, one.reason, one.state, one.message,
        one.already_claimed_by, one.token, _moment(one.at)
    )  # fmt: skip


def finalized(done: Finalized) -> FinalizedShape:
    """What became of a workflow."""
    return FinalizedShape(True, done.workflow_id, done.state, done.execution_status, done.action)


def stats(numbers: Stats) -> StatsShape:
    """The whole store in numbers."""
    return StatsShape(
        numbers.depth, numbers.by_queue, numbers.by_type, numbers.oldest_pending_age, numbers.finished_last_minute,
        numbers.finished_last_hour, _percentiles(numbers.wait), _percentiles(numbers.run),
        numbers.dead_letter
    )  # fmt: skip


def check(found: Check) -> CheckShape:
    """One finding of the doctor."""
    return CheckShape(found.name, found.verdict, found.message, found.hint)


def moment(at: datetime | None) -> str | None:
    """A time in UTC with all its microseconds, so that texts sort like times."""
    return None if at is None else _moment(at)


@lru_cache(4096)  # the tasks of a batch share most of their moments
def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _percentiles(values: Percentiles) -> PercentilesShape:
    return PercentilesShape(values.p50, values.p95, values.p99)


def _percentage(one: Workflow) -> float:
    return round(100 * (one.ended - one.failures) / one.steps, 1) if one.steps else 100.0
