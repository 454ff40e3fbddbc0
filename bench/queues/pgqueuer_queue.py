"""PGQueuer on PostgreSQL: uvloop and asyncpg, as in its own benchmark, with so many consumers of so large batches."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.models import Job

from bench.queues.board import Seat

ENTRYPOINT = "bench"


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> int:
    """Run the consumers; `setting` says how many, and the size of their batches: "5x10"."""
    uvloop.run(_work(url, setting, seat, wait_for_start))
    return 0


async def _work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    consumers, batch = map(int, setting.split("x"))
    queues = [PgQueuer.from_asyncpg_connection(await asyncpg.connect(url)) for _ in range(consumers)]
    for queue in queues:
        _declare(queue, seat)
        _note_first(queue, seat)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stop, queues)
    wait_for_start()
    await asyncio.gather(*(queue.run(batch_size=batch) for queue in queues))


def _declare(queue: PgQueuer, seat: Seat) -> None:
    @queue.entrypoint(ENTRYPOINT)
    async def bench(job: Job) -> None:
        seat.ran(int(job.payload or b""))


def _note_first(queue: PgQueuer, seat: Seat) -> None:
    queries: Any = queue.qm.queries
    dequeue = queries.dequeue

    async def dequeue_first(**request: Any) -> Any:
        queries.dequeue = dequeue
        seat.asks()
        return await dequeue(**request)

    queries.dequeue = dequeue_first


def _stop(queues: list[PgQueuer]) -> None:
    for queue in queues:
        queue.shutdown.set()
