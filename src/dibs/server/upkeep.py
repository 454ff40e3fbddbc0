"""Upkeep in the server: promote due tasks, recover lost tasks, prune old records, finalize workflows, also without a
worker."""

from __future__ import annotations

import asyncio
import logging
import os

from dibs.model.finalization import unique_processor
from dibs.server.config import ServerConfig
from dibs.store.contract import Store
from dibs.worker.config import WorkerConfig
from dibs.worker.service import ServiceThread
from dibs.worker.store_access import StoreAccess
from dibs.worker.upkeep import UpkeepService, WorkflowFinalizer

logger = logging.getLogger("dibs.server")

STOP_TIMEOUT = 5.0
"""Seconds that a round of upkeep has to end when the server stops. It may be interrupted anywhere: each of its
statements is complete in itself."""


class ServerUpkeep:
    """The upkeep and the finalizer of a worker, without a worker. They run in threads, independent of the event loop.

    HTTP clients never finalize. The server does so when a client reports the last outcome of a workflow.
    """

    def __init__(self, store: Store, config: ServerConfig) -> None:
        settings = WorkerConfig(upkeep_every=config.upkeep_every)
        access, processor = StoreAccess(store, by=None), unique_processor(f"server-{os.getpid()}")
        self._finalizer = WorkflowFinalizer(access, processor) if config.upkeep else None
        self._upkeep = UpkeepService(access, settings, processor) if config.upkeep else None

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads():
            thread.start()

    def finalize(self, workflow_id: int) -> None:
        """Finalize this workflow, which has no open steps."""
        if self._finalizer is not None:
            self._finalizer.put(workflow_id)

    async def stop(self) -> None:
        """Stop the threads without blocking the event loop. Upkeep finds workflows that are not finalized later."""
        ends = [asyncio.to_thread(thread.end, STOP_TIMEOUT) for thread in self._threads()]
        if not all(await asyncio.gather(*ends)):
            logger.warning("the upkeep did not end in time; stopping without it")

    def _threads(self) -> list[ServiceThread]:
        return [thread for thread in (self._finalizer, self._upkeep) if thread is not None]
