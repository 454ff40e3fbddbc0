"""An attempt in progress, and all that this worker has: what it holds, renews, runs and has yet to tell the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any

from dibs.handlers.context import Context
from dibs.handlers.handler import Handler
from dibs.model.claim import Claim, Outcome
from dibs.observe import tracing


class Stop(StrEnum):
    """Why a handler is told to stop."""

    CANCELLED = "cancelled"  # somebody asked the task to stop
    TIMED_OUT = "timed out"  # its time is up
    LOST = "lost"  # the claim is no longer ours
    SHUTDOWN = "shutdown"  # the worker stops, and its grace is over


class Attempt:
    """A claimed task in this worker, from the claim until its outcome is written."""

    __slots__ = (
        "ahead",
        "begun_at",
        "claim",
        "context",
        "ended_at",
        "handler",
        "head_start",
        "on_stop",
        "received_at",
        "renewed_at",
        "replaced",
        "settled",
        "span",
    )

    def __init__(self, context: Context, handler: Handler[..., Any, Any], now: float, ahead: bool) -> None:
        self.claim: Claim = context.claim
        self.handler = handler
        self.context = context
        self.ahead = ahead
        self.received_at = self.renewed_at = now
        self.begun_at: float | None = None
        self.ended_at: float | None = None
        self.span: Any = None
        self.head_start = 0.0  # seconds on top of its timeout, for what has to happen before its handler can begin
        self.settled = False
        self.replaced = False  # True when a failed attempt took the place of an outcome that could not be stored
        self.on_stop: Callable[[Stop], None] = _nothing

    @property
    def suspect(self) -> bool:
        """True when a worker died with this task claimed ahead: it may be what killed it, so its start is noted."""
        return self.ahead and self.claim.task.dropped > 0

    @property
    def deadline(self) -> float | None:
        """The moment (monotonic) at which its time is up."""
        timeout = self.claim.task.timeout
        return None if timeout is None or self.begun_at is None else self.begun_at + timeout + self.head_start

    def begin(self) -> None:
        """Its handler begins now; in a child process, which may have had to start first, later than the attempt."""
        self.begun_at = now()
        self.head_start = 0.0

    def traced(self) -> AbstractContextManager[Any]:
        """While this holds, its handler runs, in a span of its own where the program traces."""
        self.span = tracing.begin(self.claim)
        return tracing.active(self.span)

    @property
    def seconds(self) -> float | None:
        """How long its handler ran."""
        return None if self.begun_at is None or self.ended_at is None else round(self.ended_at - self.begun_at, 6)

    def about(self, event: str, **more: Any) -> dict[str, Any]:
        """The fields of an entry of the log that tells of it."""
        claim = self.claim
        fields = {
            "event": event,
            "task_id": claim.task_id,
            "task_type": claim.task.type,
            "queue": claim.task.queue,
            "worker_id": claim.worker_id,
            "token": claim.token,
            "attempt": claim.attempt,
            **more,
        }
        if (trace := claim.task.trace or (self.span and tracing.traceparent(self.span))) is not None:
            fields["trace_id"] = tracing.trace_id(trace)
        return fields

    def stop(self, why: Stop) -> None:
        """Tell the handler to stop."""
        self.context.cancelled = True
        self.on_stop(why)

    def __repr__(self) -> str:
        return f"task {self.claim.task_id} ({self.handler.name}, attempt {self.claim.attempt})"


class Attempts:
    """All attempts that this worker holds. Each is settled once: by its handler, its timeout, or the shutdown."""

    def __init__(self, tell: Callable[[Attempt, Outcome], None]) -> None:
        self._tell = tell
        self._held: set[Attempt] = set()
        self._lock = threading.Lock()
        self._empty = threading.Condition()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, attempts: Iterable[Attempt]) -> None:
        """These are ours now: renew them."""
        self._held.update(attempts)

    def all(self) -> list[Attempt]:
        """Those that are held now, whether queued, running or settled and not yet written."""
        return list(self._held.copy())

    def unsettled(self) -> list[Attempt]:
        """Those whose outcome is still open."""
        return [attempt for attempt in self.all() if not attempt.settled]

    def settle(self, attempt: Attempt, outcome: Outcome) -> bool:
        """This is how the attempt ended. False if that was decided before."""
        with self._lock:
            if attempt.settled:
                return False
            attempt.settled = True
        attempt.ended_at = now()
        tracing.end(attempt.span, outcome)
        self._tell(attempt, outcome)
        return True

    def forget(self, attempts: Iterable[Attempt]) -> None:
        """Their outcomes are written, or their claims lost: nothing to renew any more."""
        for attempt in attempts:
            attempt.settled = True
        self._held.difference_update(attempts)
        if not self._held:
            with self._empty:
                self._empty.notify_all()

    def wait_until_none(self, timeout: float) -> bool:
        """True as soon as nothing is held; False after `timeout` seconds."""
        with self._empty:
            return self._empty.wait_for(lambda: not self._held, max(0.0, timeout))


def now() -> float:
    """The worker's own clock, which only measures durations."""
    return time.monotonic()


def _nothing(why: Stop) -> None:
    """How to stop a handler that has not begun."""
