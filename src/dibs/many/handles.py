"""What Tasks and AsyncTasks have in common: the ids of many stored tasks, and how their results are read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from dibs.errors import CodecFailed, CodecMissing, DibsError, ResultMismatch, ResultMissing, TaskNotFound, WaitTimeout
from dibs.many.watch import Watch
from dibs.model.task import State, TaskRecord, no_result

R = TypeVar("R")

Convert = Callable[[TaskRecord[Any]], Any]
"""Converts the raw result of a completed task."""

PAGE = 1000
"""Tasks that are read at once."""


class NotAllEnqueued(DibsError):
    """`map` or `starmap` ended early. `tasks`: the tasks that are stored; `__cause__`: the error."""

    code = "not_all_enqueued"
    default_hint = "`error.tasks` are the stored tasks. With a key for each task (`keyed`) the call can be repeated."

    def __init__(self, message: str, *, tasks: TaskHandles[Any]) -> None:
        super().__init__(message)
        self.tasks = tasks


RAISED = "results(return_exceptions=True) waits for all tasks, and returns such errors in place of results."
"""The hint of the error that `results` raises."""


class TaskHandles(Generic[R]):
    """Many stored tasks, of which only the ids are kept, in the order of the items."""

    def __init__(self, app: Any, ids: Iterable[int], convert: Convert | None = None) -> None:
        self._app = app
        self._ids = array("q", ids)
        self._convert = convert

    @property
    def ids(self) -> list[int]:
        """The ids of the tasks, with which another program gets the same tasks: `app.tasks(ids)`."""
        return self._ids.tolist()

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        ids = f", {self._ids[0]} to {self._ids[-1]}" if self._ids else ""
        return f"{type(self).__name__}({_tasks(len(self))}{ids})"

    def add(self, stored: Iterable[TaskRecord[Any]]) -> None:
        """Add tasks."""
        self._ids.extend([task.id for task in stored])

    def _slice(self, which: slice) -> Self:
        return type(self)(self._app, self._ids[which], self._convert)

    def _parts(self, ids: Sequence[int]) -> Iterator[Sequence[int]]:
        return (ids[start : start + PAGE] for start in range(0, len(ids), PAGE))

    def _own(self, tasks: Iterable[Any]) -> list[Any]:
        return [task.of(self._app, self._convert) for task in tasks]

    def _results_of(self, ids: Sequence[int], tasks: Iterable[Any], return_exceptions: bool) -> Iterator[Any]:
        """The results of the tasks with these ids, or their errors."""
        found = {task.id: task for task in tasks}
        for task_id in ids:
            result = result_or_error(task_id, found.get(task_id), None if return_exceptions else RAISED)
            if isinstance(result, DibsError) and not return_exceptions:
                raise result
            yield result


def result_or_error(task_id: int, task: TaskRecord[Any] | None, hint: str | None = None) -> Any:
    """The result of the task, or the error that reading it raises. `hint`: that of the error about a failed task."""
    if task is None:
        return TaskNotFound(task_id)
    if task.state is not State.COMPLETED:
        return no_result(task, hint)
    try:
        return task.result
    except (ResultMissing, ResultMismatch, CodecFailed, CodecMissing) as error:
        return error


def first_failed(ended: Mapping[int, str]) -> int | None:
    """A task that has ended without a result; None if there is none."""
    return next((task_id for task_id, state in ended.items() if state != State.COMPLETED), None)


def finished_tasks(tasks: Iterable[Any], watch: Watch, ended: Mapping[int, str]) -> Iterator[Any]:
    """The tasks that are finished. One that was retried since its end was read is waited for again."""
    for task in tasks:
        if task.finished:
            yield task
        else:
            watch.reopen(task.id, ended[task.id])


def too_late(watch: Watch, timeout: float | None, counts: Mapping[str, int]) -> WaitTimeout:
    """The error: these tasks are still open after the timeout."""
    states = ", ".join(f"{count:,} {state}" for state, count in counts.items())
    return WaitTimeout(
        f"{_not_finished(watch)} after {timeout} seconds: {states}.",
        hint="They continue. explain() returns why a task is not running.",
    )


def goes_on(watch: Watch) -> str:
    """What an interrupted wait tells the user."""
    if not watch.open:
        return f"{_tasks(watch.total)} have finished."
    return f"The wait has ended; {_not_finished(watch)}. Unfinished tasks go on."


def stored_so_far(tasks: TaskHandles[Any]) -> str:
    """How far `map` has come."""
    ids = f" ({tasks.ids[0]} to {tasks.ids[-1]})" if len(tasks) else ""
    return f"{_tasks(len(tasks))}{ids} are stored."


def _not_finished(watch: Watch) -> str:
    verb = "has" if len(watch.open) == 1 else "have"
    return f"{len(watch.open):,} of {_tasks(watch.total)} {verb} not finished"


def _tasks(count: int) -> str:
    return f"{count:,} task{'' if count == 1 else 's'}"
