"""Handlers: `@app.task` binds a function to a task type, with the default options of its tasks."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypedDict,
    Unpack,
    cast,
    overload,
)

import msgspec

from dibs.encoded import is_encoded
from dibs.errors import CodecFailed, CodecMissing, InvalidValue
from dibs.handlers.arguments import Arguments
from dibs.handlers.hooks import AppHooks
from dibs.handlers.middleware import AttemptMiddleware, MiddlewareStack
from dibs.handlers.outcome_hooks import HookKind, OutcomeHook, OutcomeHooks, checked_hooks
from dibs.handlers.retry_rules import Errors, HandlerBackoff, RetryRules, retry_rules
from dibs.handlers.values import ReturnType
from dibs.json_values import check_name
from dibs.model.checks import check_integer, check_seconds
from dibs.model.claim import MAX_BATCH
from dibs.model.limit import NewTypeSettings, group_of
from dibs.model.registry import DeclaredSchema
from dibs.model.schedule import NewSchedule
from dibs.model.task import NewTask, Task, TaskRecord

if TYPE_CHECKING:
    from datetime import datetime

    from typing_extensions import TypeVar

    from dibs.handlers.codecs import Codec, Codecs
    from dibs.handlers.log_capture import LogCapture
    from dibs.handlers.options import TaskOptions
    from dibs.handlers.protocols import TaskClient
    from dibs.many.async_tasks import AsyncTasks
    from dibs.many.tasks import Tasks
    from dibs.model.async_task import AsyncTask

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    R = TypeVar("R", default=Any)
    C = TypeVar("C", default=R)
    A = TypeVar("A")
    B = TypeVar("B")
    D = TypeVar("D")
else:  # before Python 3.13, typing has no TypeVar with a default
    from typing import TypeVar

    P, R, C = ParamSpec("P"), TypeVar("R"), TypeVar("C")


SCHEDULE_OPTIONS = ("queue", "priority", "max_attempts", "timeout", "backoff", "tags", "expires_in", "group")
"""The options of a handler that also apply to the tasks of its schedule."""


TIMING_OPTIONS = ("timezone", "every", "at", "jitter", "start_at", "end_at", "overlap", "catch_up")
"""The options of a handler that concern its schedule, beside the cron expression."""


KEY_OPTIONS = frozenset({"key_scope", "key_for", "on_conflict", "max_delay"})
"""The options of a handler that do not apply to steps of workflows."""


class Lane(StrEnum):
    """How a handler runs: in a thread, on an event loop or in a child process."""

    THREAD = "thread"  # plain functions
    LOOP = "loop"  # coroutine functions, on an event loop
    PROCESS = "process"  # child processes: for long computations, and for handlers that must be killed at their timeout


class CommonOptions(TypedDict, total=False):
    """The options of @app.task and @app.batch_task. Options from `queue` on are defaults of the enqueued tasks, as in
    `enqueue`.

    `retry_on`, `give_up_on`: exceptions (and their subclasses) after which another attempt follows, or none.
    `limits`, `group_by`: limits of all tasks of this type, however they are enqueued, and the parameter that names the
    group of a task. They are stored with the task type before a worker claims its first task.
    `register_schema`: False if workers do not register the JSON Schema of the arguments, by which clients in other
    languages are checked. By default, the option of the app.
    `capture_logs`: True, or a LogCapture: what the handler logs (and prints) is stored, for `task.logs()`.
    `on_success`, `on_error`, `on_dead`, `on_cancel`: functions that the worker calls after it has stored an outcome.
    `codec`: encodes params, results and checkpoints; of several, the first encodes, and all decode. None: no codec,
    also where the app has one.
    """

    name: str
    lane: str
    retry_on: Errors
    give_up_on: Errors
    limits: Sequence[str]
    group_by: str | None
    register_schema: bool
    capture_logs: bool | LogCapture
    on_success: OutcomeHook | Sequence[OutcomeHook]
    on_error: OutcomeHook | Sequence[OutcomeHook]
    on_dead: OutcomeHook | Sequence[OutcomeHook]
    on_cancel: OutcomeHook | Sequence[OutcomeHook]
    codec: Codec | Sequence[Codec] | None
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    backoff: HandlerBackoff
    tags: Sequence[str]
    expires_in: float | None
    delay: float
    key_scope: str
    key_for: float | None
    on_conflict: str
    max_delay: float | None
    group: str | None


class HandlerOptions(CommonOptions, total=False):
    """The options of @app.task.

    `schedule`: a cron expression in `timezone`, at whose ticks workers enqueue the task without arguments. `every`,
    `at`: an interval in seconds, or a single time, instead of a cron expression. `jitter`, `start_at`, `end_at`,
    `overlap`: as in `set_schedule`. `catch_up`: what to do with ticks that were missed while no worker ran.
    `middleware`: functions around each attempt, inside those of the app; the first is the outermost.
    """

    schedule: str
    timezone: str
    every: float
    at: datetime
    jitter: float
    start_at: datetime
    end_at: datetime
    overlap: str
    catch_up: str
    middleware: Sequence[AttemptMiddleware]


@dataclass(frozen=True)
class BatchBounds:
    """How many tasks a call of a batch handler has at most, and how many seconds the first one waits for others."""

    size: int
    wait: float

    def __post_init__(self) -> None:
        check_integer(self.size, "size", 1, MAX_BATCH)
        check_seconds(self.wait, "wait")


class HandlerBase(Generic[P, R, C]):
    """What Handler and AsyncHandler have in common: a function and its arguments, name, lane and default options.

    `P`: the parameters of the function without the context. `R`: the type of a task's result. `C`: what a direct call
    returns, which is `R`, or for a coroutine function a coroutine that returns `R`.
    """

    batch_kind: ClassVar[type[AnyHandler] | None] = None
    """The class of the batch handlers of the same client; None: BatchHandler or AsyncBatchHandler."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        lane: Lane,
        app: TaskClient | None,
        defaults: TaskOptions,
        ticking: Mapping[str, Any] | None = None,
        retry_rules: RetryRules | None = None,
        hooks: AppHooks | None = None,
        middleware: tuple[AttemptMiddleware, ...] = (),
        limits: Sequence[str] = (),
        group_by: str | None = None,
        outcome_hooks: OutcomeHooks | None = None,
        batch: BatchBounds | None = None,
        register_schema: bool = True,
        capture: LogCapture | None = None,
        codecs: Codecs | None = None,
        siblings: Mapping[str, AnyHandler] | None = None,
    ) -> None:
        self.name = name
        self.function = function
        self.lane = lane
        self.defaults = defaults
        self.ticking = ticking
        self.retry_rules = retry_rules
        self.hooks = hooks
        self.own_outcome_hooks: OutcomeHooks = outcome_hooks or {}
        self.own_middleware = middleware
        self.batch = batch
        self.middleware = None if hooks is None else self._new_middleware(hooks)
        self.arguments = self._new_arguments()
        self.settings = NewTypeSettings(type=name, limits=limits, group_by=group_by)
        self.returns = self._new_result()
        self.register_schema = register_schema
        self.capture = capture
        self.codecs = codecs
        self._siblings = siblings or {}
        self._app = app
        self._key_of: Callable[..., str] | None = None
        functools.update_wrapper(self, function)

    def _new_middleware(self, hooks: AppHooks) -> MiddlewareStack | None:
        return hooks.stack_for(self.name, self.function, self.own_middleware)

    def _new_arguments(self) -> Arguments:
        return Arguments(self.name, self.function)

    def _new_result(self) -> ReturnType:
        return ReturnType(self.name, self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function directly."""
        result: C = self.function(*args, **kwargs)
        return result

    def new(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Create the task without storing it: for `enqueue_many`, and for `flow.step(resize.new(7), after=[…])`."""
        options = self.defaults
        if self._key_of is not None:
            options = {**options, "key": self._key_of(*args, **kwargs)}
        return self._new(self.arguments.to_params(args, kwargs), options)

    def new_step(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Create the task of a workflow's step. A step has no key, so the options about the key do not apply."""
        options = {name: value for name, value in self.defaults.items() if name not in KEY_OPTIONS}
        return self._new(self.arguments.to_params(args, kwargs), options)

    def options(self, **options: Unpack[TaskOptions]) -> Self:
        """A copy of the handler with other options: `resize.options(priority=5, delay=60).enqueue(7)`."""
        if "backoff" in options and self.retry_rules is not None and self.retry_rules.sets_delay:
            raise InvalidValue(
                f"The backoff of the handler {self.name!r} is computed by its workers, for each of its tasks.",
                hint="Declare an exponential backoff (dibs.Backoff) to change it for single tasks.",
            )
        other = copy.copy(self)
        other.defaults = {**self.defaults, **options}
        return other

    def keyed(self, key_of: Callable[P, str]) -> Self:
        """A copy of the handler that gives each task a key, the result of this function for the arguments of the task:
        `resize.keyed(lambda picture, width: f"{picture}-{width}").map(pictures, width=400)`."""
        other = copy.copy(self)
        other._key_of = key_of
        return other

    def on(self, connection: Any) -> Self:
        """A copy of the handler on your connection: its methods join the open transaction, which you commit. Takes what
        `app.on` takes: `ship.on(connection).enqueue(order=17)`."""
        other = copy.copy(self)
        other._app = self._client.on(connection)
        return other

    def _enqueue_each(self, calls: Any, kwargs: dict[str, Any]) -> Any:
        """Enqueue a task for each tuple of arguments, in chunks. Raises InvalidValue if all tasks would have the same
        key: only the first would be stored."""
        if self._key_of is None and self.defaults.get("key") is not None:
            raise InvalidValue(
                f"map of the handler {self.name!r} would give all its tasks the key {self.defaults.get('key')!r}.",
                hint="Give each task a key of its own: resize.keyed(lambda picture: …).map(…).",
            )
        new = _for_each(calls, lambda args: self.new(*args, **kwargs))
        return self._client._map(new, self.read_result)

    def check_types(self) -> None:
        """Raise InvalidValue if an argument or the result cannot be stored. A worker checks again when it starts:
        annotations that name what is declared below the handler can be resolved then."""
        self.arguments.check()
        self.returns.check()

    @property
    def declared_schema(self) -> DeclaredSchema:
        """The JSON Schema that a worker registers for the task type: none with a codec, because a store cannot read
        encoded params."""
        is_checked = self.register_schema and self.codecs is None
        return DeclaredSchema(self.name, self.arguments.schema() if is_checked else None)

    def encode(self, value: Any) -> Any:
        """The stored form of a JSON value of this handler: `app.complete(claim, resize.encode(result))`. Without a
        codec the value itself."""
        return value if self.codecs is None else self.codecs.encode(value, f"the value of {self.name!r}")

    def decode(self, stored: Any) -> Any:
        """The plain JSON of a stored value of this handler: `resize.decode(task.params)`, or of `task.raw_result`. A
        value that is not encoded is returned as it is. Raises CodecMissing, or CodecFailed."""
        return self.decode_of(self.name, stored, "the value")

    def decode_of(self, type_name: str, stored: Any, what: str) -> Any:
        """The plain JSON of a stored value of a task of this type. Its name chooses the codec: of the handler of the
        type, of this handler, or of any other one of the app."""
        if not is_encoded(stored):
            return stored
        from dibs.handlers.codecs import decode_with  # noqa: PLC0415 - only programs with codecs import it

        owner = self._siblings.get(type_name, self)
        return decode_with([each.codecs for each in (owner, self, *self._siblings.values())], stored, what)

    def plain(self, stored: Any) -> Any:
        """`decode` for hooks and tests: a value that cannot be decoded is returned as it is stored."""
        try:
            return self.decode(stored)
        except (CodecFailed, CodecMissing):
            return stored

    def plain_task(self, task: Task) -> Task:
        """The task with plain params and a plain result, as far as they can be decoded."""
        if not is_encoded(task.params) and not is_encoded(task.raw_result):
            return task
        return msgspec.structs.replace(task, params=self.plain(task.params), raw_result=self.plain(task.raw_result))

    def read_result(self, task: TaskRecord[Any]) -> R:
        """The result of the completed task, as the return type of the function."""
        if is_encoded(task.raw_result):
            plain = self.decode_of(task.type, task.raw_result, f"the result of task {task.id} ({task.type})")
            task = msgspec.structs.replace(task, raw_result=plain)
        result: R = self.returns.convert(task)
        return result

    @property
    def is_limited(self) -> bool:
        """True if the tasks of the type have limits, or a group."""
        return bool(self.settings.limits or self.settings.group_by)

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
            **self.ticking,
            **options,  # type: ignore[arg-type]
        )

    def _new(self, params: dict[str, Any], options: Mapping[str, Any]) -> NewTask:
        if self.codecs is None:
            return NewTask(self.name, params, checked_params=params, **options)
        if options.get("group") is None and self.settings.group_by:  # the store cannot read the group
            options = {**options, "group": group_of(params.get(self.settings.group_by))}
        return NewTask(self.name, self.codecs.encode(params, f"the params of {self.name!r}"), **options)

    @property
    def _client(self) -> TaskClient:
        if self._app is None:
            raise InvalidValue(f"The handler {self.name!r} has no client.", hint="Declare it with @app.task.")
        return self._app

    def _check_type(self, task: TaskRecord[Any]) -> None:
        if task.type != self.name:
            raise InvalidValue(
                f"Task {task.id} is of the type {task.type!r}, not {self.name!r}.",
                hint=f"app.get({task.id}) returns a task of any type.",
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, lane={self.lane.value!r})"


class Handler(HandlerBase[P, R, C]):
    """A function whose calls can be enqueued as tasks. A direct call runs the function in the caller, as if
    undecorated.

    `Handler[[int], str]`: the handler of a function that takes an int and returns a str.
    """

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
        """Store a task that calls the function with these arguments. The task is durable when this method returns."""
        task: Task[R] = self._client._submit(self.new(*args, **kwargs))
        return task.of(self._app, self.read_result)

    def get(self, task_id: int) -> Task[R] | None:
        """The task; None if it does not exist. Its result has the return type of the function."""
        task: Task[R] | None = self._client.get(task_id)
        if task is None:
            return None
        self._check_type(task)
        return task.of(self._app, self.read_result)

    def map(
        self: Callable[Concatenate[A, Q], Any], items: Iterable[A], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Tasks[R]:
        """Store a task for each item, which is the first argument: `resize.map(pictures, width=400)`.

        The tasks are stored in chunks of up to 1000 while the iterable goes on, and each chunk as a whole or not at
        all. Raises NotAllEnqueued with the stored tasks if the iterable raises or an item is refused.
        """
        tasks: Tasks[R] = cast("Any", self)._enqueue_each(((item, *args) for item in items), kwargs)
        return tasks

    @overload
    def starmap(
        self: Callable[Concatenate[A, B, Q], Any], items: Iterable[tuple[A, B]], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Tasks[R]: ...
    @overload
    def starmap(
        self: Callable[Concatenate[A, B, D, Q], Any],
        items: Iterable[tuple[A, B, D]],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Tasks[R]: ...
    @overload  # longer tuples are not checked
    def starmap(self, items: Iterable[tuple[Any, Any, Any, Any, *tuple[Any, ...]]], /, **kwargs: Any) -> Tasks[R]: ...
    def starmap(self, items: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Store a task for each tuple of items, which are the first arguments: `resize.starmap([(7, 400), (8, 200)])`.
        Otherwise as `map`."""
        return self._enqueue_each(((*each, *args) for each in items), kwargs)

    def tasks(self, ids: Iterable[int]) -> Tasks[R]:
        """Many tasks of this handler by their ids, as `map` returns them. Reads nothing yet."""
        tasks: Tasks[R] = self._client._handle(ids, self.read_result)
        return tasks


class AsyncHandler(HandlerBase[P, R, C]):
    """A handler of AsyncDibs: a Handler whose methods are awaited."""

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncTask[R]:
        """Store a task that calls the function with these arguments. The task is durable when this method returns."""
        task: AsyncTask[R] = await self._client._submit(self.new(*args, **kwargs))
        return task.of(self._app, self.read_result)

    async def get(self, task_id: int) -> AsyncTask[R] | None:
        """The task; None if it does not exist. Its result has the return type of the function."""
        task: AsyncTask[R] | None = await self._client.get(task_id)
        if task is None:
            return None
        self._check_type(task)
        return task.of(self._app, self.read_result)

    async def map(
        self: Callable[Concatenate[A, Q], Any],
        items: Iterable[A] | AsyncIterable[A],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> AsyncTasks[R]:
        """Store a task for each item, which is the first argument: `resize.map(pictures, width=400)`.

        The tasks are stored in chunks of up to 1000 while the iterable goes on, which may be async, and each chunk as a
        whole or not at all. Raises NotAllEnqueued with the stored tasks if the iterable raises or an item is refused.
        """
        tasks: AsyncTasks[R] = await cast("Any", self)._enqueue_each(
            _for_each(items, lambda item: (item, *args)), kwargs
        )
        return tasks

    @overload
    async def starmap(
        self: Callable[Concatenate[A, B, Q], Any],
        items: Iterable[tuple[A, B]] | AsyncIterable[tuple[A, B]],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> AsyncTasks[R]: ...
    @overload
    async def starmap(
        self: Callable[Concatenate[A, B, D, Q], Any],
        items: Iterable[tuple[A, B, D]] | AsyncIterable[tuple[A, B, D]],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> AsyncTasks[R]: ...
    @overload  # longer tuples are not checked
    async def starmap(
        self,
        items: Iterable[tuple[Any, Any, Any, Any, *tuple[Any, ...]]]
        | AsyncIterable[tuple[Any, Any, Any, Any, *tuple[Any, ...]]],
        /,
        **kwargs: Any,
    ) -> AsyncTasks[R]: ...
    async def starmap(self, items: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Store a task for each tuple of items, which are the first arguments: `resize.starmap([(7, 400), (8, 200)])`.
        Otherwise as `map`."""
        return await self._enqueue_each(_for_each(items, lambda each: (*each, *args)), kwargs)

    def tasks(self, ids: Iterable[int]) -> AsyncTasks[R]:
        """Many tasks of this handler by their ids, as `map` returns them. Reads nothing yet."""
        tasks: AsyncTasks[R] = self._client._handle(ids, self.read_result)
        return tasks


AnyHandler = HandlerBase[..., Any, Any]


def _for_each(items: Any, make: Callable[[Any], Any]) -> Any:
    """What `make` returns for each item, as an iterable of the kind of the items."""
    return (make(item) async for item in items) if isinstance(items, AsyncIterable) else map(make, items)


class TaskDecorator:
    """The decorator `@app.task(...)`. Its types for programs are HandlerDecorator and AsyncHandlerDecorator.

    `kind`: the class of the handlers of the client.
    """

    def __init__(
        self,
        handlers: dict[str, Any],
        app: TaskClient,
        kind: type[AnyHandler],
        hooks: AppHooks,
        *,
        name: str | None = None,
        lane: str | None = None,
        retry_on: Errors | None = None,
        give_up_on: Errors | None = None,
        backoff: HandlerBackoff | None = None,
        middleware: Sequence[AttemptMiddleware] = (),
        limits: Sequence[str] = (),
        group_by: str | None = None,
        batch: BatchBounds | None = None,
        register_schema: bool = True,
        capture_logs: bool | LogCapture | None = None,
        codec: Codec | Sequence[Codec] | Codecs | None = None,
        **defaults: Any,
    ) -> None:
        self._handlers = handlers
        self._app = app
        self._kind = kind
        self._hooks = hooks
        self._middleware = middleware
        self._outcome_hooks = {
            kind: checked_hooks(kind, defaults.pop(kind)) for kind in HookKind if defaults.get(kind) is not None
        }
        self._name = name
        self._lane = lane
        self._ticking = _ticking(defaults)
        self._retries = retry_on, give_up_on, backoff
        self._limits = limits
        self._group_by = group_by
        self._batch = batch
        self._register_schema = register_schema
        self._capture = hooks.capture_for(capture_logs)
        self._codecs = None if codec is None else codecs_of(codec)
        self._defaults = defaults

    def __call__(self, function: Callable[..., Any], /) -> AnyHandler:
        """Register the function as a handler."""
        name = check_name(function.__name__ if self._name is None else self._name, "The name of a handler")
        if other := self._handlers.get(name):
            raise InvalidValue(
                f"A handler named {name!r} already exists: {other.function.__module__}.{other.function.__qualname__}.",
                hint='Give one of them another name: @app.task(name="…").',
            )
        rules, backoff = retry_rules(name, *self._retries)
        stored: dict[str, Any] = {} if backoff is None else {"backoff": backoff}
        defaults: TaskOptions = {**self._defaults, **stored}  # type: ignore[typeddict-item]
        handler: AnyHandler = self._kind(
            name,
            function,
            lane=_lane(name, function, self._lane),
            app=self._app,
            defaults=defaults,
            ticking=self._ticking,
            retry_rules=rules,
            hooks=self._hooks,
            middleware=tuple(self._middleware),
            limits=self._limits,
            group_by=self._group_by,
            outcome_hooks=self._outcome_hooks,
            batch=self._batch,
            register_schema=self._register_schema,
            capture=self._capture,
            codecs=self._codecs,
            siblings=self._handlers,
        )
        handler.check_types()
        _check_group(handler)
        _check_options(name, self._defaults)  # raises for wrong options here, not at the first enqueue
        _ = handler.schedule  # raises for a wrong schedule here, not in the log of a worker
        self._handlers[name] = handler
        return handler


def _ticking(options: dict[str, Any]) -> dict[str, Any] | None:
    """Take what concerns the schedule of a handler out of its options; None for a handler without a schedule."""
    timing = {name: options.pop(name) for name in TIMING_OPTIONS if name in options}
    cron = options.pop("schedule", None)
    if cron is None and timing.get("every") is None and timing.get("at") is None:
        if timing:
            hint = "Give schedule (a cron expression), every (seconds) or at (a time) as well."
            raise InvalidValue(f"A handler with {' and '.join(timing)} has no schedule.", hint=hint)
        return None
    return {"cron": cron, **timing}


def codecs_of(codec: Codec | Sequence[Codec] | Codecs) -> Codecs:
    """The codecs of the option `codec`, checked."""
    from dibs.handlers.codecs import checked_codecs  # noqa: PLC0415 - only programs with codecs import it

    return checked_codecs(codec)


def _check_options(name: str, defaults: dict[str, Any]) -> None:
    """Check the defaults of a handler. The options about the key are checked as those of a task with a key."""
    if unknown := [option for option in defaults if option not in NewTask.__struct_fields__]:
        raise TypeError(
            f"The handler {name!r} has the unknown option {unknown[0]!r}{_similar(unknown[0])}."
            " help(app.task) lists all options."
        )
    NewTask(name, **{"key": name, **defaults})


def _similar(option: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - needed for a message only

    known = [*HandlerOptions.__annotations__, *CommonOptions.__annotations__]
    found = get_close_matches(option, known, n=1)
    return f"; the most similar option is {found[0]!r}" if found else ""


def _check_group(handler: AnyHandler) -> None:
    group_by = handler.settings.group_by
    if group_by is None:
        return
    if handler.defaults.get("group") is not None:
        raise InvalidValue(f"The handler {handler.name!r} has both group and group_by.", hint="Give one of them.")
    if not handler.arguments.has(group_by):
        raise InvalidValue(
            f"The handler {handler.name!r} has no {handler.arguments.noun} {group_by!r}, which group_by names.",
            hint=f"group_by is the name of a {handler.arguments.noun}, whose value is the group of the task.",
        )


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
