"""RQ with Redis: its worker, which forks for each job, or the simple one, which does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from redis import Redis
from rq import Queue, SimpleWorker, Worker

from bench.queues.board import Seat
from bench.queues.producing import Producer

NAME = "bench"
_seats: list[Seat] = []


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
