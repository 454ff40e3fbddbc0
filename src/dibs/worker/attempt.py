"""An attempt in progress, and the set of attempts that a worker holds from their claims until their outcomes are
written."""

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


class StopReason(StrEnum):
    """Why a handler has to stop."""

    CANCELLED = "cancelled"  # a client requested the cancellation of the task
    TIMED_OUT = "timed out"  # the timeout of the task has passed
    LOST = "lost"  # this worker no longer holds the claim
    SHUTDOWN = "shutdown"  # the worker stops, and the grace period is over


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
        self.head_start = 0.0  # seconds added to the timeout for the start of a child process and its imports
        self.settled = False
        self.replaced = False  # True when a failure has replaced an outcome that could not be stored
        self.on_stop: Callable[[StopReason], None] = _not_running

    @property
    def suspect(self) -> bool:
        """True when an earlier worker died while it held this task claimed ahead.

        The task may have killed that worker, so the start of this attempt is stored before its handler runs."""
        return self.ahead and self.claim.task.dropped > 0

    @property
    def deadline(self) -> float | None:
        """The time on the monotonic clock at which the attempt times out; None without a timeout or before the
        start."""
        timeout = self.claim.task.timeout
        return None if timeout is None or self.begun_at is None else self.begun_at + timeout + self.head_start

    def begin(self) -> None:
        """Record that the handler starts now: in a child process that is later than the start of the attempt."""
        self.begun_at = now()
        self.head_start = 0.0

    def traced(self) -> AbstractContextManager[Any]:
        """A context manager around the run of the handler: opens a span where the program uses OpenTelemetry."""
        self.span = tracing.begin_attempt(self.claim)
        return tracing.activate(self.span)

    @property
    def seconds(self) -> float | None:
        """Seconds for which the handler ran; None before its end."""
        return None if self.begun_at is None or self.ended_at is None else round(self.ended_at - self.begun_at, 6)

    def log_fields(self, event: str, **more: Any) -> dict[str, Any]:
        """The `extra` fields of a log entry about this attempt."""
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

    def stop(self, reason: StopReason) -> None:
        """Ask the handler to stop."""
        self.context.cancelled = True
        self.on_stop(reason)

    def __repr__(self) -> str:
        return f"task {self.claim.task_id} ({self.handler.name}, attempt {self.claim.attempt})"


class HeldAttempts:
    """All attempts that this worker holds. Each is settled (given its outcome) once: by the handler, timeout or
    shutdown."""

    def __init__(self, on_settled: Callable[[Attempt, Outcome], None]) -> None:
        self._on_settled = on_settled
        self._held: set[Attempt] = set()
        self._lock = threading.Lock()
        self._empty = threading.Condition()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, attempts: Iterable[Attempt]) -> None:
        """Add attempts, whose leases are renewed from now on."""
        self._held.update(attempts)

    def all(self) -> list[Attempt]:
        """All held attempts: queued, running, or settled and not yet written."""
        return list(self._held.copy())

    def unsettled(self) -> list[Attempt]:
        """The held attempts that have no outcome yet."""
        return [attempt for attempt in self.all() if not attempt.settled]

    def settle(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Set the outcome of the attempt. False, and no change, if it already has one."""
        with self._lock:
            if attempt.settled:
                return False
            attempt.settled = True
        attempt.ended_at = now()
        tracing.end_attempt(attempt.span, outcome)
        self._on_settled(attempt, outcome)
        return True

    def forget(self, attempts: Iterable[Attempt]) -> None:
        """Remove attempts whose outcomes are written or whose claims are lost: their leases are no longer renewed."""
        for attempt in attempts:
            attempt.settled = True
        self._held.difference_update(attempts)
        if not self._held:
            with self._empty:
                self._empty.notify_all()

    def wait_until_none(self, timeout: float) -> bool:
        """Wait until no attempt is held. False if some are still held after `timeout` seconds."""
        with self._empty:
            return self._empty.wait_for(lambda: not self._held, max(0.0, timeout))


def now() -> float:
    """The time on the monotonic clock, by which the worker measures durations."""
    return time.monotonic()


def _not_running(reason: StopReason) -> None:
    """Do nothing: the handler has not started, so there is nothing to stop."""
