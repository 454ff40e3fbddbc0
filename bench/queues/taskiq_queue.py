"""Taskiq with Redis: the broker on streams, the one that acknowledges, and its receiver as it comes (100 at once)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench.queues.board import Seat
from bench.queues.producing import Producer


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the receiver; `setting` is how many tasks run at once."""
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(_work(url, int(setting), seat, wait_for_start))


@contextlib.asynccontextmanager
async def async_producer(url: str, callers: int) -> AsyncIterator[Producer]:
    """One task a call."""
    broker, task = _open(url)
    await broker.startup()
    yield Producer(task.kiq)
    await broker.shutdown()


async def _work(url: str, at_once: int, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    broker, _ = _open(url, seat)
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
