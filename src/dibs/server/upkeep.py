"""The server keeps the house by itself: what is due is promoted, what is lost comes back, what is old goes, whether or
not a worker is there to see to it."""

from __future__ import annotations

import asyncio
import logging

from dibs.server.config import ServerConfig
from dibs.store.contract import Store
from dibs.store.operation import Operation, T
from dibs.worker.config import WorkerConfig
from dibs.worker.contact import Contact
from dibs.worker.upkeep import Upkeep

logger = logging.getLogger("dibs.server")

PATIENCE = 5.0
"""Seconds that a round of upkeep has to end when the server stops. It may be cut short anywhere: each of its statements
stands on its own."""


class Keeper:
    """A worker's upkeep, without a worker: in a thread, since it must go on when the event loop is busy."""

    def __init__(self, store: Store, config: ServerConfig) -> None:
        settings = WorkerConfig(upkeep_every=config.upkeep_every, retention=config.retention)
        self._upkeep = Upkeep(Contact(store, _unsigned), settings) if config.upkeep else None

    def start(self) -> None:
        """Begin."""
        if self._upkeep is not None:
            self._upkeep.start()

    async def stop(self) -> None:
        """End, without keeping the event loop from its last requests."""
        if self._upkeep is not None and not await asyncio.to_thread(self._upkeep.end, PATIENCE):
            logger.warning("the upkeep did not end in time; it is left behind")


def _unsigned(operation: Operation[T]) -> Operation[T]:
    return operation
