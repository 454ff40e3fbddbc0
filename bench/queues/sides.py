"""The other queues as sides of a measurement of enqueueing (see bench/sides.py)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import asyncpg
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.queues.huey_queue import open_huey
from bench.queues.pgqueuer_queue import ENTRYPOINT

EnqueueOne = Callable[[int], Awaitable[Any]]


class HueySide:
    """Huey: one task a call, in threads as well (they share its connection)."""

    def __init__(self, url: str) -> None:
        self._huey, self._task = open_huey(url)

    def prepare(self, numbers: Sequence[int]) -> int:
        """See Side."""
        (number,) = numbers
        return number

    def enqueue(self, call: int) -> None:
        """See Side."""
        self._task(call)

    def close(self) -> None:
        """See Side."""
        self._huey.storage.close()


class PgqueuerSide:
    """PGQueuer on one connection of asyncpg."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(asyncpg.connect(url))
        self._queries = Queries(AsyncpgDriver(self._connection))

    def prepare(self, numbers: Sequence[int]) -> list[bytes | None]:
        """See Side."""
        return [payload(number) for number in numbers]

    def enqueue(self, call: list[bytes | None]) -> None:
        """See Side."""
        self._loop.run_until_complete(self._enqueue(call))

    def close(self) -> None:
        """See Side."""
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    async def _enqueue(self, call: list[bytes | None]) -> None:
        if len(call) == 1:
            await self._queries.enqueue(ENTRYPOINT, call[0])
        else:
            await self._queries.enqueue([ENTRYPOINT] * len(call), call, [0] * len(call))


@contextlib.asynccontextmanager
async def pgqueuer_pool(url: str, connections: int) -> AsyncIterator[EnqueueOne]:
    """PGQueuer on a pool: what enqueues one task, in many coroutines at once."""
    async with asyncpg.create_pool(url, min_size=connections, max_size=connections) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        yield lambda number: queries.enqueue(ENTRYPOINT, payload(number))


def payload(number: int) -> bytes:
    """What a job carries."""
    return str(number).encode()
