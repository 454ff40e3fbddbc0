"""Batch handlers: functions that run many tasks in one call, with an outcome for each task.

A batch handler is a handler whose function takes a sequence of items. Each task has its own params (the fields of one
document), claim, context and outcome; only the call is shared.
"""

from __future__ import annotations

import collections.abc
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Union, get_args, get_origin

import msgspec

from dibs.errors import InvalidValue
from dibs.handlers import values
from dibs.handlers.arguments import Arguments
from dibs.handlers.context import Context
from dibs.handlers.handler import AnyHandler, AsyncHandler, BatchBounds, CommonOptions, Handler, TaskDecorator
from dibs.handlers.hooks import AppHooks
from dibs.handlers.middleware import CallNext, MiddlewareStack, check_middleware, stack

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    D = TypeVar("D", default=Any)
    R = TypeVar("R", default=Any)
    C = TypeVar("C", default=Any)
    D_co = TypeVar("D_co", covariant=True, default=Any)
else:  # before Python 3.13, typing has no TypeVar with a default
    from typing import TypeVar

    D, R, C, D_co = TypeVar("D"), TypeVar("R"), TypeVar("C"), TypeVar("D_co", covariant=True)

MIDDLEWARE_EXAMPLE = "`def middleware(items, call_next): return call_next()`"

_SCHEDULING = ("schedule", "timezone", "every", "at", "jitter", "start_at", "end_at", "overlap", "catch_up")
_SEQUENCES = (collections.abc.Sequence, list)


@dataclass(frozen=True, slots=True)
class BatchItem(Generic[D_co]):
    """One task of a batch. `value`: its params, as the class that the handler declares. `ctx`: the context of its
    attempt, with which the handler reports progress, reads the task and sees a request to stop."""

    value: D_co
    ctx: Context


BatchMiddleware = Callable[[Sequence[BatchItem[Any]], CallNext], Any]
"""Receives the items of a call and `call_next`. Returns the outcomes, one for each item."""


class BatchOptions(CommonOptions, total=False):
    """The options of @app.batch_task: `size`, `wait`, `middleware` around each call, and those of @app.task without a
    schedule."""

    size: int
    wait: float
    middleware: Sequence[BatchMiddleware]


class BatchArguments(Arguments):
    """Converts between the document of a task and its params: the JSON object with the fields of the document."""

    noun = "field"

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        self._kind = values.inspected(values.checked(name, "the documents", _document_class(name, function)))
        self._names = _field_names(name, self._kind)

    def check(self) -> None:
        """See Arguments: the class of the documents is checked when the handler is declared."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the params: that of the document."""
        from dibs.handlers.params_schema import params_schema

        schema = params_schema({"document": self._kind}, {}, open_ended=False)
        definitions = {name: schema[name] for name in ("$defs",) if name in schema}
        return {**schema["properties"]["document"], **definitions}

    def has(self, name: str) -> bool:
        """True if the params of a document may have this name."""
        return self._names is None or name in self._names

    def to_params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The params of a document. Raises InvalidValue if its class is another one than that of the handler."""
        takes = f"It takes one {_name_of(self._kind)}."
        if kwargs or len(args) != 1:
            raise InvalidValue(f"{self._name}: a task of a batch handler has one argument.", hint=takes)
        try:
            params = values.to_json(args[0])
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{self._name}: the argument is not JSON: {error}.", hint=takes) from None
        if not isinstance(params, dict):
            raise InvalidValue(f"{self._name}: {args[0]!r} is not an object with fields.", hint=takes)
        self._value(params)
        return params

    def from_params(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        """The item for these params, under the name `item`. Raises InvalidValue if they do not fit the document."""
        return {"item": BatchItem(self._value(params), context)}

    def _value(self, params: dict[str, Any]) -> Any:
        try:
            return values.from_json(params, self._kind)
        except msgspec.ValidationError as error:
            message = f"The params do not match the handler {self._name!r}: {values.plain_message(error)}."
            raise InvalidValue(message, hint=f"It takes the fields of one {_name_of(self._kind)}.") from None


class ItemResult(values.ReturnType):
    """Converts the result of one task: the annotation of an element of what the function returns, without
    exceptions."""

    def annotation(self) -> Any:
        """See ReturnType."""
        returned = super().annotation()
        arguments = get_args(returned)
        if get_origin(returned) not in (*_SEQUENCES, tuple) or not arguments:
            return Any
        kinds = get_args(arguments[0]) if get_origin(arguments[0]) in (Union, UnionType) else (arguments[0],)
        results = tuple(kind for kind in kinds if not (isinstance(kind, type) and issubclass(kind, BaseException)))
        return Union[results] if results else Any  # noqa: UP007 (the members are known only at run time)


class _CalledWithItems:
    """What BatchHandler and AsyncBatchHandler have in common."""

    name: str
    function: Callable[..., Any]
    own_middleware: tuple[Any, ...]

    def _new_arguments(self) -> Arguments:
        return BatchArguments(self.name, self.function)

    def _new_result(self) -> values.ReturnType:
        return ItemResult(self.name, self.function)

    def _new_middleware(self, hooks: AppHooks) -> MiddlewareStack | None:
        """Only the middleware of the handler: that of the app is around one attempt, and a call has many."""
        for each in self.own_middleware:
            check_middleware(each, "a middleware", MIDDLEWARE_EXAMPLE)
        return stack(self.name, self.function, self.own_middleware)


class BatchHandler(_CalledWithItems, Handler[[D], R, C], Generic[D, R, C]):
    """A handler that runs many tasks in one call. `enqueue(document)` stores one task; a direct call runs the function
    with a sequence of items.

    `BatchHandler[Document, int]`: the handler of a function that takes items of Document, and returns an int or an
    exception for each.
    """

    if TYPE_CHECKING:

        def __call__(self, items: Sequence[BatchItem[D]], /) -> C:  # type: ignore[override]
            """Call the function directly."""


class AsyncBatchHandler(_CalledWithItems, AsyncHandler[[D], R, C], Generic[D, R, C]):
    """A batch handler of AsyncDibs: a BatchHandler whose methods are awaited."""

    if TYPE_CHECKING:

        def __call__(self, items: Sequence[BatchItem[D]], /) -> C:  # type: ignore[override]
            """Call the function directly."""


def _batch_kind(kind: type[AnyHandler]) -> type[AnyHandler]:
    """The class of the batch handlers of a client whose ordinary handlers have this class."""
    return kind.batch_kind or (AsyncBatchHandler if issubclass(kind, AsyncHandler) else BatchHandler)


class BatchDecorator(TaskDecorator):
    """The decorator `@app.batch_task(...)`. `kind`: the class of the ordinary handlers of the client."""

    def __init__(
        self,
        handlers: dict[str, Any],
        app: Any,
        kind: type[AnyHandler],
        hooks: AppHooks,
        *,
        size: int = 100,
        wait: float = 0.2,
        **options: Any,
    ) -> None:
        if given := [name for name in _SCHEDULING if name in options]:
            raise InvalidValue(
                f"A batch handler has no {given[0]}: a schedule passes no arguments, and each task has a document.",
                hint="Give the schedule to an ordinary handler that enqueues the documents.",
            )
        if options.get("capture_logs"):
            raise InvalidValue(
                "The logs of a batch handler cannot be captured: a call runs many tasks, and a log entry names none.",
                hint="Remove capture_logs, and log the id of the task: item.ctx.task_id.",
            )
        super().__init__(handlers, app, _batch_kind(kind), hooks, batch=BatchBounds(size, wait), **options)
        self._capture = None  # also if the app captures the logs of its handlers


def _document_class(name: str, function: Callable[..., Any]) -> Any:
    """The class of the documents, from the annotation of the function."""
    parameters = list(inspect.signature(function).parameters.values())
    example = "Write `def index(items: Sequence[dibs.BatchItem[Document]]) -> Sequence[int | Exception]`."
    if len(parameters) != 1 or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise InvalidValue(f"The batch handler {name!r} must have one parameter: its items.", hint=example)
    annotations = values.annotations_of(function)
    if annotations is None:
        raise InvalidValue(
            f"The annotations of the batch handler {name!r} cannot be read at run time.",
            hint="Define or import the class of its documents above the handler, at the top level of the module.",
        )
    items = annotations.get(parameters[0].name)
    item = get_args(items)[0] if get_origin(items) in _SEQUENCES else None
    if get_origin(item) is not BatchItem:
        given = f"is annotated with {items!r}" if items is not None else "has no annotation"
        raise InvalidValue(f"The parameter {parameters[0].name!r} of the batch handler {name!r} {given}.", hint=example)
    return get_args(item)[0]


def _field_names(name: str, kind: Any) -> frozenset[str] | None:
    """The names of the params of a document; None if any name is possible. Raises InvalidValue if the class cannot be
    stored as a JSON object."""
    if (fields := getattr(kind, "model_fields", None)) is not None:  # a Pydantic model
        return frozenset(name for key, field in fields.items() for name in (key, field.alias) if name)
    info = msgspec.inspect.type_info(kind)
    if isinstance(info, (msgspec.inspect.DataclassType, msgspec.inspect.TypedDictType)) or (
        isinstance(info, msgspec.inspect.StructType) and not info.array_like
    ):
        return frozenset(field.encode_name for field in info.fields)
    if isinstance(info, msgspec.inspect.DictType):
        return None
    raise InvalidValue(
        f"The batch handler {name!r} has documents of {_name_of(kind)}, which is not stored as a JSON object.",
        hint="Use a dataclass, an attrs class, a msgspec.Struct, a Pydantic model or a TypedDict: its fields are the"
        " params of a task.",
    )


def _name_of(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or repr(kind)
