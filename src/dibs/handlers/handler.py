"""Handlers: `@app.task` binds a function to a task type, with the default options of its tasks."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
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


SCHEDULE_OPTIONS = ("queue", "priority", "max_attempts", "timeout", "backoff", "tags")
"""The options of a handler that also apply to the tasks of its schedule."""


class Lane(StrEnum):
    """How a handler runs: in a thread, on an event loop or in a child process."""

    THREAD = "thread"  # plain functions
    LOOP = "loop"  # coroutine functions, on an event loop
    PROCESS = "process"  # child processes: for long computations, and for handlers that must be killed at their timeout


class HandlerOptions(TypedDict, total=False):
    """The options of @app.task. Options from `queue` on are defaults of the enqueued tasks, as in `enqueue`.

    `schedule`: a cron expression in `timezone`, at whose ticks workers enqueue the task without arguments.
    `catch_up`: what to do with ticks that were missed while no worker ran.
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
    tags: Sequence[str]


@dataclass(frozen=True)
class HandlerSchedule:
    """The schedule of a handler: when workers enqueue its task."""

    cron: str
    timezone: str = "UTC"
    catch_up: str = "one"


class Handler(Generic[P, R, T]):
    """A function whose calls can be enqueued as tasks. A direct call runs the function in the caller, as if
    undecorated.

    `T` is the type that `enqueue` returns: a Task, or an awaitable.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., R],
        *,
        lane: Lane,
        submit: Callable[[NewTask], T],
        defaults: TaskOptions,
        ticking: HandlerSchedule | None = None,
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
        """Call the function directly."""
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Store a task that calls the function with these arguments. The task is durable when this method returns."""
        return self._submit(self.new(*args, **kwargs))

    def new(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Create the task without storing it, for `enqueue_many`."""
        return NewTask(self.name, self.arguments.to_params(args, kwargs), **self.defaults)

    def options(self, **options: Unpack[TaskOptions]) -> Self:
        """A copy of the handler with other options: `resize.options(priority=5, delay=60).enqueue(7)`."""
        other = copy.copy(self)
        other.defaults = {**self.defaults, **options}
        return other

    @property
    def schedule(self) -> NewSchedule | None:
        """The schedule at which workers enqueue the task; None without one."""
        if self.ticking is None:
            return None
        options = {name: value for name, value in self.defaults.items() if name in SCHEDULE_OPTIONS}
        return NewSchedule(
            name=self.name,
            type=self.name,
            params=self.arguments.to_params((), {}),  # a schedule passes no arguments
            cron=self.ticking.cron,
            timezone=self.ticking.timezone,
            catch_up=self.ticking.catch_up,
            **options,  # type: ignore[arg-type]
        )

    def __repr__(self) -> str:
        return f"Handler({self.name!r}, lane={self.lane.value!r})"


class TaskDecorator(Generic[T]):
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
        self._ticking = None if schedule is None else HandlerSchedule(schedule, timezone, catch_up)
        self._defaults = defaults

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Handler[P, R, T]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Handler[P, R, T]: ...
    def __call__(self, function: Callable[..., Any], /) -> Handler[..., Any, T]:
        """Register the function as a handler."""
        name = check_name(function.__name__ if self._name is None else self._name, "The name of a handler")
        if other := self._handlers.get(name):
            raise InvalidValue(
                f"A handler named {name!r} already exists: {other.function.__module__}.{other.function.__qualname__}.",
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
        NewTask(name, **defaults)  # raises for wrong options here, not at the first enqueue
        _ = handler.schedule  # raises for a wrong schedule here, not in the log of a worker
        self._handlers[name] = handler
        return handler


def _lane(name: str, function: Callable[..., Any], lane: str | None) -> Lane:
    is_async = inspect.iscoroutinefunction(function)
    if lane is None:
        return Lane.LOOP if is_async else Lane.THREAD
    if lane not in Lane.__members__.values():
        raise InvalidValue(f"There is no lane {lane!r}.", hint=f"Use one of: {', '.join(Lane)}.")
    if lane != Lane.PROCESS and is_async != (lane == Lane.LOOP):
        kind = "an async function" if is_async else "a plain function"
        raise InvalidValue(f"The handler {name!r} is {kind} and cannot run in the lane {lane!r}.")
    return Lane(lane)
