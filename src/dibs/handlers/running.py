"""The attempt that runs in this thread or coroutine, as log handlers see it: a context variable.

It is set only if a handler captures its logs, or if the program has imported `dibs.logs`: other programs pay for one
look at two attributes for each task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dibs.handlers.context import Context

current: ContextVar[Context | None] = ContextVar("dibs_attempt", default=None)


class LogReaders:
    """Whether the program reads the variable. Set by `dibs.logs`."""

    exist = False


def is_observed(context: Context) -> bool:
    """True if the variable has to be set for this attempt."""
    return context.sink is not None or LogReaders.exist


@contextmanager
def attempt(context: Context) -> Iterator[None]:
    """Set the variable to this attempt, and close its log at the end."""
    before = current.get()
    current.set(context)
    try:
        yield
    finally:
        current.set(before)  # not `reset`, which a coroutine that is collected in another context may not call
        if context.sink is not None:
            context.sink.close()


@contextmanager
def no_attempt() -> Iterator[None]:
    """Unset the variable, for work that does not belong to the attempt."""
    before = current.get()
    current.set(None)
    try:
        yield
    finally:
        current.set(before)
