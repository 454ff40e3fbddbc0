"""An operation is data: the statements to run, and what their rows mean.

Nothing here does I/O. A store runs the statements of an operation with `drive` or `drive_async` and an executor of its
own. So no operation is written twice for sync and async, and every operation can run on a connection of the user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

T = TypeVar("T")
Row = tuple[Any, ...]
Rows = list[Row]


class Statement(msgspec.Struct, frozen=True):
    """One SQL section of the engine, with its parameters.

    `rows`: run the statement for each of these rows of parameters (an engine may do so in one statement). `values`:
    rows to insert. `words`: fixed texts for the section's placeholders, never user input. `change`: the statement
    changes the state of tasks, and its rows begin with HISTORY_COLUMNS; if an engine cannot write the history in the
    same statement, the store appends it."""

    name: str
    params: Mapping[str, Any] = {}
    rows: Sequence[Any] | None = None
    values: Sequence[Row] | None = None
    words: tuple[tuple[str, str], ...] = ()
    change: bool = False


def limited(count: int) -> tuple[tuple[str, str]]:
    """The word for a limit. It is a part of the SQL text, because PostgreSQL plans for a tenth of the table if the
    limit is a parameter."""
    return (("limit", f"{count:d}"),)


HISTORY_COLUMNS = ("task_id", "event", "from_state", "to_state", "worker_id", "token", "detail")
WIDTH = len(HISTORY_COLUMNS)


class BeginTransaction(msgspec.Struct, frozen=True):
    """Run the following statements of the operation in one transaction, for an operation whose first statements decide
    whether it needs one. Inside a transaction this does nothing."""


class SetSavepoint(msgspec.Struct, frozen=True):
    """Set a savepoint. The operation must be in a transaction."""


class ReleaseSavepoint(msgspec.Struct, frozen=True):
    """Keep the writes since the savepoint, and remove the savepoint."""


class RollBackToSavepoint(msgspec.Struct, frozen=True):
    """Undo the writes since the savepoint, because of this error.

    The result is one row with the error as a DibsError. An error that is not about the written data (a lost connection,
    a full disk, a deadlock) is raised again instead: the whole operation has failed then.
    """

    error: Exception


Instruction = Statement | BeginTransaction | SetSavepoint | ReleaseSavepoint | RollBackToSavepoint
Statements = Generator[Instruction, Rows, T]
"""The statements of an operation in order: each yields an instruction and receives its rows."""

Begin = Callable[[], Generator[Any, Any, Any]]
"""Begins the statements of an operation, or the HTTP calls of an operation on a server."""


class Mode(Enum):
    """What an operation needs from the database."""

    POINT_READ = "point read"
    """One statement that reads a few rows by their key. An engine in this process runs it in less time than it would
    take to hand it to a thread."""

    READ = "read"
    """The operation changes nothing. Each statement may read a later state than the previous one."""

    SNAPSHOT = "snapshot"
    """The operation changes nothing, and all its statements read the same state."""

    WRITE = "write"
    """Each statement is a transaction of its own. An engine that needs a transaction for every write uses one for the
    whole operation."""

    TRANSACTION = "transaction"
    """All its statements are one transaction."""


_SNAPSHOT, _WRITE, _TRANSACTION = Mode.SNAPSHOT, Mode.WRITE, Mode.TRANSACTION  # Python 3.11 takes long to find a member


class Validation(Protocol):
    """A check of an operation's input that is done before its transaction, because it may take long."""

    needs_types: bool

    def work(self, types: Any) -> float:
        """An estimate of the work, by which the caller decides whether an event loop may do it."""

    def run(self, types: Any, *, brief: bool = False) -> None:
        """Validate, in bounded time. `types`: the registered task types, if it needs them. `brief`: raise NotHere
        where that needs another process."""


class Coalesce(NamedTuple):
    """How operations of one kind that wait at the same moment are combined into one.

    `key`: only operations with equal keys (and the same author) are combined. `statements`: given the request of each
    operation, they return a result for each, or the error with which it is refused.
    """

    key: Hashable
    statements: Callable[[Sequence[Any]], Generator[Any, Any, Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """A named piece of work on the store. It can be begun as often as needed.

    `begin`: begins its statements, or its HTTP calls where the store is behind a server. `wakes`: wake the waiters
    after it, because there may be tasks to claim. `decode`: turns the result of the statements into the result of the
    operation, after the commit and without a connection. `request`: the input of the operation, for metrics and for
    `coalesce`. `validation`: done before the statements, outside of the transaction and of the event loop.
    `item_by_item`: begins other statements for the same work, with a savepoint for each item. A store runs them, in one
    transaction, after the database has refused the operation: a refused item then does not hold back the others.
    """

    name: str
    begin: Begin
    mode: Mode = Mode.WRITE
    wakes: bool = False
    decode: Callable[[Any], T] | None = None
    request: Any = None
    coalesce: Coalesce | None = None
    validation: Validation | None = None
    item_by_item: Begin | None = None

    @property
    def writes(self) -> bool:
        """True if the operation may change the database."""
        return self.mode is _WRITE or self.mode is _TRANSACTION

    @property
    def atomic(self) -> bool:
        """True if all statements must be in one transaction."""
        return self.mode is _TRANSACTION or self.mode is _SNAPSHOT

    def should_wake(self, returned: Any) -> bool:
        """True if waiting claims must be woken. `returned`: the result of the statements; after a batch of upkeep that
        changed nothing there is nothing to wake for."""
        return self.wakes and returned != 0

    def around(self, begin: Begin) -> Operation[T]:
        """The same operation with other statements, which contain its own. They run in one transaction, and the
        operation is no longer combined with others."""
        return replace(self, begin=begin, mode=Mode.TRANSACTION, coalesce=None)

    def in_savepoints(self) -> Operation[T] | None:
        """The same work with a savepoint for each item; None for an operation that cannot do that."""
        if self.item_by_item is None:
            return None
        return replace(self, begin=self.item_by_item, mode=Mode.TRANSACTION, item_by_item=None)

    def result(self, returned: Any) -> T:
        """The result of the operation, given what its statements returned."""
        result: T = returned if self.decode is None else self.decode(returned)
        return result


def run_alone(coalesce: Coalesce, request: Any) -> Generator[Any, Any, Any]:
    """The statements of an operation that could be combined with others, for this operation alone."""
    [answer] = yield from coalesce.statements([request])
    if isinstance(answer, Exception):
        raise answer
    return answer


def combine(operations: Sequence[Operation[Any]]) -> Operation[list[Any]]:
    """One operation that does the work of all of these, which have equal keys. It returns a result for each, or the
    error with which it is refused."""
    first = operations[0]
    assert first.coalesce is not None
    requests = [operation.request for operation in operations]
    return replace(first, begin=partial(first.coalesce.statements, requests), decode=None, coalesce=None)


Y = TypeVar("Y")
A = TypeVar("A")


def drive(statements: Generator[Y, A, T], execute: Callable[[Y], A]) -> T:
    """Run the statements to their end. The error of a statement is raised at the place that yielded it."""
    try:
        step = next(statements)
        while True:
            try:
                answer = execute(step)
            except Exception as error:
                step = statements.throw(error)
            else:
                step = statements.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def drive_async(statements: Generator[Y, A, T], execute: Callable[[Y], Awaitable[A]]) -> T:
    """`drive`, awaited."""
    try:
        step = next(statements)
        while True:
            try:
                answer = await execute(step)
            except Exception as error:
                step = statements.throw(error)
            else:
                step = statements.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
