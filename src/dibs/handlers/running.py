"""The attempt that runs in this thread or coroutine, as log handlers see it: a context variable.

It is set only if a handler captures its logs, if the program has imported `dibs.logs`, or if `dibs worker` writes the
log: other programs pay for one look at two attributes for each task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dibs.handlers.context import Context

current: ContextVar[Context | None] = ContextVar("dibs_attempt", default=None)


FIELDS = ("task_id", "task_type", "queue", "attempt", "token", "worker_id")
"""The names of the fields of an attempt, which are those of the entries of dibs."""


class LogReaders:
    """Whether the program reads the variable. Set by `dibs.logs` and `dibs worker`."""

    exist = False


def is_observed(context: Context) -> bool:
    """True if the variable has to be set for this attempt."""
    return context.sink is not None or LogReaders.exist


class ObservedAttempt:
    """A context manager (a generator would cost each task twice as much), which sets the variable to this
    attempt, and closes the log of the attempt at the end."""

    __slots__ = ("_before", "_context")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: Context | None = None

    def __enter__(self) -> None:
        self._before = current.get()
        current.set(self._context)

    def __exit__(self, *error: object) -> None:
        current.set(self._before)  # not `reset`, which a coroutine that is collected in another context may not call
        if self._context.sink is not None:
            self._context.sink.close()


@contextmanager
def no_attempt() -> Iterator[None]:
    """Unset the variable, for work that does not belong to the attempt."""
    before = current.get()
    current.set(None)
    try:
        yield
    finally:
        current.set(before)


def fields() -> dict[str, Any]:
    """The fields of the attempt that runs in this thread or coroutine; empty outside of an attempt."""
    context = current.get()
    if context is None:
        return {}
    claim = context.claim
    values = (claim.task.id, claim.task.type, claim.task.queue, claim.attempt, claim.token, claim.worker_id)
    return dict(zip(FIELDS, values, strict=True))
