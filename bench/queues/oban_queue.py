"""Oban for Python on PostgreSQL: a queue with so many jobs at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvloop
from oban import Oban, worker
from oban._query import Query
from oban.schema import install as install_schema

from bench.queues.mix import QUEUES, TYPES, Mix, MixProducer, MixTask, queue_of
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat, stopped_in_loop

NAME = "bench"
_seats: list[Seat] = []
_mixes: list[Mix] = []
STAGING = 0.5
"""Seconds between two looks for scheduled jobs; it comes with 1."""


@worker(queue=NAME)
class Bench:
    """The handler."""

    async def process(self, job: Any) -> None:
        """Note that it ran."""
        _seats[0].ran(job.args["number"])


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run its queue; `setting` is the limit of jobs at once."""
    _seats.append(seat)
    uvloop.run(_work(url, int(setting), seat, wait_for_start))


@contextlib.asynccontextmanager
async def async_producer(url: str, callers: int) -> AsyncIterator[Producer]:
    """One job a call, or many."""
    pool = await Oban.create_pool(url, min_size=1, max_size=callers)
    oban = Oban(pool=pool)
    yield Producer(
        lambda number: oban.enqueue(Bench.new({"number": number})),
        lambda numbers: oban.enqueue_many([Bench.new({"number": number}) for number in numbers]),
    )
    await pool.close()


def install(url: str) -> None:
    """Its tables."""
    asyncio.run(_install(url))


async def _install(url: str) -> None:
    pool = await Oban.create_pool(url)
    await install_schema(pool)
    await pool.close()


async def _work(url: str, limit: int, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    fetch: Any = Query.fetch_jobs
    Query.fetch_jobs = seat.noting(fetch)
    pool = await Oban.create_pool(url)
    stop = stopped_in_loop()
    wait_for_start()
    async with Oban(pool=pool, queues={NAME: limit}):
        await stop.wait()
    await pool.close()


class _Mixed:
    """The handler of a type."""

    async def process(self, job: Any) -> None:
        """Run it."""
        _mixes[0].run(**job.args)

    def backoff(self, _job: Any) -> int:
        """Try again at once."""
        return 0


WORKERS = {
    name: worker(queue=queue_of(name), max_attempts=2)(type(name.replace("-", "_"), (_Mixed,), {})) for name in TYPES
}


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run its ten queues, each with this limit."""
    _mixes.append(mix)
    uvloop.run(_mix_work(url, int(setting), wait_for_start))


@contextlib.asynccontextmanager
async def async_mix_producer(url: str) -> AsyncIterator[MixProducer]:
    """Many jobs in a call."""
    pool = await Oban.create_pool(url, min_size=1, max_size=2)
    oban = Oban(pool=pool)
    yield MixProducer(
        lambda task: oban.enqueue(_mixed(task)), lambda tasks: oban.enqueue_many([_mixed(task) for task in tasks])
    )
    await pool.close()


async def _mix_work(url: str, limit: int, wait_for_start: Callable[[], None]) -> None:
    pool = await Oban.create_pool(url)
    stop = stopped_in_loop()
    wait_for_start()
    async with Oban(pool=pool, queues=dict.fromkeys(QUEUES, limit), stager={"interval": STAGING}):
        await stop.wait()
    await pool.close()


def _mixed(task: MixTask) -> Any:
    return WORKERS[task.type].new(task.params, **({"scheduled_in": task.delay} if task.delay else {}))
