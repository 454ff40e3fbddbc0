"""Requests of the same kind that come at the same moment are done together: one statement, one commit for all.

A request that comes alone is done at once. Those that come while one of their kind is under way wait for its end, and
are then done together; so nobody waits for a timer, and the busier the server the less each request costs. Claims gain
most: ten at once would compete for the same tasks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Kind = TypeVar("Kind", bound=Hashable)
Do = Callable[[Kind, Sequence[Item]], Awaitable[Sequence[Answer | Exception]]]
"""Does the items of a kind, and answers each."""

TOGETHER = 64
"""Items done together at most, so that the first need not wait long for the last."""


BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of items after which a batch is full: a large batch would hold the write lock of SQLite for long."""


def _no_size(item: object) -> int:
    return 0


class Batches(Generic[Kind, Item, Answer]):
    """Lines of requests, one for each kind.

    `name_of`: what may occur only once in a batch. `size_of`: about how many bytes an item has, where that matters.
    """

    def __init__(
        self,
        do: Do[Kind, Item, Answer],
        name_of: Callable[[Item], Hashable],
        size_of: Callable[[Item], int] = _no_size,
    ) -> None:
        self._do = do
        self._name_of = name_of
        self._size_of = size_of
        self._lines: dict[Kind, deque[tuple[Item, asyncio.Future[Answer]]]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask(self, kind: Kind, item: Item) -> Answer:
        """The answer to this item, done alone or with others."""
        line = self._lines.get(kind)
        if line is not None:
            waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            line.append((item, waiting))
            return await waiting
        line = self._lines[kind] = deque()
        try:
            [answer] = await self._do(kind, [item])
        finally:
            self._go_on(kind, line)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _go_on(self, kind: Kind, line: deque[tuple[Item, asyncio.Future[Answer]]]) -> None:
        if not line:
            del self._lines[kind]
            return
        under_way = asyncio.create_task(self._do_next(kind, line))
        self._under_way.add(under_way)
        under_way.add_done_callback(self._under_way.discard)

    async def _do_next(self, kind: Kind, line: deque[tuple[Item, asyncio.Future[Answer]]]) -> None:
        batch = self._take(line)
        answers: Sequence[Answer | Exception]
        try:
            answers = await self._do(kind, [item for item, _ in batch])
        except Exception as error:
            answers = [error] * len(batch)
        finally:
            self._go_on(kind, line)
        for (_, waiting), answer in zip(batch, answers, strict=True):
            _settle(waiting, answer)

    def _take(self, line: deque[tuple[Item, asyncio.Future[Answer]]]) -> list[tuple[Item, asyncio.Future[Answer]]]:
        """The next of the line, up to one that has the name of another, and to a limit of bytes."""
        names: set[Hashable] = set()
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        size = 0
        while line and len(batch) < TOGETHER and (name := self._name_of(line[0][0])) not in names:
            names.add(name)
            size += self._size_of(line[0][0])
            batch.append(line.popleft())
            if size >= BATCH_BYTES:
                break
        return batch


def _settle(waiting: asyncio.Future[Answer], answer: Answer | Exception) -> None:
    if waiting.done():
        return
    if isinstance(answer, Exception):
        waiting.set_exception(answer)
    else:
        waiting.set_result(answer)
