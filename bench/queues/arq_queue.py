"""ARQ with Redis: its worker with so many jobs at once, and so many seconds between its polls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvloop
from arq import Retry, Worker, create_pool, func
from arq.connections import RedisSettings

from bench.queues.mix import TYPES, Mix, MixProducer
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat

NAME = "bench"


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the worker; `setting` is how many run at once, and how often it polls: "10 every 0.5"."""
    at_once, _, pause = setting.split()

    async def bench(_context: object, number: int) -> None:
        seat.ran(number)

    asyncio.set_event_loop(uvloop.new_event_loop())
    worker: Any = Worker(
        [func(bench, name=NAME)],
        redis_settings=RedisSettings.from_dsn(url),
        max_jobs=int(at_once),
        poll_delay=float(pause),
    )
    worker._poll_iteration = seat.noting(worker._poll_iteration)
    wait_for_start()
    worker.run()


@contextlib.asynccontextmanager
async def async_producer(url: str, callers: int) -> AsyncIterator[Producer]:
    """One job a call."""
    pool = await create_pool(RedisSettings.from_dsn(url))
    yield Producer(lambda number: pool.enqueue_job(NAME, number))
    await pool.aclose()


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run the worker with a function for each type. A worker serves one queue, so the mix has only one here."""
    at_once, _, pause = setting.split()

    async def run(_context: object, number: int, text: str) -> None:
        if mix.fails_now(number, text):
            raise Retry(defer=0)

    asyncio.set_event_loop(uvloop.new_event_loop())
    worker: Any = Worker(
        [func(run, name=name) for name in TYPES],
        redis_settings=RedisSettings.from_dsn(url),
        max_jobs=int(at_once),
        poll_delay=float(pause),
    )
    wait_for_start()
    worker.run()


@contextlib.asynccontextmanager
async def async_mix_producer(url: str) -> AsyncIterator[MixProducer]:
    """One job a call."""
    pool = await create_pool(RedisSettings.from_dsn(url))
    yield MixProducer(lambda task: pool.enqueue_job(task.type, _defer_by=task.delay or None, **task.params))
    await pool.aclose()
