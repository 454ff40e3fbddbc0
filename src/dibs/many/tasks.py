"""Tasks: what `map` of a handler of Dibs returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from dibs.errors import DibsError, TaskNotFound
from dibs.interrupts import in_wait
from dibs.many.handles import RAISED, TaskHandles, finished_tasks, first_failed, goes_on, result_or_error, too_late
from dibs.many.progress import showing
from dibs.many.watch import Watch
from dibs.model.checks import deadline_after

if TYPE_CHECKING:
    from dibs.model.task import Task

R = TypeVar("R")


class Tasks(TaskHandles[R]):
    """Many stored tasks: what `map` of a handler returns. `Tasks[int]`: tasks whose results are ints.

    It keeps the ids only: each method asks the store. Iterating reads the tasks as they are now, page by page.
    """

    def wait(self, timeout: float | None = None, *, progress: bool = False) -> Self:
        """Wait until all tasks have finished: completed, failed or cancelled. `progress`: show a bar on standard error.

        Raises WaitTimeout after `timeout` seconds; the tasks continue. A task that was deleted after its retention
        counts as finished.
        """
        for _ in self._ends(Watch(self._ids), timeout, progress):
            pass
        return self

    @overload
    def results(
        self, timeout: float | None = None, *, return_exceptions: Literal[False] = False, progress: bool = False
    ) -> list[R]: ...
    @overload
    def results(
        self, timeout: float | None = None, *, return_exceptions: bool, progress: bool = False
    ) -> list[R | DibsError]: ...
    def results(self, timeout: float | None = None, *, return_exceptions: bool = False, progress: bool = False) -> Any:
        """Wait, and return the results in the order of the tasks.

        As soon as a task has failed or was cancelled, ResultMissing is raised with its error, and TaskNotFound for a
        task that was deleted after its retention; the other tasks continue. With `return_exceptions`, all tasks are
        waited for, and these errors are returned in place of results.
        """
        for ended in self._ends(Watch(self._ids), timeout, progress):
            if not return_exceptions and (task_id := first_failed(ended)) is not None:
                self._raise_if_failed(task_id)
        results: list[Any] = []
        for ids, tasks in self._pages(self._ids):
            results += self._results_of(ids, tasks, return_exceptions)
        return results

    def as_completed(self, timeout: float | None = None, *, progress: bool = False) -> Iterator[Task[R]]:
        """The tasks as they finish, failed and cancelled ones too. Raises WaitTimeout after `timeout` seconds.

        A task that was deleted after its retention, before it was read, is left out.
        """
        watch = Watch(self._ids)
        for ended in self._ends(watch, timeout, progress):
            for _, tasks in self._pages(list(ended)):
                yield from finished_tasks(tasks, watch, ended)

    def counts(self) -> dict[str, int]:
        """How many of the tasks are in each state now; "pruned" for deleted ones."""
        counts: dict[str, int] = self._app._count_states(self._ids)
        return counts

    def __iter__(self) -> Iterator[Task[R]]:
        for _, tasks in self._pages(self._ids):
            yield from tasks

    @overload
    def __getitem__(self, which: int) -> Task[R]: ...
    @overload
    def __getitem__(self, which: slice) -> Self: ...
    def __getitem__(self, which: int | slice) -> Task[R] | Self:
        """One task, as it is now, by its position; or the handle of some tasks. Raises TaskNotFound."""
        if isinstance(which, slice):
            return self._slice(which)
        for _, tasks in self._pages([self._ids[which]]):
            for task in tasks:
                return task
        raise TaskNotFound(self._ids[which])

    def _raise_if_failed(self, task_id: int) -> None:
        [(_, tasks)] = self._pages([task_id])
        result = result_or_error(task_id, next(iter(tasks), None), RAISED)
        if isinstance(result, DibsError):  # else it was retried, and has completed since
            raise result

    def _pages(self, ids: Sequence[int]) -> Iterator[tuple[Sequence[int], list[Task[R]]]]:
        """The tasks with these ids that exist, page by page, with the ids that were read."""
        for part in self._parts(ids):
            left = part
            while left:
                found = self._app._read_many(left)
                yield left[: len(left) - len(found.left)], self._own(found.tasks)
                left = found.left

    def _ends(self, watch: Watch, timeout: float | None, progress: bool) -> Iterator[dict[int, str]]:
        """The ends of the tasks, as they come. Raises WaitTimeout."""
        deadline = deadline_after(timeout)
        try:
            with showing(progress, watch) as show:
                while watch.open:
                    ended = self._app._wait_for_some(watch, deadline)
                    if not ended:
                        raise too_late(watch, timeout, self._app._count_states(watch.open))
                    show()
                    yield ended
        except KeyboardInterrupt as interrupt:
            raise in_wait(interrupt, goes_on(watch)).with_traceback(None) from None
