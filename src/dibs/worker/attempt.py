"""An attempt in progress, and the set of attempts that a worker holds from their claims until their outcomes are
written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import partial
from typing import Any

from dibs.handlers.context import Context
from dibs.handlers.handler import AnyHandler
from dibs.model.claim import Claim, Outcome
from dibs.model.task import LEASE_LOST
from dibs.observe import tracing

PROCESS_DIED = "ProcessDied"
"""The type of the failure when a child process ends during an attempt."""


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
        "decided",
        "ended_at",
        "handler",
        "head_start",
        "on_stop",
        "received_at",
        "renewed_at",
        "replaced",
        "span",
    )

    def __init__(self, context: Context, handler: AnyHandler, now: float, ahead: bool) -> None:
        self.claim: Claim = context.claim
        self.handler = handler
        self.context = context
        self.ahead = ahead
        self.received_at = self.renewed_at = now
        self.begun_at: float | None = None
        self.ended_at: float | None = None
        self.span: Any = None
        self.head_start = 0.0  # seconds added to the timeout for the start of a child process and its imports
        self.decided = False
        self.replaced = False  # True when a failure has replaced an outcome that could not be stored
        self.on_stop: Callable[[StopReason], None] = _not_running

    @property
    def attempts(self) -> Sequence[Attempt]:
        """The attempts of this call of the handler: only this one. See Batch."""
        return (self,)

    @property
    def traceparent(self) -> str | None:
        """The trace of the attempt, for a child process."""
        return self.span and tracing.traceparent(self.span)

    @property
    def suspect(self) -> bool:
        """True when an earlier worker died while it held this task: the task may have killed that worker."""
        task = self.claim.task
        return task.dropped > 0 or (task.error is not None and task.error.type == LEASE_LOST)

    @property
    def records_start(self) -> bool:
        """True when the start of this attempt is stored before its handler runs: for a task that was lost before it
        started, and for a task that may have expired in this worker's memory, which the database's clock decides."""
        return self.ahead and (self.claim.task.dropped > 0 or self.claim.task.expires_at is not None)

    @property
    def waits_for_store(self) -> bool:
        """True when the worker waits for the store before the handler runs."""
        return self.records_start or self.suspect

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


class Batch:
    """Attempts of one batch handler that run in one call. Each keeps its own lease, timeout and outcome.

    A lane runs a batch in one place, as it runs an attempt. A request to stop one attempt sets `cancelled` in its
    context only; the call is asked to stop when none of its attempts goes on."""

    __slots__ = ("_begun_at", "_timed_out", "attempts", "handler", "on_attempt_stop", "on_stop", "received_at")

    def __init__(self, handler: AnyHandler, now: float) -> None:
        self.handler = handler
        self.attempts: list[Attempt] = []
        self.received_at = now
        self._begun_at: float | None = None
        self._timed_out = False
        self.on_stop: Callable[[StopReason], None] = _not_running
        self.on_attempt_stop: Callable[[Attempt], None] = _runs_here

    def add(self, attempt: Attempt) -> None:
        """Add an attempt, before the start of the call."""
        self.attempts.append(attempt)
        attempt.on_stop = partial(self._stops, attempt)

    @property
    def decided(self) -> bool:
        """True when every attempt has its outcome."""
        return all(attempt.decided for attempt in self.attempts)

    @property
    def waits_for_store(self) -> bool:
        """True when the worker waits for the store before one of the attempts starts."""
        return any(attempt.waits_for_store for attempt in self.attempts)

    @property
    def begun_at(self) -> float | None:
        """The start of the call, from which the timeout of each attempt counts."""
        return self._begun_at

    @begun_at.setter
    def begun_at(self, moment: float) -> None:
        self._begun_at = moment
        for attempt in self.attempts:
            attempt.begun_at = moment

    def traced(self) -> AbstractContextManager[Any]:
        """Open a span for each attempt. None of them is current: the call is that of all."""
        for attempt in self.attempts:
            attempt.span = tracing.begin_attempt(attempt.claim)
        return nullcontext()

    def perform(self) -> list[Outcome]:
        """Call the handler in this thread, and return the outcome of each attempt."""
        from dibs.worker.run_batch import ItemRun, run_items

        return run_items(self.handler, [ItemRun(each.context, each.traceparent) for each in self.attempts])

    async def perform_async(self) -> list[Outcome]:
        """`perform`, for a coroutine function, on the running event loop."""
        from dibs.worker.run_batch import ItemRun, run_items_async

        return await run_items_async(self.handler, [ItemRun(each.context, each.traceparent) for each in self.attempts])

    def log_fields(self, event: str) -> dict[str, Any]:
        """The `extra` fields of a log entry about the call."""
        tasks = [attempt.claim.task_id for attempt in self.attempts]
        return {"event": event, "task_type": self.handler.name, "task_ids": tasks}

    def _stops(self, attempt: Attempt, reason: StopReason) -> None:
        self._timed_out |= reason is StopReason.TIMED_OUT
        self.on_attempt_stop(attempt)
        if all(each.decided or each.context.cancelled for each in self.attempts):
            self.on_stop(StopReason.TIMED_OUT if self._timed_out and self.decided else reason)

    def __repr__(self) -> str:
        first = f"task {self.attempts[0].claim.task_id} …, " if self.attempts else ""
        return f"a batch of {len(self.attempts)} ({first}{self.handler.name})"


HandlerCall = Attempt | Batch
"""What a lane runs in one of its places: one call of a handler."""


class HeldAttempts:
    """All attempts that this worker holds. The outcome of each is decided once: by its handler, its timeout or the
    stop of the worker."""

    def __init__(self, on_decided: Callable[[Attempt, Outcome], None]) -> None:
        self._on_decided = on_decided
        self._held: set[Attempt] = set()
        self._lock = threading.Lock()
        self._empty = threading.Condition()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, attempts: Iterable[Attempt]) -> None:
        """Add attempts, whose leases are renewed from now on."""
        self._held.update(attempts)

    def all(self) -> list[Attempt]:
        """All held attempts: queued, running, or decided and not yet written."""
        return list(self._held.copy())

    def undecided(self) -> list[Attempt]:
        """The held attempts that have no outcome yet."""
        return [attempt for attempt in self.all() if not attempt.decided]

    def decide(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Set the outcome of the attempt. False, and no change, if it already has one."""
        with self._lock:
            if attempt.decided:
                return False
            attempt.decided = True
        attempt.ended_at = now()
        tracing.end_attempt(attempt.span, outcome)
        self._on_decided(attempt, outcome)
        return True

    def forget(self, attempts: Iterable[Attempt]) -> None:
        """Remove attempts whose outcomes are written or whose claims are lost: their leases are no longer renewed."""
        for attempt in attempts:
            attempt.decided = True
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


def _runs_here(attempt: Attempt) -> None:
    """Do nothing: the handler reads `cancelled` of the same context."""
