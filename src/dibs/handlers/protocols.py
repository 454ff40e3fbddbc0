"""Protocols of handlers. Only type checkers import this module."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from dibs.handlers.batch import AsyncBatchHandler, BatchHandler, BatchItem
from dibs.handlers.context import Context
from dibs.handlers.handler import AsyncHandler, Handler
from dibs.model.async_task import AsyncTask
from dibs.model.task import NewTask, Task

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

Outcomes = Sequence[R | Exception | BaseException]
"""What a batch handler returns. Exception is named although BaseException includes it, because pyright removes from
the annotation of a function only what is written here."""

RunsItems = Callable[[Sequence[BatchItem[D]]], Outcomes[R]]
"""The function of a batch handler."""

AwaitsItems = Callable[[Sequence[BatchItem[D]]], Coroutine[Any, Any, Outcomes[R]]]
"""The coroutine function of a batch handler."""


PlainEnqueueMiddleware = Callable[
    [Sequence[NewTask], Callable[[Sequence[NewTask]], list[Task[Any]]]], Sequence[Task[Any]]
]
"""The enqueue middleware of Dibs."""

AsyncEnqueueMiddleware = Callable[
    [Sequence[NewTask], Callable[[Sequence[NewTask]], Coroutine[Any, Any, list[AsyncTask[Any]]]]],
    Coroutine[Any, Any, Sequence[AsyncTask[Any]]],
]
"""The enqueue middleware of AsyncDibs."""


class TaskClient(Protocol):
    """What the handlers of a client need of it: Dibs, or AsyncDibs, whose methods are awaited."""

    def on(self, connection: Any) -> Self:
        """A copy of the client on the connection of the user."""

    def _submit(self, task: NewTask) -> Any:
        """Enqueue the task."""

    def get(self, task_id: int) -> Any:
        """The task with this id."""

    def _map(self, new: Any, convert: Callable[[Any], Any]) -> Any:
        """Enqueue the tasks in chunks."""

    def _handle(self, ids: Iterable[int], convert: Callable[[Any], Any] | None) -> Any:
        """The handle of many tasks."""


class HandlerDecorator(Protocol):
    """The type of `@app.task(...)` of Dibs."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Handler[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Handler[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Handler[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Handler[P, R, R]: ...


class AsyncHandlerDecorator(Protocol):
    """The type of `@app.task(...)` of AsyncDibs."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncHandler[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> AsyncHandler[P, R, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncHandler[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> AsyncHandler[P, R, R]: ...


class BatchHandlerDecorator(Protocol):
    """The type of `@app.batch_task(...)` of Dibs."""

    @overload
    def __call__(self, function: AwaitsItems[D, R], /) -> BatchHandler[D, R, Coroutine[Any, Any, Outcomes[R]]]: ...
    @overload
    def __call__(self, function: RunsItems[D, R], /) -> BatchHandler[D, R, Outcomes[R]]: ...


class AsyncBatchHandlerDecorator(Protocol):
    """The type of `@app.batch_task(...)` of AsyncDibs."""

    @overload
    def __call__(self, function: AwaitsItems[D, R], /) -> AsyncBatchHandler[D, R, Coroutine[Any, Any, Outcomes[R]]]: ...
    @overload
    def __call__(self, function: RunsItems[D, R], /) -> AsyncBatchHandler[D, R, Outcomes[R]]: ...
