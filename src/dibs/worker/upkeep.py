"""Upkeep by every worker and server: schedule ticks, promotions, recoveries, pruning, heartbeats; and finalization.

Any number of processes may do upkeep at the same time: each statement changes only rows that are still in the expected
state. A round is small, and its interval has jitter, so many workers do little more work than one.

The process that writes the last outcome of a workflow also finalizes the workflow, at once. If that process dies, the
workflow stays due in the store, and the upkeep of any other process finalizes it.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable
from typing import cast

from dibs import procedures
from dibs.errors import StoreError
from dibs.model.registry import Heartbeat
from dibs.observe import log
from dibs.store.contract import DatabaseStore
from dibs.worker.attempt import now
from dibs.worker.config import WorkerConfig
from dibs.worker.service import ServiceThread
from dibs.worker.store_access import StoreAccess

logger = logging.getLogger("dibs.worker")

HEARTBEAT_INTERVAL = 30.0
PRUNE_INTERVAL = 60.0
MAINTENANCE_INTERVAL = 60.0
INDEX_INTERVAL = 5.0
"""The same in a store that builds indexes during its maintenance."""

TICK_INTERVAL = 1.0


class UpkeepService(ServiceThread):
    """The service thread that does upkeep and sends the heartbeats of a worker."""

    name = "upkeep"

    def __init__(
        self,
        access: StoreAccess,
        config: WorkerConfig,
        processor: str,
        heartbeat: Callable[[bool], Heartbeat] | None = None,
    ) -> None:
        super().__init__()
        self._access = access
        self._config = config
        self._processor = processor
        self.in_round = False
        """True during a round, which may make tasks claimable."""
        self.changed_at = 0.0
        """The end of the last round that made tasks claimable."""
        self._heartbeat = heartbeat
        self._woken = threading.Event()
        self._pruning = procedures.Pruning()
        self._intervals: dict[Callable[[], None], float] = (
            {} if heartbeat is None else {self._send_heartbeat: HEARTBEAT_INTERVAL}
        )
        if not access.store.served:  # a server does its own upkeep, and the API key of a worker does not allow it
            builds_indexes = cast("DatabaseStore", access.store).many_writers
            maintained_every = INDEX_INTERVAL if builds_indexes else MAINTENANCE_INTERVAL
            self._intervals |= {self._tick: TICK_INTERVAL, self._tend: config.upkeep_every, self._prune: PRUNE_INTERVAL}
            self._intervals[access.maintain] = maintained_every
        self._next = dict.fromkeys(self._intervals, 0.0)

    def wake(self) -> None:
        """See ServiceThread."""
        self._woken.set()

    def step(self) -> None:
        """Run the jobs that are due, and wait for the next one."""
        for job, due in self._next.items():
            if now() >= due:
                job()
                self._next[job] = now() + self._intervals[job] * random.uniform(0.9, 1.1)
        log.log_recoveries()
        self._woken.wait(max(0.0, min(self._next.values()) - now()))

    def leave(self) -> None:
        """Record that the worker has stopped."""
        self._send_heartbeat(leaving=True)

    def _send_heartbeat(self, leaving: bool = False) -> None:
        if self._heartbeat is not None:  # None in a server, which is not a worker
            self._access.run(self._access.store.registry.heartbeat(self._heartbeat(leaving)))

    def _tend(self) -> None:
        self.in_round = True
        try:
            if any(self._access.follow(procedures.run_urgent_upkeep(self._access.store, self._processor))):
                self.changed_at = now()
        finally:
            self.in_round = False

    def _tick(self) -> None:
        self._access.follow(procedures.tick(self._access.store))

    def _prune(self) -> None:
        self._access.follow(procedures.run_cleanup(self._access.store, self._pruning))


QUEUE_TIMEOUT = 1.0


class WorkflowFinalizer(ServiceThread):
    """The service thread that finalizes workflows, one after the other."""

    name = "finalizer"

    def __init__(self, access: StoreAccess, processor: str) -> None:
        super().__init__()
        self._access = access
        self._processor = processor
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._pending = 0
        self.done_at = 0.0
        """The end of the last finalization, which may have made a task claimable."""
        self._changed = threading.Condition()

    def put(self, workflow_id: int) -> None:
        """Queue a workflow for finalization."""
        with self._changed:
            self._pending += 1
        self._queue.put(workflow_id)

    @property
    def idle(self) -> bool:
        """True when no workflow is queued for finalization."""
        return not self._pending

    def wait_until_idle(self, timeout: float) -> bool:
        """Wait until no workflow is queued. False if some are still queued after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.idle, timeout)

    def queue_due(self) -> bool:
        """Queue the workflows in the store that are due for finalization. Returns whether there were any."""
        due = self._access.run(self._access.store.finalization.due_finalizations())
        for workflow_id in due:
            self.put(workflow_id)
        return bool(due)

    def wake(self) -> None:
        """See ServiceThread."""
        self._queue.put(None)

    def step(self) -> None:
        """Finalize the next queued workflow. If the store is unavailable, the workflow goes to the end of the queue."""
        try:
            workflow_id = self._queue.get(timeout=QUEUE_TIMEOUT)
        except queue.Empty:
            return
        if workflow_id is not None:
            self._finalize(workflow_id)

    def _finalize(self, workflow_id: int) -> None:
        try:
            self._access.follow(procedures.finalize_one(self._access.store, workflow_id, self._processor))
        except StoreError:
            self.put(workflow_id)
            raise
        finally:
            with self._changed:
                self._pending -= 1
                self.done_at = now()
                self._changed.notify_all()
