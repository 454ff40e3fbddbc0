"""Huey on SQLite: its consumer with so many threads (it comes with one)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from huey import SqliteHuey

from bench.queues.board import Seat
from bench.queues.producing import Producer


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the consumer; `setting` is the number of its threads, and their polling interval: "1 every 0.01"."""
    threads, _, delay = setting.partition(" every ")
    delays = {"initial_delay": float(delay), "max_delay": float(delay)} if delay else {}
    huey, _ = _open(url, seat)
    huey.storage.dequeue = seat.noting(huey.storage.dequeue)
    consumer = huey.create_consumer(workers=int(threads), **delays)
    wait_for_start()
    consumer.run()


@contextlib.contextmanager
def producer(url: str) -> Iterator[Producer]:
    """One task a call; threads share its connection."""
    huey, task = _open(url)
    yield Producer(task)
    huey.storage.close()


def _open(url: str, seat: Seat | None = None) -> tuple[SqliteHuey, Any]:
    """The queue and its task, which runs in a process that has a seat."""
    huey = SqliteHuey("bench", filename=url.removeprefix("sqlite:///"), fsync=True)

    @huey.task(name="bench")
    def bench(number: int) -> None:
        assert seat is not None
        seat.ran(number)

    return huey, bench
