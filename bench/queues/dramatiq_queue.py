"""Dramatiq with Redis: its worker with so many threads (it comes with eight)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.queues.mix import TYPES, Mix, MixProducer, queue_of
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat, stopped

NAME = "bench"


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the worker; `setting` is the number of its threads."""
    broker, _ = _open(url, seat)
    worker, stop = dramatiq.Worker(broker, worker_threads=int(setting)), stopped()
    wait_for_start()
    seat.asks()
    worker.start()
    stop.wait()
    worker.stop()
    broker.close()


@contextlib.contextmanager
def producer(url: str) -> Iterator[Producer]:
    """One message a call."""
    broker, actor = _open(url)
    yield Producer(actor.send)
    broker.close()


def _open(url: str, seat: Seat | None = None) -> tuple[RedisBroker, Any]:
    broker = RedisBroker(url=url)

    @dramatiq.actor(broker=broker, actor_name=NAME, queue_name=NAME)
    def bench(number: int) -> None:
        assert seat is not None
        seat.ran(number)

    return broker, bench


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run the worker with an actor for each type."""
    broker, _ = _open_mix(url, mix)
    worker, stop = dramatiq.Worker(broker, worker_threads=int(setting)), stopped()
    wait_for_start()
    worker.start()
    stop.wait()
    worker.stop()
    broker.close()


@contextlib.contextmanager
def mix_producer(url: str) -> Iterator[MixProducer]:
    """One message a call."""
    broker, actors = _open_mix(url)
    yield MixProducer(
        lambda task: actors[task.type].send_with_options(
            kwargs=task.params, **({"delay": round(task.delay * 1000)} if task.delay else {})
        )
    )
    broker.close()


def _open_mix(url: str, mix: Mix | None = None) -> tuple[RedisBroker, dict[str, Any]]:
    broker = RedisBroker(url=url)

    def run(number: int, text: str) -> None:
        assert mix is not None
        mix.run(number, text)

    at_once = {"max_retries": 1, "min_backoff": 1, "max_backoff": 1}
    return broker, {
        name: dramatiq.actor(run, broker=broker, actor_name=name, queue_name=queue_of(name), **at_once)
        for name in TYPES
    }
