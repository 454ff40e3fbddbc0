"""Noticing that this server is stuck: an event loop that is late, or threads that are all busy.

A stuck event loop answers nothing, not even /ready. The beat shows it as soon as the loop goes on, and for a while
after that: what stopped it once is likely to do so again. A thread beside the loop logs where it hangs.
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
    """The beat of one event loop."""

    def __init__(self) -> None:
        self._beat_at = time.monotonic()
        self._longest = 0.0
        self._remembered_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._over = threading.Event()

    def start(self) -> None:
        """Begin to beat, in the running event loop."""
        self._beat_at = time.monotonic()
        self._task = asyncio.create_task(self._beat())
        loop_thread = threading.get_ident()
        threading.Thread(target=self._watch, args=[loop_thread], name="dibs-liveness", daemon=True).start()

    async def stop(self) -> None:
        """Beat no more."""
        self._over.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def trouble(self) -> str | None:
        """What is wrong with the event loop; None where nothing is."""
        if self._task is None:
            return None
        self._notice()
        if time.monotonic() < self._remembered_until:
            return f"The event loop of the server was stuck for {self._longest:.1f} seconds just now."
        return None

    async def _beat(self) -> None:
        while True:
            self._notice()
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_INTERVAL)

    def _notice(self) -> None:
        now = time.monotonic()
        if (late := now - self._beat_at) > STUCK:
            self._longest = late
            self._remembered_until = now + RECOVERY_SECONDS

    def _watch(self, loop_thread: int) -> None:
        told = 0.0
        while not self._over.wait(STUCK / 2):
            beat = self._beat_at
            if time.monotonic() - beat > STUCK and told != beat:
                told = beat
                frame = sys._current_frames().get(loop_thread)
                where = "".join(traceback.format_stack(frame)[-8:]) if frame is not None else "unknown"
                about = {"event": "server.stuck", "where": where}
                logger.error("the event loop has been stuck for %g s, at:\n%s", STUCK, where, extra=about)


async def threads_answer() -> None:
    """Return when a thread of the event loop's own pool has answered."""
    await asyncio.to_thread(_nothing)


def _nothing() -> None:
    """What the thread has to do."""
