"""PGQueuer on PostgreSQL: uvloop and asyncpg, as in its own benchmark, with so many consumers of so large batches."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.queues.board import Seat
from bench.queues.producing import Producer

ENTRYPOINT = "bench"


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the consumers; `setting` is their number, and the size of their batches: "5x10"."""
    uvloop.run(_work(url, setting, seat, wait_for_start))


@contextlib.asynccontextmanager
async def async_producer(url: str, callers: int) -> AsyncIterator[Producer]:
    """One connection, or a pool where many call at once. Many tasks are one statement."""
    size = callers + 1
    async with asyncpg.create_pool(url, min_size=size, max_size=size) as pool, pool.acquire() as connection:
        queries = Queries(AsyncpgPoolDriver(pool) if callers > 1 else AsyncpgDriver(connection))
        yield Producer(
            lambda number: queries.enqueue(ENTRYPOINT, _payload(number)),
            lambda numbers: queries.enqueue(
                [ENTRYPOINT] * len(numbers), [_payload(number) for number in numbers], [0] * len(numbers)
            ),
        )


def install(url: str) -> None:
    """Its tables."""
    asyncio.run(_install(url))


async def _install(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def _work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    consumers, batch = map(int, setting.split("x"))
    queues = [PgQueuer.from_asyncpg_connection(await asyncpg.connect(url)) for _ in range(consumers)]
    for queue in queues:
        _declare(queue, seat)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stop, queues)
    wait_for_start()
    await asyncio.gather(*(queue.run(batch_size=batch) for queue in queues))


def _declare(queue: PgQueuer, seat: Seat) -> None:
    queue.qm.queries.dequeue = seat.noting(queue.qm.queries.dequeue)

    @queue.entrypoint(ENTRYPOINT)
    async def bench(job: Job) -> None:
        seat.ran(int(job.payload or b""))


def _stop(queues: list[PgQueuer]) -> None:
    for queue in queues:
        queue.shutdown.set()


def _payload(number: int) -> bytes:
    return str(number).encode()
