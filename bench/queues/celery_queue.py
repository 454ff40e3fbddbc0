"""Celery with Redis: results ignored, many tasks fetched ahead, as its guide recommends for short tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from celery import Celery
from celery.signals import worker_ready

from bench.queues.mix import QUEUES, TYPES, FirstAttempt, Mix, MixProducer
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat

PREFETCH = 64


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> int:
    """Run the worker; `setting` is its pool and how many tasks run at once: "prefork 2"."""
    app, _ = _app(url, seat)
    worker_ready.connect(lambda **_: seat.asks(), weak=False)
    return _run(app, setting, wait_for_start)


@contextlib.contextmanager
def producer(url: str) -> Iterator[Producer]:
    """One task a call."""
    app, task = _app(url)
    yield Producer(task.delay)
    app.close()


def _app(url: str, seat: Seat | None = None) -> tuple[Celery, Any]:
    app = _new_app(url)

    @app.task(name="bench")
    def bench(number: int) -> None:
        assert seat is not None
        seat.ran(number)

    return app, bench


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> int:
    """Run the worker for all ten queues, with a task for each type."""
    app, _ = _mix_app(url, mix)
    return _run(app, setting, wait_for_start, queues=QUEUES)


@contextlib.contextmanager
def mix_producer(url: str) -> Iterator[MixProducer]:
    """One task a call."""
    app, tasks = _mix_app(url)
    yield MixProducer(
        lambda task: tasks[task.type].apply_async(
            kwargs=task.params, queue=task.queue, **({"countdown": task.delay} if task.delay else {})
        )
    )
    app.close()


def _run(app: Celery, setting: str, wait_for_start: Callable[[], None], **options: Any) -> int:
    pool, concurrency = setting.split()
    worker = app.Worker(
        pool=pool,
        concurrency=int(concurrency),
        loglevel="ERROR",
        quiet=True,
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
        **options,
    )
    wait_for_start()
    worker.start()
    return int(worker.exitcode or 0)


def _new_app(url: str) -> Celery:
    app = Celery("bench", broker=url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True, worker_prefetch_multiplier=PREFETCH, broker_connection_retry_on_startup=True
    )
    return app


def _mix_app(url: str, mix: Mix | None = None) -> tuple[Celery, dict[str, Any]]:
    app = _new_app(url)

    def run(number: int, text: str) -> None:
        assert mix is not None
        mix.run(number, text)

    retry = {"autoretry_for": (FirstAttempt,), "retry_kwargs": {"max_retries": 1, "countdown": 0}}
    return app, {name: app.task(name=name, **retry)(run) for name in TYPES}
