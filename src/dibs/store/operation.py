"""An operation is data: statements to run, and what their rows mean.

Nothing here does I/O. A store walks through an operation's statements with `drive` (or `drive_async`) and its own
way of executing one, so that no operation is written twice for sync and async, and any operation can run on a
connection that the user hands in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

T = TypeVar("T")
Row = tuple[Any, ...]
Rows = list[Row]


class Statement(msgspec.Struct, frozen=True):
    """One SQL section of the engine, with its parameters.

    `rows`: run it for each of these (an engine may do that in one go). `values`: insert these. `words`: fixed words for
    the section's placeholders, never user input. `change`: it moves tasks, and its rows begin with what the history
    needs (see HISTORY_COLUMNS); where an engine cannot write the history in the same statement, the store appends it.
    """

    name: str
    params: Mapping[str, Any] = {}
    rows: Sequence[Any] | None = None
    values: Sequence[Row] | None = None
    words: tuple[tuple[str, str], ...] = ()
    change: bool = False


def limited(count: int) -> tuple[tuple[str, str]]:
    """The word for a limit. It is written into the text, because PostgreSQL plans for a tenth of the table where the
    limit is a parameter."""
    return (("limit", f"{count:d}"),)


HISTORY_COLUMNS = ("task_id", "event", "from_state", "to_state", "worker_id", "token", "detail")
WIDTH = len(HISTORY_COLUMNS)


@dataclass(frozen=True, slots=True)
class Together:
    """From here on the statements of an operation belong together in one transaction, if they do not anyway: for one
    that finds out on its way that they must."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Set a savepoint. The operation must be in a transaction."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep what was written since the savepoint, and remove the savepoint."""


@dataclass(frozen=True, slots=True)
class Undo:
    """Undo what was written since the savepoint, because of this error.

    The answer is one row with the error as a DibsError. An error that says nothing about what was written (a lost
    connection, a full disk, a deadlock) is raised again instead: the whole operation has failed then.
    """

    error: Exception


Step = Statement | Together | Mark | Keep | Undo
Steps = Generator[Step, Rows, T]
Each = Callable[[Sequence[Any]], Generator[Any, Any, Sequence[Any]]]


class Checked(Protocol):
    """What is validated before an operation begins."""

    needs_types: bool

    def work(self, types: Any) -> float:
        """An estimate of the work, by which the caller decides whether an event loop may do it."""

    def run(self, types: Any, *, brief: bool = False) -> None:
        """Validate, in bounded time. `types`: the registered task types, if it needs them. `brief`: raise NotHere
        where that needs another process."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """A named piece of work on the store: a way to begin its steps, as often as needed. Each step is what its engine
    understands: a Statement where the store is a database, a call where a server stands before it.

    `writes`: it may change something. `atomic`: its statements belong together in one transaction; otherwise each
    stands on its own (an engine that needs a transaction for every write makes one anyway). `wakes`: those who wait
    for a task should look again. `by`: who asked for it, for the history. `read`: what to make of the steps' result,
    where nobody waits for it any more: after the commit, with the connection given back. `quick`: one statement that
    reads a few rows by their key, which takes an engine in this process less time than handing it to a thread would.
    `about`: what was asked for, where its result alone does not tell whoever counts. `each`: steps that do several
    operations of this kind at once, given the `item` of each, and answer every one of them, with the error where one is
    refused: operations with the same `each` and `by` that wait at the same moment may be done by it.
    `leisurely`: nobody waits for it, so it is the one to pay for what has to be done now and then.
    `checks`: what must be validated before the steps begin, outside of the transaction and of the event loop.
    `apart`: other steps for the same work, which handle each item in a savepoint of its own. A store runs them, in one
    transaction, after the database has refused the operation: a refused item then does not hold back the others.
    """

    name: str
    begin: Callable[[], Generator[Any, Any, Any]]
    writes: bool = True
    atomic: bool = False
    wakes: bool = False
    by: str | None = None
    read: Callable[[Any], T] | None = None
    quick: bool = False
    about: Any = None
    item: Any = None
    each: Each | None = None
    leisurely: bool = False
    checks: Checked | None = None
    apart: Callable[[], Generator[Any, Any, Any]] | None = None

    def woke(self, of_steps: Any) -> bool:
        """True if those who wait should look again; not after a round of upkeep, say, that found nothing to do."""
        return self.wakes and of_steps != 0

    def within(self, steps: Callable[[], Generator[Any, Any, Any]]) -> Operation[T]:
        """The same with its steps inside of these, in one transaction; it is no longer done with others of its kind."""
        return replace(self, begin=steps, atomic=True, quick=False, item=None, each=None)

    def item_by_item(self) -> Operation[T] | None:
        """The same work with a savepoint for each item; None for an operation that cannot do that."""
        return None if self.apart is None else replace(self, begin=self.apart, atomic=True, apart=None)

    def result(self, of_steps: Any) -> T:
        """The result of the operation, from that of its steps."""
        result: T = of_steps if self.read is None else self.read(of_steps)
        return result


def alone(each: Each, item: Any) -> Generator[Any, Any, Any]:
    """The steps of an operation that could be done with others, and is not."""
    [answer] = yield from each([item])
    if isinstance(answer, Exception):
        raise answer
    return answer


def as_one(operations: Sequence[Operation[Any]]) -> Operation[list[Any]]:
    """One operation that does all of these, which are alike; it answers each, with an error where one is refused."""
    first = operations[0]
    assert first.each is not None
    items = [operation.item for operation in operations]
    return replace(first, begin=partial(first.each, items), read=None, item=None, each=None)


Y = TypeVar("Y")
A = TypeVar("A")


def drive(steps: Generator[Y, A, T], execute: Callable[[Y], A]) -> T:
    """Run the steps to their end; an error of a step is thrown into them, at the place that asked for it."""
    try:
        step = next(steps)
        while True:
            try:
                answer = execute(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def drive_async(steps: Generator[Y, A, T], execute: Callable[[Y], Awaitable[A]]) -> T:
    """`drive`, awaited."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await execute(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
