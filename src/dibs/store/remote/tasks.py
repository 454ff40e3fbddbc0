"""Tasks and their history over HTTP. Invalid values are refused here, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.model.change import TaskChange
from dibs.model.checks import check_integer
from dibs.model.explanation import Explanation
from dibs.model.history import HistoryEntry
from dibs.model.search import (
    ALL_DEAD,
    REDRIVE_BATCH,
    SEARCH_SPAN,
    BulkResult,
    DeadFilter,
    TaskFilter,
    TaskMatch,
    TaskPage,
    TasksById,
    TaskSearch,
)
from dibs.model.task import State, Task
from dibs.store.operation import Operation
from dibs.store.remote.decode import reader, reader_or
from dibs.store.remote.request import (
    HttpCall,
    api_path,
    check_fits,
    encode,
    get,
    post,
    read_operation,
    write_operation,
)
from dibs.wire import tasks as wire
from dibs.wire.history import HistoryQuery, OneHistory, WholeHistory

_read_changed = reader(wire.ChangedTask)
_read_task = reader_or(wire.OneTask, None)
_read_page = reader(wire.Page)
_read_found = reader(wire.FoundTasks)
_read_states = reader(wire.TaskStates)
_read_moved = reader(wire.MovedTasks)
_read_redriven = reader(wire.Redriven)
_read_discarded = reader(wire.Discarded)
_read_explanation = reader(wire.OneExplanation)
_read_history = reader_or(OneHistory, [])
_read_whole_history = reader(WholeHistory)


class RemoteTasks:
    """Look at tasks, search them, change, cancel, retry and discard them. See ServedTasks."""

    def get(self, task_id: int) -> Operation[Task | None]:
        """The task, or None."""
        call = get(api_path("tasks", task_id), or_none="task_not_found")
        return read_operation("get", call, _read_task)

    def get_many(self, ids: Sequence[int]) -> Operation[TasksById]:
        """The tasks with these ids that exist."""
        return read_operation("get_many", post("/api/tasks/read", wire.ReadManyBody(ids=list(ids))), _read_found)

    def states(self, ids: Sequence[int]) -> Operation[dict[int, State]]:
        """The state of each of these tasks that exists."""
        return read_operation("states", post("/api/tasks/states", wire.StatesBody(ids=list(ids))), _read_states)

    def list_tasks(self, which: TaskFilter, content: int | None = None) -> Operation[TaskPage]:
        """A page of tasks, newest first. `content` is not sent: the server has its own limit."""
        if which.dead:
            return read_operation("list", get("/api/dead-letter", wire.DeadQuery.from_model(which)), _read_page)
        return read_operation("list", get("/api/tasks", wire.ListQuery.from_model(which)), _read_page)

    def find(self, which: TaskSearch, span: int = SEARCH_SPAN) -> Operation[TaskPage]:
        """The newest tasks that match, among the tasks that the server searched."""
        return read_operation("find", get("/api/tasks", wire.ListQuery.from_model(which)), _read_page)

    def explain(self, task_id: int) -> Operation[Explanation]:
        """The reasons why the task is not running."""
        return read_operation("explain", get(api_path("tasks", task_id, "explain")), _read_explanation)

    def change(self, task_id: int, change: TaskChange) -> Operation[Task]:
        """Change a task that has not started. Must not be repeated: a worker that has claimed the task since would make
        a change that was done look refused."""
        call = HttpCall("PATCH", api_path("tasks", task_id), encode(wire.ChangeBody.from_model(change)), safe=False)
        check_fits("The new params do", len(call.body or b""))
        return write_operation("change", call, _read_changed, wakes=True)

    def cancel(self, task_id: int) -> Operation[Task]:
        """Cancel a waiting task at once; ask the worker of a claimed task to stop."""
        return write_operation("cancel", post(api_path("tasks", task_id, "cancel")), _read_changed, wakes=True)

    def retry(self, task_id: int) -> Operation[Task]:
        """Make a failed, cancelled or scheduled task pending. Must not be repeated: the task may have failed again."""
        return write_operation(
            "retry", post(api_path("tasks", task_id, "retry"), safe=False), _read_changed, wakes=True
        )

    def change_matching(self, change: TaskChange, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Change some of the tasks that match. Must not be repeated: the count of a repetition would be too low."""
        body = wire.ChangeMatchingBody.of_change(change, which, cursor)
        return write_operation("change_matching", post("/api/tasks/change", body, safe=False), _read_moved, wakes=True)

    def cancel_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Cancel some of the tasks that match. Safe twice: a cancelled task stays cancelled."""
        call = post("/api/tasks/cancel", wire.MatchBody.from_model(which, cursor))
        return write_operation("cancel_matching", call, _read_moved, wakes=True)

    def retry_matching(self, which: TaskMatch, cursor: int | None) -> Operation[BulkResult]:
        """Retry some of the tasks that match. Must not be repeated: a task may have failed again in between."""
        call = post("/api/tasks/retry", wire.MatchBody.from_model(which, cursor), safe=False)
        return write_operation("retry_matching", call, _read_moved, wakes=True)

    def redrive_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Retry up to `limit` tasks of the dead letter that match."""
        check_integer(limit, "limit", 1, REDRIVE_BATCH)
        call = post("/api/dead-letter/redrive", wire.RedriveBody.from_model(which, limit), safe=False)
        return write_operation("redrive", call, _read_redriven, wakes=True)

    def discard(self, task_id: int) -> Operation[Task]:
        """Take a failed task out of the dead letter."""
        return write_operation("discard", post(api_path("tasks", task_id, "discard")), _read_changed)

    def discard_many(
        self, ids: Sequence[int], only: Sequence[str] | None = None, which: DeadFilter = ALL_DEAD
    ) -> Operation[int]:
        """Discard the tasks among these that are in the dead letter and match. `only` is not sent: the server knows
        the queues of the key."""
        call = post("/api/dead-letter/discard", wire.DiscardBody.of_ids(ids, which), safe=False)
        return write_operation("discard_many", call, _read_discarded)

    def discard_some(self, which: DeadFilter, limit: int) -> Operation[int]:
        """Discard up to `limit` tasks of the dead letter that match."""
        check_integer(limit, "limit", 1, REDRIVE_BATCH)
        call = post("/api/dead-letter/discard", wire.DiscardBody.from_model(which, limit), safe=False)
        return write_operation("discard_some", call, _read_discarded)


class RemoteHistory:
    """Read the history of tasks. See HistoryOperations."""

    def task_history(self, task_id: int) -> Operation[list[HistoryEntry]]:
        """The history of the task, in order."""
        call = get(api_path("tasks", task_id, "history"), or_none="task_not_found")
        return read_operation("task_history", call, _read_history)

    def history_after(self, entry_id: int, limit: int) -> Operation[list[HistoryEntry]]:
        """The history of all tasks in order, page by page."""
        call = get("/api/history", HistoryQuery(after=entry_id, limit=limit))
        return read_operation("history_after", call, _read_whole_history)
