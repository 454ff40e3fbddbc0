"""PGQueuer on PostgreSQL: uvloop and asyncpg, as in its own benchmark, with so many consumers of so large batches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.queues.mix import TYPES, Mix, MixProducer, MixTask
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat

ENTRYPOINT = "bench"


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the consumers; `setting` is their number, and the size of their batches: "5x10"."""
    uvloop.run(run_consumers(url, setting, lambda queue: _declare(queue, seat), wait_for_start))


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


async def run_consumers(
    url: str, setting: str, declare: Callable[[PgQueuer], None], wait_for_start: Callable[[], None]
) -> None:
    """Run so many consumers, with the entrypoints that `declare` gives each of them."""
    consumers, batch = map(int, setting.split("x"))
    queues = [PgQueuer.from_asyncpg_connection(await asyncpg.connect(url)) for _ in range(consumers)]
    for queue in queues:
        declare(queue)
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


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run the consumers with an entrypoint for each type; it has no queues beside them."""
    uvloop.run(run_consumers(url, setting, lambda queue: _declare_mix(queue, mix), wait_for_start))


@contextlib.asynccontextmanager
async def async_mix_producer(url: str) -> AsyncIterator[MixProducer]:
    """Many jobs are one statement."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))

    def many(tasks: Sequence[MixTask]) -> Any:
        return queries.enqueue(
            [task.type for task in tasks],
            [json.dumps(task.params).encode() for task in tasks],
            [0] * len(tasks),
            [timedelta(seconds=task.delay) for task in tasks],
        )

    yield MixProducer(lambda task: many([task]), many)
    await connection.close()


def _declare_mix(queue: PgQueuer, mix: Mix) -> None:
    async def run(job: Job) -> None:
        if mix.fails_now(**json.loads(job.payload or b"")):
            raise RetryRequested

    for name in TYPES:
        queue.entrypoint(name)(run)
