"""Celery with Redis: results ignored, many tasks fetched ahead, as its guide recommends for short tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from celery import Celery
from celery.signals import worker_ready

from bench.queues.board import Seat
from bench.queues.producing import Producer

PREFETCH = 64


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> int:
    """Run the worker; `setting` is its pool and how many tasks run at once: "prefork 2"."""
    app, _ = _app(url, seat)
    pool, concurrency = setting.split()
    worker_ready.connect(lambda **_: seat.asks(), weak=False)
    worker = app.Worker(
        pool=pool,
        concurrency=int(concurrency),
        loglevel="ERROR",
        quiet=True,
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
    )
    wait_for_start()
    worker.start()
    return int(worker.exitcode or 0)


@contextlib.contextmanager
def producer(url: str) -> Iterator[Producer]:
    """One task a call."""
    app, task = _app(url)
    yield Producer(task.delay)
    app.close()


def _app(url: str, seat: Seat | None = None) -> tuple[Celery, Any]:
    app = Celery("bench", broker=url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True, worker_prefetch_multiplier=PREFETCH, broker_connection_retry_on_startup=True
    )

    @app.task(name="bench")
    def bench(number: int) -> None:
        assert seat is not None
        seat.ran(number)

    return app, bench
