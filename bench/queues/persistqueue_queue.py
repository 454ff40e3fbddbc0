"""persist-queue on SQLite: its queue with acknowledgements, in a loop of ours; it serves one process only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from persistqueue import Empty, SQLiteAckQueue

from bench.queues.mix import Mix, MixProducer
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat, stopped


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Take an item, note that it ran, acknowledge it."""
    queue, stop = _open(url), stopped()
    wait_for_start()
    seat.asks()
    while not stop.is_set():
        with contextlib.suppress(Empty):
            item = queue.get(timeout=0.05)
            seat.ran(item)
            queue.ack(item)


@contextlib.contextmanager
def producer(url: str) -> Iterator[Producer]:
    """One item a call; each is committed."""
    queue = _open(url)
    yield Producer(queue.put)
    queue.close()


def _open(url: str) -> SQLiteAckQueue:
    file = Path(url.removeprefix("sqlite:///"))
    return SQLiteAckQueue(str(file.parent), db_file_name=file.name, multithreading=True, auto_commit=True)


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """The same; an item that failed is ready again. Type and queue mean nothing here."""
    queue, stop = _open(url), stopped()
    wait_for_start()
    while not stop.is_set():
        with contextlib.suppress(Empty):
            item = queue.get(timeout=0.05)
            failed = mix.fails_now(**item)
            (queue.nack if failed else queue.ack)(item)


@contextlib.contextmanager
def mix_producer(url: str) -> Iterator[MixProducer]:
    """One item a call; each is committed."""
    queue = _open(url)
    yield MixProducer(lambda task: queue.put(task.params))
    queue.close()
