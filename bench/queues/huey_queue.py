"""Huey on SQLite: its consumer as it comes, with so many threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from huey import SqliteHuey

from bench.queues.board import Seat


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> int:
    """Run the consumer; `setting` is the number of its threads."""
    huey, _ = open_huey(url, seat)
    _note_first(huey, seat)
    consumer = huey.create_consumer(workers=int(setting))
    wait_for_start()
    consumer.run()
    return 0


def open_huey(url: str, seat: Seat | None = None, **options: Any) -> tuple[SqliteHuey, Any]:
    """The queue and its task, which runs in a process that has a seat."""
    huey = SqliteHuey("bench", filename=url.removeprefix("sqlite:///"), **options)

    @huey.task(name="bench")
    def bench(number: int) -> None:
        assert seat is not None
        seat.ran(number)

    return huey, bench


def _note_first(huey: SqliteHuey, seat: Seat) -> None:
    dequeue = huey.storage.dequeue

    def dequeue_first() -> Any:
        huey.storage.dequeue = dequeue
        seat.asks()
        return dequeue()

    huey.storage.dequeue = dequeue_first
