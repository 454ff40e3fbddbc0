"""The lane of coroutine functions: one event loop, in a thread of its own or the one the worker is embedded in."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial

from dibs.handlers.endings import outcome_of
from dibs.model.claim import Cancelled
from dibs.worker.attempt import Attempt, Stop, now
from dibs.worker.lanes import Duties, Lane
from dibs.worker.run import perform_async

LEAVE_WITHIN = 1.0
"""Seconds that coroutines have to end when the lane is closed; their tasks have been released before."""


class LoopLane(Lane):
    """Coroutines on an event loop. A batch is handed over at once; the loop's own thread does the rest."""

    def __init__(
        self, types: Sequence[str], places: int, duties: Duties, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        super().__init__(types, places, duties)
        self._waiting: deque[Attempt] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        if loop is None:
            loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=loop.run_forever, name="dibs-loop", daemon=True)
            self._thread.start()
        self._loop = loop

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """See Lane."""
        self._active.update(attempts)
        self._waiting.extend(attempts)
        self._loop.call_soon_threadsafe(self._begin_some)

    def take_back(self, waiting_since: float) -> list[Attempt]:
        """See Lane."""
        taken: list[Attempt] = []
        kept: list[Attempt] = []
        with contextlib.suppress(IndexError):
            while True:
                attempt = self._waiting.popleft()
                (taken if attempt.received_at <= waiting_since else kept).append(attempt)
        self._waiting.extendleft(reversed(kept))
        self._active.difference_update(taken)
        return taken

    def close(self) -> None:
        """See Lane."""
        if self._thread is None:
            return
        with contextlib.suppress(TimeoutError):  # a handler may block the loop, or refuse to be cancelled
            asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop).result(timeout=LEAVE_WITHIN)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=LEAVE_WITHIN)
        if not self._thread.is_alive():
            self._loop.close()

    async def _wind_up(self) -> None:
        """What asyncio.run does at its end: whatever handlers have left running on the loop ends as well."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _begin_some(self) -> None:
        while len(self._running) < self.places:
            try:
                attempt = self._waiting.popleft()
            except IndexError:
                return
            task = self._loop.create_task(self._run(attempt))
            self._running.add(task)  # a loop keeps only weak references
            task.add_done_callback(partial(self._over, attempt))
            attempt.on_stop = partial(self._stop, task)

    def _stop(self, task: asyncio.Task[None], why: Stop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be gone
            self._loop.call_soon_threadsafe(task.cancel, f"dibs: {why}")

    async def _run(self, attempt: Attempt) -> None:
        begin, reached = self._duties.begin, now()
        if not (await asyncio.to_thread(begin, attempt) if attempt.suspect else begin(attempt)):
            return
        attempt.begun_at = begun = now()
        with attempt.traced():
            outcome = await perform_async(attempt.handler, attempt.context)
        self._finished(attempt, begun, outcome, reached)

    def _over(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._active.discard(attempt)
        if task.cancelled():  # before its first step: no handler was there to see it
            self._duties.ended(attempt, Cancelled())
        elif (error := task.exception()) is not None:
            self._duties.ended(attempt, outcome_of(error))
        self._begin_some()
