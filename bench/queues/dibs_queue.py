"""dibs: a worker as it comes, with one handler."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

from bench.queues.mix import TYPES, Mix, MixProducer, MixTask, queue_of
from bench.queues.producing import Producer
from bench.queues.run_counts import Seat
from dibs import AsyncDibs, Backoff, Dibs, NewTask

TYPE = "bench"
PLAIN, COROUTINE = "def", "async def"
AT_ONCE = Backoff(0, 0)


def install(url: str) -> None:
    """Make the tables."""
    with Dibs(url) as app:
        app.migrate()


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


def mix_work(url: str, setting: str, mix: Mix, wait_for_start: Callable[[], None]) -> int:
    """Run the worker with a handler for each type of the mix."""
    app = Dibs(url)
    for name in TYPES:
        _declare_mixed(app, name, setting, mix)
    wait_for_start()
    return app.worker().run()


@contextlib.contextmanager
def mix_producer(url: str) -> Iterator[MixProducer]:
    """Many tasks a call."""
    with Dibs(url) as app:
        yield MixProducer(
            lambda task: app.enqueue_many([_mixed(task)]),
            lambda tasks: app.enqueue_many([_mixed(task) for task in tasks]),
        )


def _mixed(task: MixTask) -> NewTask:
    return NewTask(task.type, task.params, queue=task.queue, delay=task.delay, backoff=AT_ONCE)


def _declare_mixed(app: Dibs, name: str, setting: str, mix: Mix) -> None:
    if setting == COROUTINE:

        @app.task(name=name, queue=queue_of(name), backoff=AT_ONCE)
        async def coroutine(number: int, text: str) -> None:
            mix.run(number, text)

    else:

        @app.task(name=name, queue=queue_of(name), backoff=AT_ONCE)
        def function(number: int, text: str) -> None:
            mix.run(number, text)
