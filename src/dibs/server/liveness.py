"""Detect a stuck server: an event loop that is blocked, or a thread pool that is exhausted.

A stuck event loop answers no request, not even /ready. A periodic beat detects the block when the loop continues, and
the server is not ready for some seconds after that, because the cause is likely to repeat. A thread logs the stack of
the stuck loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback

logger = logging.getLogger("dibs.server")

BEAT_INTERVAL = 0.25
"""Seconds between two beats of the event loop."""

STUCK = 2.0
"""Seconds without a beat after which the event loop counts as stuck."""

RECOVERY_SECONDS = 10.0
"""Seconds for which the server is not ready after its event loop was stuck."""


class Liveness:
    """Monitors one event loop by a periodic beat."""

    def __init__(self) -> None:
        self._beat_at = time.monotonic()
        self._longest = 0.0
        self._not_ready_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the beat in the running event loop."""
        self._beat_at = time.monotonic()
        self._task = asyncio.create_task(self._beat())
        loop_thread = threading.get_ident()
        threading.Thread(target=self._watch, args=[loop_thread], name="dibs-liveness", daemon=True).start()

    async def stop(self) -> None:
        """Stop the beat."""
        self._stopped.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def trouble(self) -> str | None:
        """Return the problem of the event loop, or None."""
        if self._task is None:
            return None
        self._check()
        if time.monotonic() < self._not_ready_until:
            return f"The event loop of the server was stuck for {self._longest:.1f} seconds just now."
        return None

    async def _beat(self) -> None:
        while True:
            self._check()
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_INTERVAL)

    def _check(self) -> None:
        now = time.monotonic()
        if (late := now - self._beat_at) > STUCK:
            self._longest = late
            self._not_ready_until = now + RECOVERY_SECONDS

    def _watch(self, loop_thread: int) -> None:
        logged_beat = 0.0
        while not self._stopped.wait(STUCK / 2):
            beat = self._beat_at
            if time.monotonic() - beat > STUCK and logged_beat != beat:
                logged_beat = beat
                frame = sys._current_frames().get(loop_thread)
                where = "".join(traceback.format_stack(frame)[-8:]) if frame is not None else "unknown"
                about = {"event": "server.stuck", "where": where}
                logger.error("the event loop has been stuck for %g s, at:\n%s", STUCK, where, extra=about)


async def threads_answer() -> None:
    """Return when a thread of the event loop's pool has run."""
    await asyncio.to_thread(_nothing)


def _nothing() -> None:
    """Do nothing, in a thread."""
