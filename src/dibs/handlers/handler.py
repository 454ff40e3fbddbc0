"""@app.task: a name, the function that does the work, and the defaults of the tasks that ask for it."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

from dibs.codec import check_name
from dibs.errors import InvalidValue
from dibs.handlers.arguments import Arguments
from dibs.handlers.context import Context
from dibs.handlers.options import TaskOptions
from dibs.model.retry import Backoff
from dibs.model.schedule import NewSchedule
from dibs.model.task import NewTask

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


SCHEDULED = ("queue", "priority", "max_attempts", "timeout", "backoff")
"""The options of a handler that its schedule passes on to the tasks."""


class Lane(StrEnum):
    """Where a handler runs."""

    THREAD = "thread"  # plain functions
    LOOP = "loop"  # coroutine functions, on an event loop
    PROCESS = "process"  # child processes: for what hogs the CPU, or must be killed at its timeout


class HandlerOptions(TypedDict, total=False):
    """Options of @app.task. The rest are defaults of the enqueued tasks, as in `enqueue`.

    `schedule`: a cron expression by which workers enqueue the task by themselves, in `timezone`, with no arguments;
    `catch_up`: what becomes of ticks missed while no worker ran.
    """

    name: str
    lane: str
    schedule: str
    timezone: str
    catch_up: str
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    backoff: Backoff


@dataclass(frozen=True)
class Ticking:
    """When a handler's tasks are enqueued by themselves."""

    cron: str
    timezone: str = "UTC"
    catch_up: str = "one"


class Handler(Generic[P, R, T]):
    """A function whose calls can be enqueued. Calling it runs it here and now, as if it were not decorated.

    `T` is what `enqueue` gives: a Task, or something to await.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., R],
        *,
        lane: Lane,
        submit: Callable[[NewTask], T],
        defaults: TaskOptions,
        ticking: Ticking | None = None,
    ) -> None:
        self.name = name
        self.function = function
        self.lane = lane
        self.defaults = defaults
        self.ticking = ticking
        self.arguments = Arguments(name, function)
        self._submit = submit
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here and now."""
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Store a task that calls the function with these arguments. It is durable when this returns."""
        return self._submit(self.new(*args, **kwargs))

    def new(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """The task to enqueue, for `enqueue_many`."""
        return NewTask(self.name, self.arguments.to_params(args, kwargs), **self.defaults)

    def options(self, **options: Unpack[TaskOptions]) -> Self:
        """The same handler with other options: `resize.options(priority=5, delay=60).enqueue(7)`."""
        other = copy.copy(self)
        other.defaults = {**self.defaults, **options}
        return other

    @property
    def schedule(self) -> NewSchedule | None:
        """When workers enqueue its task by themselves, if they do."""
        if self.ticking is None:
            return None
        options = {name: value for name, value in self.defaults.items() if name in SCHEDULED}
        return NewSchedule(
            name=self.name,
            type=self.name,
            params=self.arguments.to_params((), {}),  # a schedule has no arguments to give
            cron=self.ticking.cron,
            timezone=self.ticking.timezone,
            catch_up=self.ticking.catch_up,
            **options,  # type: ignore[arg-type]
        )

    def __repr__(self) -> str:
        return f"Handler({self.name!r}, lane={self.lane.value!r})"


class Declaring(Generic[T]):
    """The decorator `@app.task(...)`."""

    def __init__(
        self,
        handlers: dict[str, Handler[..., Any, T]],
        submit: Callable[[NewTask], T],
        *,
        name: str | None = None,
        lane: str | None = None,
        schedule: str | None = None,
        timezone: str = "UTC",
        catch_up: str = "one",
        **defaults: Any,
    ) -> None:
        self._handlers = handlers
        self._submit = submit
        self._name = name
        self._lane = lane
        self._ticking = None if schedule is None else Ticking(schedule, timezone, catch_up)
        self._defaults = defaults

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Handler[P, R, T]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Handler[P, R, T]: ...
    def __call__(self, function: Callable[..., Any], /) -> Handler[..., Any, T]:
        """Make the function a handler."""
        name = check_name(function.__name__ if self._name is None else self._name, "The name of a handler")
        if other := self._handlers.get(name):
            raise InvalidValue(
                f"There already is a handler {name!r}: {other.function.__module__}.{other.function.__qualname__}.",
                hint='Give one of them another name: @app.task(name="…").',
            )
        defaults: TaskOptions = self._defaults  # type: ignore[assignment]
        handler: Handler[..., Any, T] = Handler(
            name,
            function,
            lane=_lane(name, function, self._lane),
            submit=self._submit,
            defaults=defaults,
            ticking=self._ticking,
        )
        NewTask(name, **defaults)  # wrong options are told here, not at the first enqueue
        _ = handler.schedule  # nor in the log of a worker, where a schedule that never ticks is quiet
        self._handlers[name] = handler
        return handler


def _lane(name: str, function: Callable[..., Any], wish: str | None) -> Lane:
    is_async = inspect.iscoroutinefunction(function)
    if wish is None:
        return Lane.LOOP if is_async else Lane.THREAD
    if wish not in Lane.__members__.values():
        raise InvalidValue(f"There is no lane {wish!r}.", hint=f"Use one of: {', '.join(Lane)}.")
    if wish != Lane.PROCESS and is_async != (wish == Lane.LOOP):
        kind = "an async function" if is_async else "a plain function"
        raise InvalidValue(f"The handler {name!r} is {kind} and cannot run in the lane {wish!r}.")
    return Lane(wish)
