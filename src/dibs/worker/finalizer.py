"""The finalizer: whoever wrote the last outcome of a workflow also sees to its end, at once.

If it cannot, nothing is forgotten: what waits for its finalization stands in the store, and any upkeep finds it.
"""

from __future__ import annotations

import queue
import threading

from dibs import procedures
from dibs.errors import StoreError
from dibs.worker.attempt import now
from dibs.worker.service import Part
from dibs.worker.store_access import Contact

LOOK_UP = 1.0


class Finalizer(Part):
    """Finalizes one workflow after the other."""

    name = "finalizer"

    def __init__(self, contact: Contact, processor: str) -> None:
        super().__init__()
        self._contact = contact
        self._processor = processor
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._left = 0
        self.done_at = 0.0
        """When the last finalization ended, which may have begun a task."""
        self._changed = threading.Condition()

    def put(self, workflow_id: int) -> None:
        """This workflow waits for its finalization."""
        with self._changed:
            self._left += 1
        self._queue.put(workflow_id)

    @property
    def idle(self) -> bool:
        """True when nothing is left to finalize."""
        return not self._left

    def wait_until_idle(self, timeout: float) -> bool:
        """True as soon as nothing is left; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.idle, timeout)

    def look(self) -> bool:
        """Put whatever waits in the store and is nobody's; whether there was anything."""
        due = self._contact.run(self._contact.store.finalization.due_finalizations())
        for workflow_id in due:
            self.put(workflow_id)
        return bool(due)

    def wake(self) -> None:
        """See Part."""
        self._queue.put(None)

    def step(self) -> None:
        """Finalize the next. If the store is away, it is tried again, in its turn."""
        try:
            workflow_id = self._queue.get(timeout=LOOK_UP)
        except queue.Empty:
            return
        if workflow_id is not None:
            self._finalize(workflow_id)

    def _finalize(self, workflow_id: int) -> None:
        try:
            self._contact.follow(procedures.finalize_one(self._contact.store, workflow_id, self._processor))
        except StoreError:
            self.put(workflow_id)
            raise
        finally:
            with self._changed:
                self._left -= 1
                self.done_at = now()
                self._changed.notify_all()
