"""dibs: a worker as it comes, with one handler."""

from __future__ import annotations

from collections.abc import Callable

from bench.queues.board import Seat
from dibs import Dibs

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


def _declare_function(app: Dibs, seat: Seat) -> None:
    @app.task(name=TYPE)
    def bench(number: int) -> None:
        seat.ran(number)


def _declare_coroutine(app: Dibs, seat: Seat) -> None:
    @app.task(name=TYPE)
    async def bench(number: int) -> None:
        seat.ran(number)
