"""Procrastinate on PostgreSQL: its worker with so many jobs at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import uvloop
from procrastinate import App, PsycopgConnector, RetryStrategy
from procrastinate.manager import JobManager

from bench.queues.mix import TYPES, Mix, MixProducer, MixTask, alike, queue_of
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat

POLLING = 0.5
"""Seconds between two looks for scheduled jobs; it comes with 5."""


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the worker; `setting` is its concurrency."""
    uvloop.run(_work(url, int(setting), seat, wait_for_start))


@contextlib.asynccontextmanager
async def async_producer(url: str, callers: int) -> AsyncIterator[Producer]:
    """One job a call, or many in one statement."""
    app, task = _app(url, callers)
    async with app.open_async():
        yield Producer(
            lambda number: task.defer_async(number=number),
            lambda numbers: task.batch_defer_async(*({"number": number} for number in numbers)),
        )


def install(url: str) -> None:
    """Its tables."""
    asyncio.run(_install(url))


async def _install(url: str) -> None:
    app, _ = _app(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def _work(url: str, concurrency: int, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    app, _ = _app(url, seat=seat)
    fetch: Any = JobManager.fetch_job
    JobManager.fetch_job = seat.noting(fetch)  # type: ignore[method-assign]
    async with app.open_async():
        wait_for_start()
        await app.run_worker_async(concurrency=concurrency)


def _app(url: str, connections: int = 8, seat: Seat | None = None) -> tuple[App, Any]:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=max(4, connections)))

    @app.task(name="bench")
    async def bench(number: int) -> None:
        assert seat is not None
        seat.ran(number)

    return app, bench


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run the worker with a task for each type."""
    uvloop.run(_mix_work(url, int(setting), mix, wait_for_start))


@contextlib.asynccontextmanager
async def async_mix_producer(url: str) -> AsyncIterator[MixProducer]:
    """Jobs of one task that are due at the same time are one statement."""
    app, tasks = _mix_app(url)

    async def many(new: Sequence[MixTask]) -> None:
        for group in alike(new):
            first = group[0]
            delay = {"schedule_in": {"seconds": first.delay}} if first.delay else {}
            await tasks[first.type].configure(**delay).batch_defer_async(*(task.params for task in group))

    async with app.open_async():
        yield MixProducer(lambda task: many([task]), many)


async def _mix_work(url: str, concurrency: int, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    app, _ = _mix_app(url, mix)
    async with app.open_async():
        wait_for_start()
        await app.run_worker_async(concurrency=concurrency, fetch_job_polling_interval=POLLING)


def _mix_app(url: str, mix: Mix | None = None) -> tuple[App, dict[str, Any]]:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=8))

    async def run(number: int, text: str) -> None:
        assert mix is not None
        mix.run(number, text)

    retry = RetryStrategy(max_attempts=1)
    return app, {name: app.task(name=name, queue=queue_of(name), retry=retry)(run) for name in TYPES}
