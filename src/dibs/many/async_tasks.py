"""AsyncTasks: what `map` of a handler of AsyncDibs returns. Programs that use Dibs do not import this module."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from dibs.errors import DibsError, TaskNotFound
from dibs.interrupts import in_wait
from dibs.many.handles import RAISED, TaskHandles, finished_tasks, first_failed, goes_on, result_or_error, too_late
from dibs.many.progress import showing
from dibs.many.watch import Watch
from dibs.model.checks import deadline_after

if TYPE_CHECKING:
    from dibs.model.async_task import AsyncTask

R = TypeVar("R")


class AsyncTasks(TaskHandles[R]):
    """Tasks whose methods are awaited: what `map` of a handler of AsyncDibs returns. `AsyncTasks[int]`: tasks whose
    results are ints.

    It keeps the ids only: each method asks the store. `async for task in tasks` reads the tasks as they are now, page
    by page.
    """

    async def wait(self, timeout: float | None = None, *, progress: bool = False) -> Self:
        """Wait until all tasks have finished: completed, failed or cancelled. `progress`: show a bar on standard error.

        Raises WaitTimeout after `timeout` seconds; the tasks continue. A task that was deleted after its retention
        counts as finished.
        """
        async with aclosing(self._ends(Watch(self._ids), timeout, progress)) as ends:
            async for _ in ends:
                pass
        return self

    @overload
    async def results(
        self, timeout: float | None = None, *, return_exceptions: Literal[False] = False, progress: bool = False
    ) -> list[R]: ...
    @overload
    async def results(
        self, timeout: float | None = None, *, return_exceptions: bool, progress: bool = False
    ) -> list[R | DibsError]: ...
    async def results(
        self, timeout: float | None = None, *, return_exceptions: bool = False, progress: bool = False
    ) -> Any:
        """Wait, and return the results in the order of the tasks.

        As soon as a task has failed or was cancelled, ResultMissing is raised with its error, and TaskNotFound for a
        task that was deleted after its retention; the other tasks continue. With `return_exceptions`, all tasks are
        waited for, and these errors are returned in place of results.
        """
        async with aclosing(self._ends(Watch(self._ids), timeout, progress)) as ends:
            async for ended in ends:
                if not return_exceptions and (task_id := first_failed(ended)) is not None:
                    await self._raise_if_failed(task_id)
        results: list[Any] = []
        async for ids, tasks in self._pages(self._ids):
            results += self._results_of(ids, tasks, return_exceptions)
        return results

    async def as_completed(
        self, timeout: float | None = None, *, progress: bool = False
    ) -> AsyncIterator[AsyncTask[R]]:
        """The tasks as they finish, failed and cancelled ones too. Raises WaitTimeout after `timeout` seconds.

        A task that was deleted after its retention, before it was read, is left out.
        """
        watch = Watch(self._ids)
        async with aclosing(self._ends(watch, timeout, progress)) as ends:
            async for ended in ends:
                async for _, tasks in self._pages(list(ended)):
                    for task in finished_tasks(tasks, watch, ended):
                        yield task

    async def counts(self) -> dict[str, int]:
        """How many of the tasks are in each state now; "pruned" for deleted ones."""
        counts: dict[str, int] = await self._app._count_states(self._ids)
        return counts

    async def __aiter__(self) -> AsyncIterator[AsyncTask[R]]:
        async for _, tasks in self._pages(self._ids):
            for task in tasks:
                yield task

    @overload
    def __getitem__(self, which: int) -> Awaitable[AsyncTask[R]]: ...
    @overload
    def __getitem__(self, which: slice) -> Self: ...
    def __getitem__(self, which: int | slice) -> Awaitable[AsyncTask[R]] | Self:
        """One task, as it is now, by its position (`await tasks[3]`); or the handle of some tasks. Raises
        TaskNotFound."""
        return self._slice(which) if isinstance(which, slice) else self._read(self._ids[which])

    async def _read(self, task_id: int) -> AsyncTask[R]:
        async for _, tasks in self._pages([task_id]):
            for task in tasks:
                return task
        raise TaskNotFound(task_id)

    async def _raise_if_failed(self, task_id: int) -> None:
        [tasks] = [tasks async for _, tasks in self._pages([task_id])]
        result = result_or_error(task_id, next(iter(tasks), None), RAISED)
        if isinstance(result, DibsError):  # else it was retried, and has completed since
            raise result

    async def _pages(self, ids: Sequence[int]) -> AsyncIterator[tuple[Sequence[int], list[AsyncTask[R]]]]:
        """The tasks with these ids that exist, page by page, with the ids that were read."""
        for part in self._parts(ids):
            left = part
            while left:
                found = await self._app._read_many(left)
                yield left[: len(left) - len(found.left)], self._own(found.tasks)
                left = found.left

    async def _ends(self, watch: Watch, timeout: float | None, progress: bool) -> AsyncGenerator[dict[int, str], None]:
        """The ends of the tasks, as they come. Raises WaitTimeout."""
        deadline = deadline_after(timeout)
        try:
            with showing(progress, watch) as show:
                while watch.open:
                    ended = await self._app._wait_for_some(watch, deadline)
                    if not ended:
                        raise too_late(watch, timeout, await self._app._count_states(watch.open))
                    show()
                    yield ended
        except (asyncio.CancelledError, KeyboardInterrupt) as interrupt:
            raise in_wait(interrupt, goes_on(watch)).with_traceback(None) from None
