"""Tasks over HTTP: put in, looked at, managed. What dibs does not store is refused here, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs.codec import check_name
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
from dibs.model.task import NewTask, Task
from dibs.store.operation import Operation
from dibs.store.remote.call import LIMIT, Call, asking, encode, get, looking, place, post
from dibs.store.remote.decode import decoder, reader, reader_or
from dibs.wire import tasks as wire
from dibs.wire.admin import Gated, NewTypeBody, OneStats, OneType, Queues, RegisteredType, TaskTypes, TypeQuery
from dibs.wire.claims import PeekBody
from dibs.wire.history import HistoryQuery, OneHistory, WholeHistory

_read_changed = reader(wire.ChangedTask)
_read_created = decoder(wire.Created, lambda answer: [answer.to_model()])
_read_batch = reader(wire.CreatedBatch)
_read_task = reader_or(wire.OneTask, None)
_read_tasks = reader(wire.ManyTasks)
_read_page = reader(wire.Page)
_read_list = decoder(wire.Page, lambda page: page.to_model().tasks)
_read_moved = reader(wire.MovedTasks)
_read_redriven = reader(wire.Redriven)
_read_discarded = reader(wire.Discarded)
_read_explanation = reader(wire.OneExplanation)
_read_history = reader_or(OneHistory, [])
_read_whole_history = reader(WholeHistory)
_read_registered = reader(RegisteredType)
_read_type = reader(OneType)
_read_types = reader(TaskTypes)
_read_gated = reader(Gated)
_read_queues = reader(Queues)
_read_stats = reader(OneStats)


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
        call = post("/api/task-types", NewTypeBody.from_model(name, schema, defaults))
        return asking("register_type", call, _read_registered)

    def get_type(self, name: str, version: int | None) -> Operation[TaskType]:
        """The newest version of a task type, or the given one."""
        check_name(name, "The task type")
        if version is not None:
            check_integer(version, "version", 1, 2**31 - 1)
        return looking("get_type", get(place("task-types", name), TypeQuery(version=version)), _read_type)

    def list_types(self) -> Operation[list[TaskType]]:
        """All versions of all task types, newest version first."""
        return looking("list_types", get("/api/task-types"), _read_types)

    # Manage

    def cancel(self, task_id: int) -> Operation[Task]:
        """Cancel a waiting task at once; ask the worker of a running one to stop."""
        return asking("cancel", post(place("tasks", task_id, "cancel")), _read_changed, wakes=True)

    def retry(self, task_id: int) -> Operation[Task]:
        """Send a failed, cancelled or scheduled task back. Not safe twice: it may have failed again in between."""
        return asking("retry", post(place("tasks", task_id, "retry"), safe=False), _read_changed, wakes=True)

    def redrive_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Retry up to `limit` tasks of the dead letter that match."""
        check_integer(limit, "limit", 1, REDRIVE_BATCH)
        call = post("/api/dead-letter/redrive", wire.RedriveBody.from_model(which, limit), safe=False)
        return asking("redrive", call, _read_redriven, wakes=True)

    def discard(self, task_id: int) -> Operation[Task]:
        """Take a failed task out of the dead letter."""
        return asking("discard", post(place("tasks", task_id, "discard")), _read_changed)

    def discard_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, which: DeadFilter = ALL_DEAD
    ) -> Operation[int]:
        """Discard those of these tasks that are in the dead letter and match. `only` is left to the server, which knows
        the queues of its key."""
        call = post("/api/dead-letter/discard", wire.DiscardBody.of_ids(ids, which), safe=False)
        return asking("discard_many", call, _read_discarded)

    def discard_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Discard up to `limit` tasks of the dead letter that match."""
        check_integer(limit, "limit", 1, REDRIVE_BATCH)
        call = post("/api/dead-letter/discard", wire.DiscardBody.from_model(which, limit), safe=False)
        return asking("discard_some", call, _read_discarded)

    def cancel_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Cancel some of the tasks that match. Safe twice: a task that is cancelled stays so."""
        call = post("/api/tasks/cancel", wire.MatchBody.from_model(which, cursor))
        return asking("cancel_matching", call, _read_moved, wakes=True)

    def retry_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Retry some of the tasks that match. Not safe twice: a task may have failed again in between."""
        call = post("/api/tasks/retry", wire.MatchBody.from_model(which, cursor), safe=False)
        return asking("retry_matching", call, _read_moved, wakes=True)

    def pause(self, queue: str) -> Operation[None]:
        """Let nobody claim from the queue until it is resumed."""
        check_name(queue, "The queue")
        return asking("pause", post(place("queues", queue, "pause")), _read_gated, wakes=True)

    def resume(self, queue: str) -> Operation[None]:
        """Let the queue be claimed from again."""
        check_name(queue, "The queue")
        return asking("resume", post(place("queues", queue, "resume")), _read_gated, wakes=True)

    # Look

    def get(self, task_id: int) -> Operation[Task | None]:
        """The task, or None."""
        call = get(place("tasks", task_id), or_none="task_not_found")
        return looking("get", call, _read_task)

    def list_tasks(self, which: TaskFilter) -> Operation[list[Task]]:
        """A page of tasks, newest first."""
        if which.dead:
            return looking("list", get("/api/dead-letter", wire.DeadQuery.from_model(which)), _read_list)
        return looking("list", get("/api/tasks", wire.ListQuery.from_model(which)), _read_list)

    def find(self, which: TaskSearch, span: int = SEARCH_SPAN) -> Operation[TaskPage]:
        """The newest tasks that match, as far as the server looked."""
        return looking("find", get("/api/tasks", wire.ListQuery.from_model(which)), _read_page)

    def peek(self, filters: Filters) -> Operation[list[Task]]:
        """What a claim would take next. Advisory."""
        return looking("peek", post("/api/tasks/peek", PeekBody.from_model(filters)), _read_tasks)

    def task_history(self, task_id: int) -> Operation[list[HistoryEntry]]:
        """Everything that happened to the task, in order."""
        call = get(place("tasks", task_id, "history"), or_none="task_not_found")
        return looking("task_history", call, _read_history)

    def history_after(self, entry_id: int, limit: int) -> Operation[list[HistoryEntry]]:
        """The history of all tasks in order, page by page."""
        call = get("/api/history", HistoryQuery(after=entry_id, limit=limit))
        return looking("history_after", call, _read_whole_history)

    def explain(self, task_id: int) -> Operation[Explanation]:
        """Why is this task not running?"""
        return looking("explain", get(place("tasks", task_id, "explain")), _read_explanation)

    def queues(self) -> Operation[list[QueueInfo]]:
        """Every queue that holds a task or has been paused."""
        return looking("queues", get("/api/queues"), _read_queues)

    def stats(self) -> Operation[Stats]:
        """Depth, age, throughput and latency."""
        return looking("stats", get("/api/stats"), _read_stats)


def _enqueueing(tasks: Sequence[NewTask]) -> tuple[Call, Any]:
    single = len(tasks) == 1
    content = encode(wire.NewTaskBody.from_model(tasks[0]) if single else wire.BatchBody.from_model(tasks))
    _check_fits(len(tasks), len(content))
    safe = all(task.key is not None for task in tasks)
    if single:
        return Call("POST", "/api/tasks", content, safe), _read_created
    return Call("POST", "/api/tasks/batch", content, safe), _read_batch


def _nothing() -> Any:
    yield from ()
    return []


def _check_fits(count: int, size: int) -> None:
    if count <= MAX_BATCH and size <= LIMIT:
        return
    what = "This task does" if count == 1 else f"These {count:,} tasks do"
    raise InvalidValue(
        f"{what} not fit one request: {size:,} bytes, where the server takes {LIMIT:,} and {MAX_BATCH:,} tasks.",
        hint="A batch is stored all or none, so dibs does not split it: enqueue smaller ones, or keep large data "
        "elsewhere and send a reference to it.",
    )
