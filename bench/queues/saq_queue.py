"""SAQ with Redis: its worker with so many jobs at once (it comes with ten)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvloop
from saq import Queue, Worker

from bench.queues.mix import TYPES, Mix, MixProducer, MixTask
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat

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


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run the worker with a function for each type. A worker serves one queue, so the mix has only one here."""
    uvloop.run(_mix_work(url, int(setting), mix, wait_for_start))


@contextlib.asynccontextmanager
async def async_mix_producer(url: str) -> AsyncIterator[MixProducer]:
    """One job a call."""
    queue = Queue.from_url(url, name=NAME)

    def one(task: MixTask) -> Any:
        due = {"scheduled": int(time.time() + task.delay)} if task.delay else {}
        return queue.enqueue(task.type, retries=2, **due, **task.params)

    yield MixProducer(one)
    await queue.disconnect()


async def _mix_work(url: str, concurrency: int, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    async def run(_context: object, *, number: int, text: str) -> None:
        mix.run(number, text)

    worker = Worker(Queue.from_url(url, name=NAME), [(name, run) for name in TYPES], concurrency=concurrency)
    wait_for_start()
    await worker.start()
