"""The server keeps the house by itself: what is due is promoted, what is lost comes back, what is old goes, workflows
are finalized, whether or not a worker is there to see to it."""

from __future__ import annotations

import asyncio
import logging
import os

from dibs.model.finalization import unique_processor
from dibs.server.config import ServerConfig
from dibs.store.contract import Store
from dibs.worker.config import WorkerConfig
from dibs.worker.finalizer import Finalizer
from dibs.worker.service import Part
from dibs.worker.store_access import Contact
from dibs.worker.upkeep import Upkeep

logger = logging.getLogger("dibs.server")

PATIENCE = 5.0
"""Seconds that a round of upkeep has to end when the server stops. It may be cut short anywhere: each of its statements
stands on its own."""


class Keeper:
    """A worker's upkeep and finalizer, without a worker: in threads, since they must go on when the event loop is busy.

    Those who speak HTTP never finalize; the server does, the moment they report the last outcome of a workflow.
    """

    def __init__(self, store: Store, config: ServerConfig) -> None:
        settings = WorkerConfig(upkeep_every=config.upkeep_every)
        contact, processor = Contact(store, by=None), unique_processor(f"server-{os.getpid()}")
        self._finalizer = Finalizer(contact, processor) if config.upkeep else None
        self._upkeep = Upkeep(contact, settings, processor) if config.upkeep else None

    def start(self) -> None:
        """Begin."""
        for part in self._parts():
            part.start()

    def finalize(self, workflow_id: int) -> None:
        """See to this workflow, which has nothing more to run."""
        if self._finalizer is not None:
            self._finalizer.put(workflow_id)

    async def stop(self) -> None:
        """End, without keeping the event loop from its last requests. What is not finalized by then, upkeep finds."""
        ends = [asyncio.to_thread(part.end, PATIENCE) for part in self._parts()]
        if not all(await asyncio.gather(*ends)):
            logger.warning("the upkeep did not end in time; it is left behind")

    def _parts(self) -> list[Part]:
        return [part for part in (self._finalizer, self._upkeep) if part is not None]
