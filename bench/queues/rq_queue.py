"""RQ with Redis: its worker, which forks for each job, or the simple one, which does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from redis import Redis
from rq import Queue, Retry, SimpleWorker, Worker

from bench.queues.mix import QUEUES, TYPES, Mix, MixProducer, MixTask, alike
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat

NAME = "bench"
_seats: list[Seat] = []
_mixes: list[Mix] = []


def bench(number: int) -> None:
    """The handler."""
    _seats[0].ran(number)


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Run the worker; `setting` is its class."""
    _seats.append(seat)
    kind = SimpleWorker if setting == "simple" else Worker
    worker = kind([NAME], connection=Redis.from_url(url))
    worker.dequeue_job_and_maintain_ttl = seat.noting(worker.dequeue_job_and_maintain_ttl)  # type: ignore[method-assign]
    wait_for_start()
    worker.work(logging_level="ERROR")


@contextlib.contextmanager
def producer(url: str) -> Iterator[Producer]:
    """One job a call, or many in one pipeline."""
    connection = Redis.from_url(url)
    queue = Queue(NAME, connection=connection)

    def many(numbers: Sequence[int]) -> None:
        queue.enqueue_many([Queue.prepare_data(bench, [number]) for number in numbers])

    yield Producer(lambda number: queue.enqueue(bench, number), many)
    connection.close()


def _handler(name: str) -> Callable[..., None]:
    """A job is found by the name of its function in this module."""

    def run(number: int, text: str) -> None:
        _mixes[0].run(number, text)

    run.__name__ = run.__qualname__ = name.replace("-", "_")
    return run


HANDLERS = {name: _handler(name) for name in TYPES}
globals().update({handler.__name__: handler for handler in HANDLERS.values()})


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """Run the worker for all ten queues, with its scheduler."""
    _mixes.append(mix)
    kind = SimpleWorker if setting == "simple" else Worker
    worker = kind(QUEUES, connection=Redis.from_url(url))
    wait_for_start()
    worker.work(logging_level="CRITICAL", with_scheduler=True)


@contextlib.contextmanager
def mix_producer(url: str) -> Iterator[MixProducer]:
    """Jobs of one queue that are due now go into one pipeline."""
    connection = Redis.from_url(url)
    queues = {name: Queue(name, connection=connection) for name in QUEUES}

    def many(tasks: Sequence[MixTask]) -> None:
        for group in alike(tasks):
            _enqueue(queues[group[0].queue], HANDLERS[group[0].type], group)

    yield MixProducer(lambda task: many([task]), many)
    connection.close()


def _enqueue(queue: Queue, handler: Callable[..., None], group: list[MixTask]) -> Any:
    if not group[0].delay:
        return queue.enqueue_many([Queue.prepare_data(handler, kwargs=task.params, retry=Retry(1)) for task in group])
    delay = timedelta(seconds=group[0].delay)
    return [queue.enqueue_in(delay, handler, retry=Retry(1), **task.params) for task in group]
