"""Tasks over HTTP: put in, looked at, managed. What dibs does not store is refused here, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dibs.codec import check_name, encode, encode_params
from dibs.errors import InvalidValue
from dibs.model.checks import check_integer
from dibs.model.claim import MAX_BATCH, Filters
from dibs.model.explanation import Explanation
from dibs.model.history import HistoryEntry
from dibs.model.registry import QueueInfo, TaskType
from dibs.model.search import (
    ALL_DEAD,
    REDRIVE_BATCH,
    SEARCH_SPAN,
    BulkResult,
    DeadFilter,
    TaskFilter,
    TaskMatch,
    TaskPage,
    TaskSearch,
)
from dibs.model.statistics import Stats
from dibs.model.task import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, NewTask, Task
from dibs.store.operation import Operation
from dibs.store.remote import wire
from dibs.store.remote.call import LIMIT, Call, asking, get, joined, looking, place, post, without_nones
from dibs.store.remote.wire import WireBackoff


class RemoteTasks:
    """Enqueue, manage, look."""

    def enqueue(self, tasks: Sequence[NewTask]) -> Operation[list[Task]]:
        """Store the tasks in this order, all or none: in one request, so a batch that does not fit one is refused."""
        if not tasks:
            return Operation("enqueue", _nothing, wakes=True)
        return asking("enqueue", *_enqueueing(tasks), wakes=True)

    def register_type(
        self, name: str, schema: dict[str, Any] | bool | None, defaults: dict[str, Any]
    ) -> Operation[TaskType]:
        """Register a new version of a task type, unless its newest is the same."""
        check_name(name, "The task type")
        given = {
            "name": name,
            "schema": None if schema is None else msgspec.Raw(encode(schema, "schema")),
            "defaults": msgspec.Raw(encode_params(defaults)),
        }
        return asking("register_type", post("/api/task-types", given), wire.read_type)

    def get_type(self, name: str, version: int | None) -> Operation[TaskType]:
        """The newest version of a task type, or the given one."""
        check_name(name, "The task type")
        if version is not None:
            check_integer(version, "version", 1, 2**31 - 1)
        return looking("get_type", get(place("task-types", name), {"version": version}), wire.read_type)

    def list_types(self) -> Operation[list[TaskType]]:
        """All versions of all task types, newest version first."""
        return looking("list_types", get("/api/task-types"), wire.read_types)

    # Manage

    def cancel(self, task_id: int) -> Operation[Task]:
        """Cancel a waiting task at once; ask the worker of a running one to stop."""
        return asking("cancel", post(place("tasks", task_id, "cancel")), wire.read_task, wakes=True)

    def retry(self, task_id: int) -> Operation[Task]:
        """Send a failed, cancelled or scheduled task back. Not safe twice: it may have failed again in between."""
        return asking("retry", post(place("tasks", task_id, "retry"), safe=False), wire.read_task, wakes=True)

    def redrive_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Retry up to `limit` tasks of the dead letter that match."""
        check_integer(limit, "limit", 1, REDRIVE_BATCH)
        call = post("/api/dead-letter/redrive", {**_dead_body(which), "limit": limit}, safe=False)
        return asking("redrive", call, wire.read_redriven, wakes=True)

    def discard(self, task_id: int) -> Operation[Task]:
        """Take a failed task out of the dead letter."""
        return asking("discard", post(place("tasks", task_id, "discard")), wire.read_task)

    def discard_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, which: DeadFilter = ALL_DEAD
    ) -> Operation[int]:
        """Discard those of these tasks that are in the dead letter and match. `only` is left to the server, which knows
        the queues of its key."""
        given = {"ids": list(ids), **_dead_body(which), "limit": max(len(ids), 1)}
        return asking("discard_many", post("/api/dead-letter/discard", given, safe=False), wire.read_discarded)

    def discard_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Discard up to `limit` tasks of the dead letter that match."""
        check_integer(limit, "limit", 1, REDRIVE_BATCH)
        call = post("/api/dead-letter/discard", {**_dead_body(which), "limit": limit}, safe=False)
        return asking("discard_some", call, wire.read_discarded)

    def cancel_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Cancel some of the tasks that match. Safe twice: a task that is cancelled stays so."""
        call = post("/api/tasks/cancel", {**match_body(which), "cursor": cursor})
        return asking("cancel_matching", call, wire.read_moved, wakes=True)

    def retry_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Retry some of the tasks that match. Not safe twice: a task may have failed again in between."""
        call = post("/api/tasks/retry", {**match_body(which), "cursor": cursor}, safe=False)
        return asking("retry_matching", call, wire.read_moved, wakes=True)

    def pause(self, queue: str) -> Operation[None]:
        """Let nobody claim from the queue until it is resumed."""
        check_name(queue, "The queue")
        return asking("pause", post(place("queues", queue, "pause")), wire.read_done, wakes=True)

    def resume(self, queue: str) -> Operation[None]:
        """Let the queue be claimed from again."""
        check_name(queue, "The queue")
        return asking("resume", post(place("queues", queue, "resume")), wire.read_done, wakes=True)

    # Look

    def get(self, task_id: int) -> Operation[Task | None]:
        """The task, or None."""
        call = get(place("tasks", task_id), or_none="task_not_found")
        return looking("get", call, lambda said: None if said is None else wire.read_task(said))

    def list_tasks(self, which: TaskFilter) -> Operation[list[Task]]:
        """A page of tasks, newest first."""
        if which.dead:
            asked = _dead_body(DeadFilter(queue=which.queue, type=which.type, error=which.error))
            call = get("/api/dead-letter", {**asked, "limit": which.limit, "cursor": which.cursor})
            return looking("list", call, wire.read_tasks)
        query = {
            "status": None if which.state is None else str(which.state),
            "task_type": which.type,
            "queue": which.queue,
            "limit": which.limit,
            "cursor": which.cursor,
        }
        return looking("list", get("/api/tasks", query), wire.read_tasks)

    def find(self, which: TaskSearch, span: int = SEARCH_SPAN) -> Operation[TaskPage]:
        """The newest tasks that match, as far as the server looked."""
        query = {**match_body(which), "limit": which.limit, "cursor": which.cursor}
        for name in ("since", "until"):
            query[name] = None if query[name] is None else query[name].isoformat()
        return looking("find", get("/api/tasks", query), wire.read_page)

    def peek(self, filters: Filters) -> Operation[list[Task]]:
        """What a claim would take next. Advisory."""
        return looking("peek", post("/api/tasks/peek", filters_body(filters)), wire.read_tasks)

    def task_history(self, task_id: int) -> Operation[list[HistoryEntry]]:
        """Everything that happened to the task, in order."""
        call = get(place("tasks", task_id, "history"), or_none="task_not_found")
        return looking("task_history", call, lambda said: [] if said is None else wire.read_history(said))

    def history_after(self, entry_id: int, limit: int) -> Operation[list[HistoryEntry]]:
        """The history of all tasks in order, page by page."""
        return looking("history_after", get("/api/history", {"after": entry_id, "limit": limit}), wire.read_history)

    def explain(self, task_id: int) -> Operation[Explanation]:
        """Why is this task not running?"""
        return looking("explain", get(place("tasks", task_id, "explain")), wire.read_explanation)

    def queues(self) -> Operation[list[QueueInfo]]:
        """Every queue that holds a task or has been paused."""
        return looking("queues", get("/api/queues"), wire.read_queues)

    def stats(self) -> Operation[Stats]:
        """Depth, age, throughput and latency."""
        return looking("stats", get("/api/stats"), wire.read_stats)


def match_body(which: TaskMatch) -> dict[str, Any]:
    """Filters for tasks, in the words of the API."""
    return {
        "status": None if which.state is None else str(which.state),
        "task_type": which.type,
        "queue": which.queue,
        "key": which.key,
        "worker": which.worker,
        "text": which.text,
        "since": in_utc(which.since),
        "until": in_utc(which.until),
    }


def _dead_body(which: DeadFilter) -> dict[str, str | None]:
    """The filter in the words of the API."""
    return {"queue": which.queue, "task_type": which.type, "error": which.error}


def filters_body(filters: Filters) -> dict[str, Any]:
    """Which tasks, in the words of the API."""
    return {
        "queues": None if filters.queues is None else list(filters.queues),
        "task_types": None if filters.types is None else list(filters.types),
        "max_attempts_remaining": filters.max_attempts_remaining,
        "order": str(filters.order),
        "count": filters.count,
    }


def in_utc(moment: datetime | None) -> datetime | None:
    """The same moment, as the API writes it."""
    return None if moment is None else moment.astimezone(UTC)


def _enqueueing(tasks: Sequence[NewTask]) -> tuple[Call, Any]:
    bodies = [task_body(task) for task in tasks]
    safe = all(task.key is not None for task in tasks)
    if len(tasks) == 1:
        _check_fits(1, len(bodies[0]))
        return Call("POST", "/api/tasks", bodies[0], safe), wire.read_enqueued
    body = msgspec.json.encode({"tasks": joined(bodies)})
    _check_fits(len(tasks), len(body))
    return Call("POST", "/api/tasks/batch", body, safe), wire.read_batch


def _nothing() -> Any:
    yield from ()
    return []


def task_body(task: NewTask) -> bytes:
    """A task in the words of the API."""
    given = {
        "task_type": task.type,
        "params": msgspec.Raw(encode_params(task.params)),
        "queue": None if task.queue == DEFAULT_QUEUE else task.queue,
        "priority": task.priority or None,
        "max_attempts": None if task.max_attempts == DEFAULT_MAX_ATTEMPTS else task.max_attempts,
        "delay_seconds": task.delay,
        "run_at": in_utc(task.run_at),
        "timeout_seconds": task.timeout,
        "idempotency_key": task.key,
        "backoff": WireBackoff.of(task.backoff),
        "traceparent": task.trace,
    }
    return msgspec.json.encode(without_nones(given))


def _check_fits(count: int, size: int) -> None:
    if count <= MAX_BATCH and size <= LIMIT:
        return
    what = "This task does" if count == 1 else f"These {count:,} tasks do"
    raise InvalidValue(
        f"{what} not fit one request: {size:,} bytes, where the server takes {LIMIT:,} and {MAX_BATCH:,} tasks.",
        hint="A batch is stored all or none, so dibs does not split it: enqueue smaller ones, or keep large data "
        "elsewhere and send a reference to it.",
    )
