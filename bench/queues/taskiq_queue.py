"""Taskiq with Redis: the broker on streams, the one that acknowledges, and its receiver as it comes (100 at once)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvloop
from taskiq import SimpleRetryMiddleware
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench.queues.mix import QUEUES, TYPES, Mix, MixProducer, queue_of
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the receiver; `setting` is how many tasks run at once."""
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(_work(_open(url, seat)[0], int(setting), seat, wait_for_start))


@contextlib.asynccontextmanager
async def async_producer(url: str, callers: int) -> AsyncIterator[Producer]:
    """One task a call."""
    broker, task = _open(url)
    await broker.startup()
    yield Producer(task.kiq)
    await broker.shutdown()


async def _work(broker: RedisStreamBroker, at_once: int, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    await broker.startup()
    wait_for_start()
    seat.asks()
    receiver = asyncio.ensure_future(run_receiver_task(broker, max_async_tasks=at_once))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, receiver.cancel)
    await receiver


def _open(url: str, seat: Seat | None = None) -> tuple[RedisStreamBroker, Any]:
    broker = RedisStreamBroker(url=url)

    @broker.task(task_name="bench")
    async def bench(number: int) -> None:
        assert seat is not None
        seat.ran(number)

    return broker, bench


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run the receiver with a task for each type and a stream for each queue."""
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(_work(_open_mix(url, mix)[0], int(setting), mix.seat, wait_for_start))


@contextlib.asynccontextmanager
async def async_mix_producer(url: str) -> AsyncIterator[MixProducer]:
    """One task a call, due at once: a scheduler would be another process."""
    broker, tasks = _open_mix(url)
    await broker.startup()
    yield MixProducer(lambda task: tasks[task.type].kiq(**task.params))
    await broker.shutdown()


def _open_mix(url: str, mix: Mix | None = None) -> tuple[RedisStreamBroker, dict[str, Any]]:
    broker = RedisStreamBroker(url=url, queue_name=QUEUES[0], additional_streams=dict.fromkeys(QUEUES[1:], ">"))
    broker.add_middlewares(SimpleRetryMiddleware())

    async def run(number: int, text: str) -> None:
        assert mix is not None
        mix.run(number, text)

    return broker, {
        name: broker.task(task_name=name, queue_name=queue_of(name), retry_on_error=True, max_retries=3)(run)
        for name in TYPES
    }
