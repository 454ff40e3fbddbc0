"""Chancy on PostgreSQL: its asyncio executor with so many jobs at once, which asks for more as soon as one is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import uvloop
from chancy import Chancy, Queue, Worker, job
from chancy.plugins.retry import RetryPlugin

from bench.queues.mix import QUEUES, TYPES, Mix, MixProducer, MixTask
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat

NAME = "bench"
_seats: list[Seat] = []
_mixes: list[Mix] = []


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


def _handler(name: str) -> Any:
    """A job is found by the name of its function in this module."""

    async def run(*, number: int, text: str) -> None:
        _mixes[0].run(number, text)

    run.__name__ = run.__qualname__ = name.replace("-", "_")
    return job()(run)


HANDLERS = {name: _handler(name) for name in TYPES}
globals().update({name.replace("-", "_"): handler for name, handler in HANDLERS.items()})
AT_ONCE = {"retry_settings": {"backoff": 0, "backoff_jitter": [0, 0]}}


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run the worker with ten queues, each of this concurrency."""
    _mixes.append(mix)
    uvloop.run(_mix_work(url, int(setting), wait_for_start))


@contextlib.asynccontextmanager
async def async_mix_producer(url: str) -> AsyncIterator[MixProducer]:
    """Many jobs in one transaction."""
    async with Chancy(url) as chancy:

        async def many(tasks: Sequence[MixTask]) -> None:
            async for _ in chancy.push_many([_mixed(task) for task in tasks]):
                pass

        yield MixProducer(lambda task: chancy.push(_mixed(task)), many)


async def _mix_work(url: str, concurrency: int, wait_for_start: Callable[[], None]) -> None:
    async with Chancy(url, plugins=[RetryPlugin()]) as chancy:
        for name in QUEUES:
            queue = Queue(
                name,
                concurrency=concurrency,
                executor=Chancy.Executor.Async,
                eager_polling=True,
                polling_interval=1,
            )
            await chancy.declare(queue, upsert=True)
        wait_for_start()
        async with Worker(chancy) as worker:
            await worker.wait_for_shutdown()


def _mixed(task: MixTask) -> Any:
    new = HANDLERS[task.type].job.with_kwargs(**task.params).with_queue(task.queue)
    new = new.with_max_attempts(2).with_meta(AT_ONCE)
    return new.with_scheduled_at(datetime.now(UTC) + timedelta(seconds=task.delay)) if task.delay else new
