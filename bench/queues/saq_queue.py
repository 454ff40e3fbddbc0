"""SAQ with Redis: its worker with so many jobs at once (it comes with ten)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvloop
from saq import Queue, Worker

from bench.queues.board import Seat
from bench.queues.producing import Producer

NAME = "bench"


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the worker; `setting` is its concurrency."""
    uvloop.run(_work(url, int(setting), seat, wait_for_start))


@contextlib.asynccontextmanager
async def async_producer(url: str, callers: int) -> AsyncIterator[Producer]:
    """One job a call."""
    queue = Queue.from_url(url, name=NAME)
    yield Producer(lambda number: queue.enqueue(NAME, number=number))
    await queue.disconnect()


async def _work(url: str, concurrency: int, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    queue: Any = Queue.from_url(url, name=NAME)
    queue.dequeue = seat.noting(queue.dequeue)

    async def bench(_context: object, *, number: int) -> None:
        seat.ran(number)

    worker = Worker(queue, [(NAME, bench)], concurrency=concurrency)
    wait_for_start()
    await worker.start()
