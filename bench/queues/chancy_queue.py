"""Chancy on PostgreSQL: its asyncio executor with so many jobs at once, which asks for more as soon as one is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import uvloop
from chancy import Chancy, Queue, Worker, job

from bench.queues.board import Seat
from bench.queues.producing import Producer

NAME = "bench"
_seats: list[Seat] = []


@job(queue=NAME)
async def bench(*, number: int) -> None:
    """The handler."""
    _seats[0].ran(number)


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the worker; `setting` is the concurrency of its queue."""
    _seats.append(seat)
    uvloop.run(_work(url, int(setting), seat, wait_for_start))


@contextlib.asynccontextmanager
async def async_producer(url: str, callers: int) -> AsyncIterator[Producer]:
    """One job a call, or many in one transaction."""
    async with Chancy(url, max_connection_pool_size=max(10, callers)) as chancy:

        async def many(numbers: Sequence[int]) -> None:
            async for _ in chancy.push_many([_job(number) for number in numbers]):
                pass

        yield Producer(lambda number: chancy.push(_job(number)), many)


def install(url: str) -> None:
    """Its tables."""
    asyncio.run(_install(url))


async def _install(url: str) -> None:
    async with Chancy(url) as chancy:
        await chancy.migrate()


async def _work(url: str, concurrency: int, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    fetch: Any = Worker.fetch_jobs
    Worker.fetch_jobs = seat.noting(fetch)  # type: ignore[method-assign]
    async with Chancy(url) as chancy:
        await chancy.declare(
            Queue(NAME, concurrency=concurrency, executor=Chancy.Executor.Async, eager_polling=True), upsert=True
        )
        wait_for_start()
        async with Worker(chancy) as worker:
            await worker.wait_for_shutdown()


def _job(number: int) -> Any:
    return bench.job.with_kwargs(number=number)
