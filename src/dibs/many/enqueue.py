"""Enqueue a stream of tasks in chunks, each of which is stored as a whole or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.errors import DibsError
from dibs.interrupts import in_wait, is_of_library
from dibs.many.handles import NotAllEnqueued, TaskHandles, stored_so_far
from dibs.model.claim import MAX_BATCH

if TYPE_CHECKING:
    from dibs.many.async_tasks import AsyncTasks
    from dibs.many.tasks import Tasks
    from dibs.model.task import NewTask

MAX_BYTES = 800 * 1024
"""The largest size of a chunk that is sent to a server, which accepts requests of 1 MiB."""

_encode = msgspec.json.Encoder().encode


class Chunks:
    """Collects tasks into chunks of up to 1000. `sized`: also of at most MAX_BYTES, if a chunk is one request."""

    def __init__(self, sized: bool) -> None:
        self._sized = sized
        self._tasks: list[NewTask] = []
        self._bytes = 0

    def add(self, task: NewTask) -> Iterator[list[NewTask]]:
        """Add the task. Yields the chunk that is full because of it."""
        size = len(_encode(task)) if self._sized else 0
        if self._tasks and self._bytes + size > MAX_BYTES:
            yield self._take()
        self._tasks.append(task)
        self._bytes += size
        if len(self._tasks) == MAX_BATCH:
            yield self._take()

    def rest(self) -> Iterator[list[NewTask]]:
        """Yields the last chunk, unless it is empty."""
        if self._tasks:
            yield self._take()

    def _take(self) -> list[NewTask]:
        tasks, self._tasks, self._bytes = self._tasks, [], 0
        return tasks


def enqueue_all(app: Any, new: Iterable[NewTask], tasks: Tasks[Any], sized: bool) -> Tasks[Any]:
    """Enqueue the tasks chunk by chunk, as the iterable yields them, and add their ids to `tasks`. Raises
    NotAllEnqueued."""
    chunks = Chunks(sized)
    with _keeping(tasks):
        for task in new:
            for chunk in chunks.add(task):
                tasks.add(app.enqueue_many(chunk))
        for chunk in chunks.rest():
            tasks.add(app.enqueue_many(chunk))
    return tasks


async def enqueue_all_async(
    app: Any, new: Iterable[NewTask] | AsyncIterable[NewTask], tasks: AsyncTasks[Any], sized: bool
) -> AsyncTasks[Any]:
    """`enqueue_all` for AsyncDibs, also of an async iterable."""
    chunks = Chunks(sized)
    with _keeping(tasks):
        async for task in _each(new):
            for chunk in chunks.add(task):
                tasks.add(await app.enqueue_many(chunk))
        for chunk in chunks.rest():
            tasks.add(await app.enqueue_many(chunk))
    return tasks


@contextmanager
def _keeping(tasks: TaskHandles[Any]) -> Iterator[None]:
    """An error carries the tasks that are stored, unless there are none. An interrupt names them."""
    try:
        yield
    except Exception as error:
        if not len(tasks):
            raise
        text = error.message if isinstance(error, DibsError) else f"{type(error).__name__}: {error}"
        raise NotAllEnqueued(f"{stored_so_far(tasks)} The next ones are not: {text}", tasks=tasks) from error
    except BaseException as interrupt:
        in_wait(interrupt, f"{stored_so_far(tasks)} Stored tasks go on, and the next chunk may be stored as well.")
        raise


def frames_of_program(interrupt: BaseException) -> TracebackType | None:
    """The traceback without the frames of the library at its beginning: what is left is inside of the program's
    iterable, for example."""
    frame = interrupt.__traceback__
    while frame is not None and is_of_library(frame):
        frame = frame.tb_next
    return frame


async def _each(new: Iterable[NewTask] | AsyncIterable[NewTask]) -> AsyncIterator[NewTask]:
    if isinstance(new, AsyncIterable):
        async for task in new:
            yield task
        return
    for task in new:
        yield task
