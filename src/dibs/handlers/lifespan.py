"""The lifespan of an app: what a worker opens before its first task and closes after its last one."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from dibs.errors import InvalidValue
from dibs.handlers.middleware import module_of, name_of

LifespanFunction = Callable[
    [], Iterator[Any] | AsyncIterator[Any] | AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
]
"""A generator function (or an async one) that yields once, or a function that returns a context manager of either
kind."""

Manager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]

EXAMPLE = "Write a generator that yields the resources once: `def lifespan(): …; yield resources; …`."


class Lifespan:
    """The lifespan that is declared on an app."""

    def __init__(self, function: LifespanFunction) -> None:
        self.name = name_of(function)
        self.module = module_of(function)
        self._function: Callable[[], Any] = _as_manager(function)

    def manager(self) -> Manager:
        """A new context manager, for one process."""
        manager = self._function()
        if not isinstance(manager, (AbstractContextManager, AbstractAsyncContextManager)):
            raise InvalidValue(f"The lifespan {self.name} returned {manager!r}, not a context manager.", hint=EXAMPLE)
        return manager


def is_async_manager(manager: Manager) -> bool:
    """True for a context manager that is entered with `async with`."""
    return isinstance(manager, AbstractAsyncContextManager)


def _as_manager(function: Any) -> Callable[[], Any]:
    if not callable(function):
        raise InvalidValue(f"{function!r} is not a function, so it cannot be a lifespan.", hint=EXAMPLE)
    _check_signature(function)
    plain = function.func if isinstance(function, functools.partial) else function
    if inspect.isasyncgenfunction(plain):
        return contextlib.asynccontextmanager(function)
    if inspect.isgeneratorfunction(plain):
        return contextlib.contextmanager(function)
    if inspect.iscoroutinefunction(plain):
        raise InvalidValue(f"The lifespan {name_of(function)} yields nothing.", hint=EXAMPLE)
    return function  # type: ignore[no-any-return]


def _check_signature(function: Any) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise InvalidValue(f"The lifespan {name_of(function)} must be callable without arguments.") from None
    except ValueError:  # some functions written in C have no signature
        pass
