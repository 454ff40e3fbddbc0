"""The remote store: every operation is one or more HTTP requests to a dibs server."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar

from dibs.errors import InvalidValue
from dibs.model.history import EventFilter, StoreEvent
from dibs.model.upkeep import Check
from dibs.store.migrate import OnMigration, ignore_migration
from dibs.store.operation import Operation, drive, drive_async
from dibs.store.remote.address import Address
from dibs.store.remote.admin import (
    RemoteKeys,
    RemoteRegistry,
    RemoteRetention,
    RemoteSchedules,
    RemoteStatistics,
    RemoteUpkeep,
)
from dibs.store.remote.claims import RemoteQueue
from dibs.store.remote.connection import RemoteConnections
from dibs.store.remote.decode import decoder, not_understood, reader
from dibs.store.remote.limits import RemoteLimits
from dibs.store.remote.logs import RemoteLogs
from dibs.store.remote.request import HttpCall, get, read_operation
from dibs.store.remote.tasks import RemoteHistory, RemoteTasks
from dibs.store.remote.wakeups import RemoteWakeups
from dibs.store.remote.workflows import RemoteFinalization, RemoteWorkflows
from dibs.wire.admin import Checks

T = TypeVar("T")

_read_checks = reader(Checks)


class RemoteStore:
    """A store behind a server. It connects when it is first used, and again in a forked child."""

    served = True
    caution: str | None = None

    def __init__(self, url: str, api_key: str | None) -> None:
        self.queue = RemoteQueue()
        self.tasks = RemoteTasks()
        self.history = RemoteHistory()
        self.registry = RemoteRegistry()
        self.workflows = RemoteWorkflows()
        self.finalization = RemoteFinalization()
        self.schedules = RemoteSchedules()
        self.keys = RemoteKeys()
        self.statistics = RemoteStatistics()
        self.upkeep = RemoteUpkeep()
        self.retention = RemoteRetention()
        self.limits = RemoteLimits()
        self.logs = RemoteLogs()
        self._address = Address(url, api_key)
        self._opening = threading.Lock()
        self._open: RemoteConnections | None = None
        self._finalize: Callable[[], object] = _nothing

    @property
    def wakeups(self) -> RemoteWakeups:
        """Waits for changes by any process."""
        return self._opened().wakeups

    def run(self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """Run the operation and return its result."""
        _refuse_to_join(on)
        opened = self._opened()

        def send(call: HttpCall) -> bytes | None:
            return opened.send(call, by)

        answer = drive(operation.begin(), send)
        result = operation.result(answer)
        if operation.should_wake(result):
            opened.wakeups.wake()
        return result

    async def run_async(
        self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """`run`, without blocking the event loop."""
        _refuse_to_join(on)
        opened = self._opened()

        async def send(call: HttpCall) -> bytes | None:
            return await opened.send_async(call, by)

        answer = await drive_async(operation.begin(), send)
        result = operation.result(answer)
        if operation.should_wake(result):
            opened.wakeups.wake()
        return result

    def stream_events(self, which: EventFilter, after: int | None) -> Generator[StoreEvent, None, None]:
        """The events after this one (None: from now on), from the stream of the server, until the store is closed."""
        return self._opened().events.stream(which, after)

    def stream_events_async(self, which: EventFilter, after: int | None) -> AsyncGenerator[StoreEvent, None]:
        """`stream_events`, without blocking the event loop."""
        return self._opened().events.stream_async(which, after)

    def migrate(self, note: OnMigration = ignore_migration) -> list[str]:
        """Check that the server is ready. It migrates its database itself."""
        self.run(read_operation("ready", get("/ready"), _read_ready))
        return []

    def maintain(self, *, wait: bool = True) -> None:
        """Do nothing: the server maintains its database."""

    def doctor(self) -> list[Check]:
        """The checks that the server makes of its database."""
        return self.run(read_operation("doctor", get("/api/doctor"), _read_checks))

    def close(self) -> None:
        """Close all connections; the next operation opens them again."""
        with self._opening:
            self._open = None
            self._finalize()

    async def close_async(self) -> None:
        """`close`, without blocking the event loop."""
        if (opened := self._open) is not None:
            await opened.close_async()
        await asyncio.to_thread(self.close)

    def _opened(self) -> RemoteConnections:
        opened = self._open
        if opened is not None and opened.pid == os.getpid():
            return opened
        with self._opening:
            if self._open is None or self._open.pid != os.getpid():
                _abandoned.append(self._open)
                self._open = RemoteConnections(self._address)
                self._finalize = weakref.finalize(self, self._open.close)  # a program need not call close()
            return self._open


def _nothing() -> None:
    """Close a store that has no connections yet."""


def _check_ready(answer: dict[str, Any]) -> None:
    """Raise StoreError for an answer that is not one of a dibs server that is ready."""
    if answer.get("status") != "ready":
        raise not_understood("the status is not 'ready'")


_read_ready = decoder(dict[str, Any], _check_ready)


_abandoned: list[Any] = []
"""Connections that a forked child inherited. They are never closed: that would end the connections of the parent."""


def _refuse_to_join(on: Any) -> None:
    if on is not None:
        raise InvalidValue(
            "A store behind a server cannot join your transaction.",
            hint="Use the URL of the database if a task must be committed together with your rows.",
        )
