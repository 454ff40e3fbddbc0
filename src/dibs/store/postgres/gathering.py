"""Operations of one kind that come while one of theirs is under way wait for its end, and are then done as one.

Who comes alone is served at once; the more come together, the less each costs: one statement, one commit. Each is
answered on its own. Where all are refused for what may be the fault of one, each is done again by its own caller; and
whoever stops waiting takes nothing from the others.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

from dibs.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from dibs.store.operation import Operation, as_one

Run = Callable[[Operation[Any]], Any]
RunAsync = Callable[[Operation[Any]], Awaitable[Any]]

TOGETHER = 64
"""Operations done as one at most, so that the first need not wait long for the last."""

OF_ALL = (OutcomeUnknown, StoreBusy, StoreUnavailable)
"""Errors of the connection or the server: nobody's own, and to be waited for by each once more would be no help."""


class Gathering:
    """The operations of threads. One of those who wait does the work of all, so that nobody waits for another thread
    to begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[Hashable, deque[_Waiting]] = {}

    def run(self, operation: Operation[Any], run: Run) -> Any:
        """The result of the operation, done alone or with others; `run` runs one."""
        kind = operation.each, operation.by
        if (waiting := self._enter(kind, operation)) is None:
            try:
                return run(operation)
            finally:
                self._go_on(kind)
        try:
            waiting.wait()
        except BaseException:  # interrupted (Ctrl-C): others must not wait for us
            self._withdraw(kind, waiting)
            raise
        if waiting.party:
            self._lead(kind, waiting.party, run)
        return run(operation) if waiting.alone else operation.result(waiting.answer())

    def _enter(self, kind: Hashable, operation: Operation[Any]) -> _Waiting | None:
        """A place in the line; None where there is no line, because nothing is under way."""
        with self._lock:
            line = self._lines.get(kind)
            if line is None:
                self._lines[kind] = deque()
                return None
            waiting = _Waiting(operation)
            line.append(waiting)
            return waiting

    def _go_on(self, kind: Hashable) -> None:
        """The next of the line may begin: the first of them leads."""
        with self._lock:
            line = self._lines[kind]
            if not line:
                del self._lines[kind]
                return
            party = [line.popleft() for _ in range(min(len(line), TOGETHER))]
            party[0].party = party
        party[0].wake()

    def _withdraw(self, kind: Hashable, waiting: _Waiting) -> None:
        with self._lock:
            line = self._lines.get(kind)
            if line is not None and waiting in line:
                line.remove(waiting)
                return
            others = waiting.party[1:]
            if line is not None:
                line.extendleft(reversed(others))
        if waiting.party:
            self._go_on(kind)

    def _lead(self, kind: Hashable, party: list[_Waiting], run: Run) -> None:
        answers: Sequence[Any] = [OutcomeUnknown("The write was interrupted.")] * len(party)
        try:
            answers = run(as_one([each.operation for each in party]))
        except Exception as error:
            answers = refusals(party, error)
        finally:
            self._go_on(kind)
            for each, answer in zip(party, answers, strict=True):
                each.deliver(answer)


class _Waiting:
    """An operation in the line, and the thread that waits for it."""

    __slots__ = ("_answer", "_woken", "operation", "party")

    def __init__(self, operation: Operation[Any]) -> None:
        self.operation = operation
        self.party: list[_Waiting] = []
        self._answer: Any = None
        self._woken = threading.Lock()
        self._woken.acquire()

    @property
    def alone(self) -> bool:
        return self._answer is ALONE

    def wait(self) -> None:
        """Until it is answered, or its owner is asked to lead."""
        self._woken.acquire()

    def wake(self) -> None:
        self._woken.release()

    def deliver(self, answer: Any) -> None:
        self._answer = answer
        if not self.party:
            self.wake()

    def answer(self) -> Any:
        """The answer, raised if it is an error."""
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class AsyncGathering:
    """The operations of one event loop. Those who wait are done by a task of its own: who is cancelled takes nobody
    with it."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[tuple[Operation[Any], asyncio.Future[Any]]]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, operation: Operation[Any], run: RunAsync) -> Any:
        """The result of the operation, done alone or with others; `run` runs one."""
        kind = operation.each, operation.by
        if (line := self._lines.get(kind)) is None:
            self._lines[kind] = deque()
            try:
                return await run(operation)
            finally:
                self._go_on(kind, run)
        future = asyncio.get_running_loop().create_future()
        line.append((operation, future))
        answer = await future
        return await run(operation) if answer is ALONE else operation.result(answer)

    def _go_on(self, kind: Hashable, run: RunAsync) -> None:
        """The next of the line may begin; who has stopped waiting is left out."""
        line = self._lines[kind]
        party: list[tuple[Operation[Any], asyncio.Future[Any]]] = []
        while line and len(party) < TOGETHER:
            if not line[0][1].done():
                party.append(line[0])
            line.popleft()
        if not party:
            del self._lines[kind]
            return
        under_way = asyncio.create_task(self._do(kind, party, run))
        self._under_way.add(under_way)
        under_way.add_done_callback(self._under_way.discard)

    async def _do(self, kind: Hashable, party: list[tuple[Operation[Any], asyncio.Future[Any]]], run: RunAsync) -> None:
        answers: Sequence[Any] = [OutcomeUnknown("The write was interrupted.")] * len(party)
        try:
            answers = await run(as_one([operation for operation, _ in party]))
        except Exception as error:
            answers = refusals(party, error)
        finally:
            self._go_on(kind, run)
            for (_, future), answer in zip(party, answers, strict=True):
                _settle(future, answer)


ALONE = object()
"""An answer: do it again, by yourself."""


def refusals(party: Sequence[Any], error: Exception) -> list[Any]:
    """What each is told where all were refused."""
    return [error if len(party) == 1 or isinstance(error, OF_ALL) else ALONE] * len(party)


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
