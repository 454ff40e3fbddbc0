"""The store behind a server: every operation is a request, or some, over connections that are kept."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from dibs.errors import InvalidValue
from dibs.model.upkeep import Check
from dibs.store.contract import (
    FinalizationOperations,
    HistoryOperations,
    KeyOperations,
    QueueOperations,
    RegistryOperations,
    RetentionOperations,
    ScheduleOperations,
    ServedTasks,
    StatisticsOperations,
    UpkeepOperations,
    WorkflowOperations,
)
from dibs.store.migrate import OnMigration, ignore_migration
from dibs.store.operation import Operation, drive, drive_async
from dibs.store.remote.address import Address
from dibs.store.remote.call import Call, get, looking
from dibs.store.remote.connection import Connections
from dibs.store.remote.decode import decoder, not_understood, reader
from dibs.store.remote.operations import RemoteOperations
from dibs.store.remote.wakeups import RemoteWakeups
from dibs.wire.admin import Checks

T = TypeVar("T")

_read_checks = reader(Checks)


class RemoteStore:
    """Connects when first needed, and anew in a forked child."""

    served = True
    caution: str | None = None

    def __init__(self, url: str, api_key: str | None) -> None:
        operations = RemoteOperations()
        self.queue: QueueOperations = operations
        self.tasks: ServedTasks = operations
        self.history: HistoryOperations = operations
        self.registry: RegistryOperations = operations
        self.workflows: WorkflowOperations = operations
        self.finalization: FinalizationOperations = operations
        self.schedules: ScheduleOperations = operations
        self.keys: KeyOperations = operations
        self.statistics: StatisticsOperations = operations
        self.upkeep: UpkeepOperations = operations
        self.retention: RetentionOperations = operations
        self._address = Address(url, api_key)
        self._opening = threading.Lock()
        self._open: Connections | None = None
        self._finalize: Callable[[], object] = _nothing

    @property
    def wakeups(self) -> RemoteWakeups:
        """Where to wait for changes."""
        return self._opened().wakeups

    def run(self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """Run the operation and return its result."""
        _refuse_to_join(on)
        opened = self._opened()

        def send(call: Call) -> bytes | None:
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

        async def send(call: Call) -> bytes | None:
            return await opened.send_async(call, by)

        answer = await drive_async(operation.begin(), send)
        result = operation.result(answer)
        if operation.should_wake(result):
            opened.wakeups.wake()
        return result

    def migrate(self, note: OnMigration = ignore_migration) -> list[str]:
        """Nothing, once the server has answered: it migrates its database itself."""
        self.run(looking("ready", get("/ready"), _read_ready))
        return []

    def maintain(self) -> None:
        """Nothing: the server keeps the house."""

    def doctor(self) -> list[Check]:
        """What the server finds in its database."""
        return self.run(looking("doctor", get("/api/doctor"), _read_checks))

    def close(self) -> None:
        """Let go of all connections; the next operation opens them again."""
        with self._opening:
            self._open = None
            self._finalize()

    async def close_async(self) -> None:
        """`close`, without blocking the event loop."""
        if (opened := self._open) is not None:
            await opened.close_async()
        await asyncio.to_thread(self.close)

    def _opened(self) -> Connections:
        opened = self._open
        if opened is not None and opened.pid == os.getpid():
            return opened
        with self._opening:
            if self._open is None or self._open.pid != os.getpid():
                _abandoned.append(self._open)
                self._open = Connections(self._address)
                self._finalize = weakref.finalize(self, self._open.close)  # a program need not call close()
            return self._open


def _nothing() -> None:
    """What there is to close before anything was opened."""


def _check_ready(answer: dict[str, Any]) -> None:
    """Only a dibs server answers in these words."""
    if answer.get("status") != "ready":
        raise not_understood("it is not that of a server that is ready")


_read_ready = decoder(dict[str, Any], _check_ready)


_abandoned: list[Any] = []
"""What a forked child inherited: closing it would say goodbye to the server on the parent's sockets."""


def _refuse_to_join(on: Any) -> None:
    if on is not None:
        raise InvalidValue(
            "A store behind a server cannot join your transaction.",
            hint="Use the database's own URL where a task must be committed together with your rows.",
        )
