"""dibs: a worker with a limit on its handler. The setting is the number of its lanes."""

from __future__ import annotations

from collections.abc import Callable

from bench.limit_shapes import LIMIT
from bench.queues.dibs_queue import TYPE
from bench.queues.limited import Limits
from bench.queues.run_counts import Seat
from dibs import Dibs


def work(url: str, limits: str, seat: Seat, wait_for_start: Callable[[], None]) -> int:
    """Run the worker. It declares the limit, which is stored already."""
    asked = Limits.read(limits)
    app = Dibs(url)
    app.limit(LIMIT, max=asked.max, per="group" if asked.groups > 1 else None)

    @app.task(name=TYPE)
    async def bench(number: int) -> None:
        seat.ran(number)

    wait_for_start()
    return app.worker(concurrency=int(asked.setting)).run()
