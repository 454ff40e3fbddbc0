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
from dibs.store.operation import Operation, combine

Run = Callable[[Operation[Any], str | None], Any]
RunAsync = Callable[[Operation[Any], str | None], Awaitable[Any]]

TOGETHER = 64
"""Operations done as one at most, so that the first need not wait long for the last."""

OF_ALL = (OutcomeUnknown, StoreBusy, StoreUnavailable)
"""Errors of the connection or the server: nobody's own, and to be waited for by each once more would be no help."""


class Gathering:
    """The operations of threads. One of those who wait does the work of all, so that nobody waits for another thread
    to begin. Whoever is interrupted (Ctrl-C), wherever that is, hands on what others wait for (decision 39)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[Hashable, _Line] = {}

    def run(self, operation: Operation[Any], by: str | None, run: Run) -> Any:
        """The result of the operation, done alone or with others; `run` runs one."""
        kind = key_of(operation), by
        own = _Waiting(operation)
        try:
            line = self._enter(kind, own)
            if line is None:
                result = run(operation, by)
                self._leave(kind, own)
                return result
            own.wait()
            if own.unanswered:
                self._lead(kind, line, by, run)
        except BaseException:
            self._leave(kind, own)
            raise
        return run(operation, by) if own.answer is ALONE else operation.result(own.result())

    def _enter(self, kind: Hashable, own: _Waiting) -> _Line | None:
        """The line to wait in; None where there was none, because nothing is under way."""
        with self._lock:
            line = self._lines.get(kind)
            if line is None:
                line = _Line(own)
                self._lines[kind] = line
                return None
            line.waiting.append(own)
            return line

    def _lead(self, kind: Hashable, line: _Line, by: str | None, run: Run) -> None:
        """Do what all of them wait for, as far as they came while we waited, and let the next lead."""
        with self._lock:
            line.take_party()
        party = line.party
        try:
            answers: Sequence[Any] = run(combine([each.operation for each in party]), by)
        except Exception as error:
            answers = refusals(party, error)
        own = party[0]
        for each, answer in zip(party, answers, strict=True):
            each.answer = answer
            each.wake()
        self._leave(kind, own)

    def _leave(self, kind: Hashable, own: _Waiting) -> None:
        """Leave the line, and the lead if it is ours, with whatever we had begun to do for others."""
        with self._lock:
            line = self._lines.get(kind)
            if line is None:
                return
            line.remove(own)
            if line.leader is own and not line.pass_on():
                del self._lines[kind]


class _Line:
    """Those who wait for an operation of their kind to end, and who does it. Guarded by the lock of the gathering."""

    def __init__(self, leader: _Waiting) -> None:
        self.leader = leader
        self.waiting: deque[_Waiting] = deque()
        self.party: list[_Waiting] = []  # what the leader has taken upon itself

    def take_party(self) -> None:
        """The leader, who is the first, and those behind it."""
        party: list[_Waiting] = []
        self.party = party
        while self.waiting and len(party) < TOGETHER:
            party.append(self.waiting[0])
            self.waiting.popleft()

    def remove(self, one: _Waiting) -> None:
        """It waits no more."""
        if one in self.waiting:
            self.waiting.remove(one)

    def pass_on(self) -> bool:
        """Let the first of those who wait lead; False if there is none. Who was left without an answer has one now."""
        for each in self.party:
            self.remove(each)  # one that was just being taken
            if each.unanswered:
                each.answer = OutcomeUnknown("The write was interrupted.")
                each.wake()
        self.party = []
        if not self.waiting:
            return False
        self.leader = self.waiting[0]
        self.leader.wake()
        return True


class _Waiting:
    """An operation in the line, and the thread that waits for it.

    What wakes it is the lock's own method: a signal is heard before or after it, never in between.
    """

    __slots__ = ("_woken", "answer", "operation", "wake")

    def __init__(self, operation: Operation[Any]) -> None:
        self.operation = operation
        self.answer: Any = NOT_YET
        self._woken = threading.Lock()
        self._woken.acquire()
        self.wake: Callable[[], None] = self._woken.release

    @property
    def unanswered(self) -> bool:
        """True as long as nobody has answered it."""
        return self.answer is NOT_YET

    def wait(self) -> None:
        """Until it is answered, or its owner is asked to lead."""
        self._woken.acquire()

    def result(self) -> Any:
        """The answer, raised if it is an error."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class AsyncGathering:
    """The operations of one event loop. Those who wait are done by a task of its own: who is cancelled takes nobody
    with it."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[tuple[Operation[Any], asyncio.Future[Any]]]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, operation: Operation[Any], by: str | None, run: RunAsync) -> Any:
        """The result of the operation, done alone or with others; `run` runs one."""
        kind = key_of(operation), by
        if (line := self._lines.get(kind)) is None:
            self._lines[kind] = deque()
            try:
                return await run(operation, by)
            finally:
                self._go_on(kind, by, run)
        future = asyncio.get_running_loop().create_future()
        line.append((operation, future))
        answer = await future
        return await run(operation, by) if answer is ALONE else operation.result(answer)

    def _go_on(self, kind: Hashable, by: str | None, run: RunAsync) -> None:
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
        under_way = asyncio.create_task(self._do(kind, party, by, run))
        self._under_way.add(under_way)
        under_way.add_done_callback(self._under_way.discard)

    async def _do(
        self, kind: Hashable, party: list[tuple[Operation[Any], asyncio.Future[Any]]], by: str | None, run: RunAsync
    ) -> None:
        answers: Sequence[Any] = [OutcomeUnknown("The write was interrupted.")] * len(party)
        try:
            answers = await run(combine([operation for operation, _ in party]), by)
        except Exception as error:
            answers = refusals(party, error)
        finally:
            self._go_on(kind, by, run)
            for (_, future), answer in zip(party, answers, strict=True):
                _settle(future, answer)


NOT_YET = object()
"""No answer."""

ALONE = object()
"""An answer: do it again, by yourself."""


def key_of(operation: Operation[Any]) -> Hashable:
    """What operations must have in common to be combined."""
    assert operation.coalesce is not None
    return operation.coalesce.key


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
