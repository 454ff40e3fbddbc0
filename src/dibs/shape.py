"""The JSON that dibs answers with: one shape for each thing, the same on the command line and over HTTP.

A shape is a struct, so that the API's description is made from what the API says.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dibs.key import ApiKey, Scope, write_limit
from dibs.retry import Backoff
from dibs.schedule import CatchUp, Schedule, Source
from dibs.store.doctor import Check, Verdict
from dibs.store.operations.looking import Explanation, HistoryEntry, Percentiles, QueueInfo, Stats, StoreEvent
from dibs.store.operations.registering import TaskType, WorkerInfo, WorkerState
from dibs.task import Event, Failure, State, Task

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
    source: Source
    next_at: Moment
    created_at: Moment
    updated_at: Moment
    last_at: Moment | None
    last_task_id: int | None
    last_error: str | None


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
        one.cancel_requested, one.progress, one.progress_message, one.result, failure(one.error)
    )  # fmt: skip


def page(tasks: Sequence[Task], limit: int) -> PageShape:
    """A page of a list."""
    more = len(tasks) == limit
    return PageShape([task(one) for one in tasks], tasks[-1].id if more else None)


def failure(error: Failure | None) -> FailureShape | None:
    """How the last attempt failed."""
    return None if error is None else FailureShape(error.type, error.message, error.traceback)


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
    return ExplanationShape(why.task_id, why.state, [ReasonShape(each.code, each.message) for each in why.reasons])


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


def key(one: ApiKey) -> KeyShape:
    """An API key."""
    return KeyShape(
        one.id, one.name, list(one.scopes), None if one.queues is None else list(one.queues),
        write_limit(one.rate_limit), _moment(one.created_at), one.created_by, moment(one.expires_at),
        moment(one.revoked_at), moment(one.last_used_at)
    )  # fmt: skip


def stats(numbers: Stats) -> StatsShape:
    """The whole store in numbers."""
    return StatsShape(
        numbers.depth, numbers.by_queue, numbers.by_type, numbers.oldest_pending_age, numbers.finished_last_minute,
        numbers.finished_last_hour, _percentiles(numbers.wait), _percentiles(numbers.run)
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
