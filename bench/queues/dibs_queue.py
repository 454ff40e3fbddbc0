"""dibs: a worker as it comes, with one handler."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

from bench.queues.board import Seat
from bench.queues.producing import Producer
from dibs import AsyncDibs, Dibs, NewTask

TYPE = "bench"
PLAIN, COROUTINE = "def", "async def"


def work(url: str, setting: str, seat: Seat, wait_for_start: Callable[[], None]) -> int:
    """Run the worker; `setting` is the kind of handler."""
    app = Dibs(url)
    if setting == COROUTINE:
        _declare_coroutine(app, seat)
    else:
        _declare_function(app, seat)
    wait_for_start()
    return app.worker().run()


@contextlib.contextmanager
def producer(url: str) -> Iterator[Producer]:
    """One task a call, or many."""
    with Dibs(url) as app:
        yield Producer(
            lambda number: app.enqueue(TYPE, {"number": number}),
            lambda numbers: app.enqueue_many([NewTask(TYPE, {"number": number}) for number in numbers]),
        )


@contextlib.asynccontextmanager
async def async_producer(url: str, callers: int) -> AsyncIterator[Producer]:
    """The same, awaited."""
    async with AsyncDibs(url) as app:
        yield Producer(lambda number: app.enqueue(TYPE, {"number": number}))


def _declare_function(app: Dibs, seat: Seat) -> None:
    @app.task(name=TYPE)
    def bench(number: int) -> None:
        seat.ran(number)


def _declare_coroutine(app: Dibs, seat: Seat) -> None:
    @app.task(name=TYPE)
    async def bench(number: int) -> None:
        seat.ran(number)
