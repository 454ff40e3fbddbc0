"""The lane of coroutine functions: one event loop, either in a separate thread or the loop that runs the worker."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial

from dibs.handlers.endings import outcome_of
from dibs.model.claim import Cancelled, Outcome
from dibs.worker.attempt import Attempt, Batch, HandlerCall, StopReason, now
from dibs.worker.lanes import LaneCallbacks, LaneRunner, attempts_of
from dibs.worker.run import perform_async

CLOSE_TIMEOUT = 1.0
"""Seconds for coroutines to end when the lane is closed; their tasks have already been released."""


class LoopLane(LaneRunner):
    """Runs coroutine functions on an event loop."""

    def __init__(
        self, types: Sequence[str], places: int, callbacks: LaneCallbacks, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        super().__init__(types, places, callbacks)
        self._waiting: deque[HandlerCall] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        if loop is None:
            loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=loop.run_forever, name="dibs-loop", daemon=True)
            self._thread.start()
        self._loop = loop

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the lane."""
        return self._loop

    def submit(self, attempts: Sequence[HandlerCall]) -> None:
        """See LaneRunner."""
        self._active.update(attempts)
        self._waiting.extend(attempts)
        self._loop.call_soon_threadsafe(self._start_waiting)

    def take_back(self, waiting_since: float) -> list[Attempt]:
        """See LaneRunner."""
        taken: list[HandlerCall] = []
        kept: list[HandlerCall] = []
        with contextlib.suppress(IndexError):
            while True:
                attempt = self._waiting.popleft()
                (taken if attempt.received_at <= waiting_since else kept).append(attempt)
        self._waiting.extendleft(reversed(kept))
        self._active.difference_update(taken)
        return attempts_of(taken)

    def close(self) -> None:
        """See LaneRunner."""
        if self._thread is None:
            return
        with contextlib.suppress(TimeoutError):  # a handler may block the loop, or refuse to be cancelled
            asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result(timeout=CLOSE_TIMEOUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=CLOSE_TIMEOUT)
        if not self._thread.is_alive():
            self._loop.close()

    async def _cancel_all(self) -> None:
        """Cancel every asyncio task on the loop, as asyncio.run does at its end: handlers may have started some."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _start_waiting(self) -> None:
        """Start waiting attempts while places are free."""
        while len(self._running) < self.places:
            try:
                attempt = self._waiting.popleft()
            except IndexError:
                return
            task = self._loop.create_task(self._run(attempt))
            self._running.add(task)  # a loop keeps only weak references
            task.add_done_callback(partial(self._task_done, attempt))
            attempt.on_stop = partial(self._stop, task)

    def _stop(self, task: asyncio.Task[None], reason: StopReason) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed
            self._loop.call_soon_threadsafe(task.cancel, f"dibs: {reason}")

    async def _run(self, attempt: HandlerCall) -> None:
        may_begin, reached = self._callbacks.may_begin, now()
        if not (await asyncio.to_thread(may_begin, attempt) if attempt.waits_for_store else may_begin(attempt)):
            return
        attempt.begun_at = begun = now()
        with attempt.traced():
            if isinstance(attempt, Batch):
                outcome: Outcome | Sequence[Outcome] = await attempt.perform_async()
            else:
                outcome = await perform_async(attempt.handler, attempt.context)
        self._finished(attempt, begun, outcome, reached)

    def _task_done(self, attempt: HandlerCall, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if attempt in self._active:  # the handler did not start, or was cancelled
            self._active.discard(attempt)
            self._callbacks.room()
        if task.cancelled():  # before its first step, so `_run` has reported no outcome
            self._callbacks.ended(attempt, Cancelled())
        elif (error := task.exception()) is not None:
            self._callbacks.ended(attempt, outcome_of(error))
        self._start_waiting()
