"""PGQueuer with `concurrency_limit`: an entrypoint for each limit, so one for each group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.queues import pgqueuer_queue
from bench.queues.limited import Limits
from bench.queues.run_counts import Seat

AT_ONCE = 1000


def fill(url: str, limits: str, tasks: int) -> None:
    """Its tables and the jobs."""
    pgqueuer_queue.install(url)
    asyncio.run(_fill(url, Limits.read(limits), tasks))


async def _fill(url: str, limits: Limits, tasks: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    for first in range(0, tasks, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, tasks))
        groups, payloads = [limits.group(number) for number in numbers], [str(number).encode() for number in numbers]
        await queries.enqueue(groups, payloads, [0] * len(numbers))
    await connection.close()


def work(url: str, limits: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the consumers; the setting is their number, and the size of their batches: "5x10"."""
    asked = Limits.read(limits)

    def declare(queue: PgQueuer) -> None:
        queue.qm.queries.dequeue = seat.noting(queue.qm.queries.dequeue)

        async def run(job: Job) -> None:
            seat.ran(int(job.payload or b""))

        for number in range(asked.groups):
            queue.entrypoint(asked.group(number), concurrency_limit=asked.max)(run)

    uvloop.run(pgqueuer_queue.run_consumers(url, asked.setting, declare, wait_for_start))
