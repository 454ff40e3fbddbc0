"""litequeue on SQLite: messages in a loop of ours, since it has no workers. It sets synchronous=NORMAL by itself."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator

from litequeue import LiteQueue

from bench.queues.mix import Mix, MixProducer
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat, stopped


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> None:
    """Take a message, count its run, mark it as done; `setting` is SQLite's synchronous."""
    queue, stop = _open(url, setting), stopped()
    wait_for_start()
    seat.asks()
    while not stop.is_set():
        if message := queue.pop():
            seat.ran(int(message.data))
            queue.done(message.message_id)
        else:
            time.sleep(0.01)


@contextlib.contextmanager
def producer(url: str) -> Iterator[Producer]:
    """One message a call, durably."""
    queue = _open(url, "FULL")
    yield Producer(lambda number: queue.put(str(number)))
    queue.close()


def _open(url: str, synchronous: str) -> LiteQueue:
    queue = LiteQueue(url.removeprefix("sqlite:///"), timeout=60)
    queue.conn.execute(f"PRAGMA synchronous = {synchronous}")
    return queue


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> None:
    """The same with JSON; a message that failed is free again. Type and queue mean nothing here."""
    queue, stop = _open(url, setting), stopped()
    wait_for_start()
    while not stop.is_set():
        if message := queue.pop():
            failed = mix.fails_now(**json.loads(message.data))
            (queue.retry if failed else queue.done)(message.message_id)
        else:
            time.sleep(0.01)


@contextlib.contextmanager
def mix_producer(url: str) -> Iterator[MixProducer]:
    """One message a call, durably."""
    queue = _open(url, "FULL")
    yield MixProducer(lambda task: queue.put(json.dumps(task.params)))
    queue.close()
