"""Middleware: functions of the user around each attempt, and around each enqueue.

A middleware calls `call_next` and can do something before, after or instead of it. The first declared is the outermost.
Around an attempt, the middleware is part of the attempt: its exception is the exception of the attempt, and its time
counts against the timeout.

A plain function cannot wait for a coroutine, so a sync middleware around an async handler (or around an async
middleware) is refused when the second of them is declared. An async middleware may be around anything.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from dibs.errors import InvalidValue
from dibs.handlers.context import Context
from dibs.model.task import NewTask

CallNext = Callable[[], Any]
"""Runs what is inside of a middleware: the next middleware, or the handler. Returns the result of the handler; in an
async middleware, an awaitable of the result."""

AttemptMiddleware = Callable[[Context, CallNext], Any]
"""Receives the context of the attempt and `call_next`. Returns the result of the attempt."""

EnqueueMiddleware = Callable[[Sequence[NewTask], Callable[[Sequence[NewTask]], Any]], Any]
"""Receives the tasks of an enqueue and `call_next`, which stores the tasks that it is given. Returns the stored tasks
in the same order."""


class MiddlewareStack:
    """The middleware around the attempts of one handler, the outermost first."""

    def __init__(self, name: str, function: Callable[..., Any], layers: Sequence[AttemptMiddleware]) -> None:
        self.layers = tuple(layers)
        self._inner_async = [*map(is_async, layers[1:]), is_async(function)]
        for layer, inner_async in zip(layers, self._inner_async, strict=True):
            if inner_async and not is_async(layer):
                raise InvalidValue(
                    f"The middleware {name_of(layer)} is a plain function and cannot wait for what is inside of it: "
                    f"the handler {name!r}, or a middleware between the two, is async.",
                    hint=f"Write `async def {name_of(layer)}(ctx, call_next)` and `await call_next()` in it.",
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the functions, the outermost first."""
        return tuple(name_of(layer) for layer in self.layers)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of the functions."""
        return tuple(dict.fromkeys(module_of(layer) for layer in self.layers))

    def call(self, context: Any, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call the function inside the middleware, which receives the context (that of a batch handler: the items).
        Returns the result, or a coroutine if the outermost is async."""
        call: Callable[[], Any] = functools.partial(function, **arguments)
        for layer, inner_async in zip(reversed(self.layers), reversed(self._inner_async), strict=True):
            if is_async(layer) and not inner_async:
                call = functools.partial(_awaitable, call)
            call = functools.partial(layer, context, call)
        return call()


def stack(name: str, function: Callable[..., Any], layers: Sequence[AttemptMiddleware]) -> MiddlewareStack | None:
    """The middleware of a handler; None if there is none."""
    return MiddlewareStack(name, function, layers) if layers else None


def check_middleware(function: Any, what: str, example: str) -> None:
    """Raise InvalidValue unless the function can be called with two arguments."""
    if not callable(function) or isinstance(function, type):
        raise InvalidValue(f"{function!r} is not a function, so it cannot be {what}.", hint=f"Write {example}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidValue(
            f"{name_of(function)} is a generator, so it cannot be {what}.",
            hint=f"Write {example}, and call `call_next` where you yield.",
        )
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise InvalidValue(f"{name_of(function)} does not take two arguments.", hint=f"Write {example}.") from None
    except ValueError:  # some functions written in C have no signature
        pass


def is_async(function: Callable[..., Any]) -> bool:
    """True for a coroutine function, and for an object whose call is one."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def name_of(function: Any) -> str:
    """The name of a function of the user, for messages."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", type(function).__qualname__)


def module_of(function: Any) -> str:
    """The module of a function of the user."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", None) or type(function).__module__)


async def _awaitable(call: Callable[[], Any]) -> Any:
    return call()


# Around an enqueue


def enqueue_call(
    layers: Sequence[EnqueueMiddleware], store: Callable[[Sequence[NewTask]], Any]
) -> Callable[[Sequence[NewTask]], Any]:
    """The function that enqueues tasks through all middleware, the outermost first."""
    call = store
    for layer in reversed(layers):
        call = functools.partial(_called_with_next, layer, call)
    return call


def _called_with_next(
    layer: EnqueueMiddleware, call: Callable[[Sequence[NewTask]], Any], tasks: Sequence[NewTask]
) -> Any:
    return layer(tasks, call)


def check_stored(layers: Sequence[EnqueueMiddleware], given: int, stored: Any) -> list[Any]:
    """What the middleware around an enqueue returned: one stored task for each of the given ones."""
    if not isinstance(stored, Sequence) or len(stored) != given:
        names = ", ".join(map(name_of, layers))
        amount = f"{len(stored)} tasks" if isinstance(stored, Sequence) else repr(stored)
        raise InvalidValue(
            f"The enqueue middleware ({names}) returned {amount} for an enqueue of {given}.",
            hint="Return what `call_next` returned, with one stored task for each given task, in the same order; "
            "raise an exception to refuse the enqueue.",
        )
    return list(stored)
