"""What the sync and the async client have in common: the store, a borrowed connection, a signature."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, TypeVar

from dibs.codec import check_name
from dibs.errors import DibsError
from dibs.store.open import open_store
from dibs.store.operation import Operation
from dibs.task import check_integer

T = TypeVar("T")
DEFAULT_URL = "sqlite:///dibs.db"


class ClientBase:
    """A queue of tasks in the store at `url` (else at DIBS_URL, else in ./dibs.db).

    Nothing is opened before the first verb is used. One object serves a whole process and survives a fork.
    """

    def __init__(self, url: str | None = None, *, clock: Callable[[], int] | None = None, migrate: bool = True) -> None:
        self.url = url or os.environ.get("DIBS_URL") or DEFAULT_URL
        self._store = open_store(self.url, clock=clock, migrate=migrate)
        self._on: Any = None
        self._by: str | None = None

    def on(self, connection: Any) -> Self:
        """The same queue on your connection: every verb joins its open transaction, which you commit."""
        return self._with(_on=connection)

    def signed(self, by: str) -> Self:
        """The same queue with `by` noted in the history of everything it does."""
        return self._with(_by=check_name(by, "The signature"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _with(self, **changes: Any) -> Self:
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    def _sign(self, operation: Operation[T]) -> Operation[T]:
        return operation if self._by is None else replace(operation, by=self._by)


def check_id(task_id: Any) -> int:
    """A task's id."""
    return check_integer(task_id, "A task's id", 0, 2**63 - 1)


def or_raise(answer: T | DibsError) -> T:
    """The answer, raised if it is an error."""
    if isinstance(answer, DibsError):
        raise answer
    return answer
