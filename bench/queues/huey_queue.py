"""Huey on SQLite: its consumer with so many threads (it comes with one)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from huey import SqliteHuey

from bench.queues.mix import TYPES, Mix, MixProducer, MixTask
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the consumer; `setting` is the number of its threads, and their polling interval: "1 every 0.01"."""
    huey, _ = _open(url, seat)
    _consume(huey, setting, seat, wait_for_start)


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


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run the consumer with a task for each type. A consumer serves one queue, so the mix has only one here."""
    huey, _ = _open_mix(url, mix)
    _consume(huey, setting, mix.seat, wait_for_start)


@contextlib.contextmanager
def mix_producer(url: str) -> Iterator[MixProducer]:
    """One task a call."""
    huey, tasks = _open_mix(url)

    def one(task: MixTask) -> Any:
        declared = tasks[task.type]
        return declared.schedule(kwargs=task.params, delay=task.delay) if task.delay else declared(**task.params)

    yield MixProducer(one)
    huey.storage.close()


def _consume(huey: SqliteHuey, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    threads, _, delay = setting.partition(" every ")
    delays = {"initial_delay": float(delay), "max_delay": float(delay)} if delay else {}
    huey.storage.dequeue = seat.noting(huey.storage.dequeue)
    consumer = huey.create_consumer(workers=int(threads), **delays)
    wait_for_start()
    consumer.run()


def _open_mix(url: str, mix: Mix | None = None) -> tuple[SqliteHuey, dict[str, Any]]:
    huey = SqliteHuey("bench", filename=url.removeprefix("sqlite:///"), fsync=True)

    def run(number: int, text: str) -> None:
        assert mix is not None
        mix.run(number, text)

    return huey, {name: huey.task(name=name, retries=1)(run) for name in TYPES}
