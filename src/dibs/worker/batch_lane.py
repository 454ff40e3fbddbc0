"""A batch lane: collects the tasks of one batch handler, and gives them as batches to the lane that runs the handler.

The claimer claims for it as for any lane. The first task of a batch reserves a place of the lane that will run it, so
that a batch that is complete starts at once. Until then its tasks are claimed and have not started: their leases are
renewed, and a worker that stops releases them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from dibs.handlers.batch import BatchBounds
from dibs.handlers.handler import AnyHandler
from dibs.model.task import LEASE_LOST
from dibs.worker.attempt import PROCESS_DIED, Attempt, Batch, HandlerCall, now
from dibs.worker.lanes import LaneCallbacks, LaneRunner

CLAIMS_PER_WAIT = 4
"""Claims while a batch waits for further tasks: a claim after each wake-up would cost more than the batch saves."""

MAX_CLAIM_INTERVAL = 0.25
"""Seconds between two of these claims, however long the batch waits: it should start soon after it can be full."""


class BatchLane(LaneRunner):
    """Collects tasks of one handler. `lane`: runs the handler. `wait`: seconds for which the first task of a batch
    waits for others."""

    def __init__(
        self, handler: AnyHandler, size: BatchBounds, lane: LaneRunner, callbacks: LaneCallbacks, *, burst: bool
    ) -> None:
        super().__init__([handler.name], lane.places, callbacks)
        self._handler = handler
        self._size = size.size
        self._wait = 0.0 if burst else size.wait  # a burst ends when nothing is left, so nothing more is expected
        self._lane = lane
        self._open: Batch | None = None
        self._ends = self._claims_at = 0.0
        self._lock = threading.Lock()

    @property
    def free(self) -> int:
        """Number of tasks to claim now: what the open batch lacks, and a batch for each free place."""
        if (batch := self._open) is None:
            return self._lane.free_for_batches * self._size
        if self.collects:
            return 0
        return self._size - len(batch.attempts) + self._lane.free_for_batches * self._size

    @property
    def due_in(self) -> float | None:
        """Seconds until the claimer must look at this lane again; None while no batch is open."""
        return None if self._open is None else max(0.0, self._claims_at - now())

    @property
    def collects(self) -> bool:
        """True while a batch waits for further tasks, and its next claim is not due."""
        return self._open is not None and now() < self._claims_at

    def submit(self, attempts: Sequence[HandlerCall]) -> None:
        """See LaneRunner: add the attempts to batches."""
        with self._lock:
            for work in attempts:
                for attempt in work.attempts:
                    if _runs_alone(attempt):
                        self._lane.submit([self._batch_of(attempt)])
                    else:
                        self._collect(attempt)

    def claimed(self, moment: float, filled: bool) -> None:
        """Note a claim that began at this moment. `filled`: claimed ahead, and there are more tasks."""
        self._claims_at = min(self._ends, moment + min(self._wait / CLAIMS_PER_WAIT, MAX_CLAIM_INTERVAL))
        self.claimed_ahead(moment, filled)

    def run_due(self) -> None:
        """Run the open batch if its time is over."""
        with self._lock:
            if self._open is not None and now() >= self._ends:
                self._run_open()

    def take_back(self, waiting_since: float) -> list[Attempt]:
        """See LaneRunner."""
        with self._lock:
            batch = self._open
            if batch is None or batch.received_at > waiting_since:
                return []
            self._open = None
            self._lane.unreserve(batch)
            return batch.attempts

    def close(self) -> None:
        """See LaneRunner: the lane that runs the handler is closed by itself."""

    def _collect(self, attempt: Attempt) -> None:
        if self._open is None:
            self._open = Batch(self._handler, now())
            self._ends = now() + self._wait
            self._lane.reserve(self._open)
        self._open.add(attempt)
        if len(self._open.attempts) == self._size:
            self._run_open()

    def _run_open(self) -> None:
        batch, self._open = self._open, None
        if batch is not None:
            self._lane.submit([batch])

    def _batch_of(self, attempt: Attempt) -> Batch:
        batch = Batch(self._handler, now())
        batch.add(attempt)
        return batch


def _runs_alone(attempt: Attempt) -> bool:
    """True for a task whose last attempt ended with its worker or its child process: it may have killed the process,
    and would take the other tasks of a batch with it."""
    task = attempt.claim.task
    return task.dropped > 0 or (task.error is not None and task.error.type in (LEASE_LOST, PROCESS_DIED))
