"""The JSON that dibs answers with: one shape for each thing, the same on the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dibs.schedule import Schedule
from dibs.store.doctor import Check
from dibs.store.operations.looking import Explanation, HistoryEntry, Percentiles, QueueInfo, Stats
from dibs.store.operations.registering import TaskType, WorkerInfo
from dibs.task import Failure, Task

Shape = dict[str, Any]


def task(one: Task) -> Shape:
    """A task. `status` and `task_type` are its state and type: the API's words, older than ours."""
    return {
        "id": one.id,
        "task_type": one.type,
        "status": one.state.value,
        "params": one.params,
        "priority": one.priority,
        "attempts": one.attempts,
        "max_attempts": one.max_attempts,
        "worker_id": one.worker_id,
        "claimed_at": moment(one.claimed_at),
        "created_at": moment(one.created_at),
        "queue": one.queue,
        "token": one.token,
        "lease_until": moment(one.lease_until),
        "run_at": moment(one.run_at),
        "finished_at": moment(one.finished_at),
        "timeout_seconds": one.timeout,
        "idempotency_key": one.key,
        "type_version": one.type_version,
        "dropped": one.dropped,
        "cancel_requested": one.cancel_requested,
        "progress": one.progress,
        "progress_message": one.progress_message,
        "result": one.result,
        "error": failure(one.error),
    }


def page(tasks: Sequence[Task], limit: int) -> Shape:
    """A page of a list; `next_cursor` is null after the last."""
    more = len(tasks) == limit
    return {"tasks": [task(one) for one in tasks], "next_cursor": tasks[-1].id if more else None}


def failure(error: Failure | None) -> Shape | None:
    """How the last attempt failed."""
    if error is None:
        return None
    return {"type": error.type, "message": error.message, "traceback": error.traceback}


def history_entry(entry: HistoryEntry) -> Shape:
    """One thing that happened to a task, as a recorded history holds it."""
    return {
        "id": entry.id,
        "task_id": entry.task_id,
        "event": entry.event.value,
        "from_state": entry.from_state and entry.from_state.value,
        "to_state": entry.to_state.value,
        "worker_id": entry.worker_id,
        "token": entry.token,
        "by": entry.by,
        "at": moment(entry.at),
        "detail": entry.detail,
    }


def explanation(why: Explanation) -> Shape:
    """Why a task is not running."""
    reasons = [{"code": reason.code, "message": reason.message} for reason in why.reasons]
    return {"task_id": why.task_id, "status": why.state.value, "reasons": reasons}


def queue(info: QueueInfo) -> Shape:
    """A queue and its depth by state."""
    return {"name": info.name, "paused": info.paused, "paused_at": moment(info.paused_at), "depth": info.depth}


def worker(info: WorkerInfo) -> Shape:
    """A worker and the ids of the tasks it holds."""
    return {
        "id": info.id,
        "incarnation": info.incarnation,
        "state": info.state.value,
        "queues": info.queues,
        "task_types": info.types,
        "metadata": info.metadata,
        "started_at": moment(info.started_at),
        "heartbeat_at": moment(info.heartbeat_at),
        "stopped_at": moment(info.stopped_at),
        "holds": info.holds,
    }


def task_type(kind: TaskType) -> Shape:
    """One version of a registered task type."""
    return {
        "name": kind.name,
        "version": kind.version,
        "schema": kind.schema,
        "defaults": kind.defaults,
        "created_at": moment(kind.created_at),
    }


def schedule(plan: Schedule) -> Shape:
    """A schedule, when it ticks next, and what became of its last tick."""
    return {
        "name": plan.name,
        "cron": plan.cron,
        "timezone": plan.timezone,
        "catch_up": plan.catch_up.value,
        "enabled": plan.enabled,
        "task_type": plan.type,
        "params": plan.params,
        "queue": plan.queue,
        "priority": plan.priority,
        "max_attempts": plan.max_attempts,
        "timeout_seconds": plan.timeout,
        "source": plan.source,
        "next_at": moment(plan.next_at),
        "created_at": moment(plan.created_at),
        "updated_at": moment(plan.updated_at),
        "last_at": moment(plan.last_at),
        "last_task_id": plan.last_task_id,
        "last_error": plan.last_error,
    }


def stats(numbers: Stats) -> Shape:
    """The whole store in numbers."""
    return {
        "depth": numbers.depth,
        "by_queue": numbers.by_queue,
        "by_type": numbers.by_type,
        "oldest_pending_age_seconds": numbers.oldest_pending_age,
        "finished_last_minute": numbers.finished_last_minute,
        "finished_last_hour": numbers.finished_last_hour,
        "wait_seconds": _percentiles(numbers.wait),
        "run_seconds": _percentiles(numbers.run),
    }


def check(found: Check) -> Shape:
    """One finding of the doctor."""
    return {"name": found.name, "verdict": found.verdict.value, "message": found.message, "hint": found.hint}


def moment(at: datetime | None) -> str | None:
    """A time in UTC with all its microseconds, so that texts sort like times."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _percentiles(values: Percentiles) -> Shape:
    return {"p50": values.p50, "p95": values.p95, "p99": values.p99}
