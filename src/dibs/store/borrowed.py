"""A store without connections of its own: every operation runs on a connection that the program lends.

A framework such as Django has one connection to its database in each thread. A store on that connection takes part in
the transactions of the program, and also works where no other connection could see the data: in a transaction that a
test rolls back, or in an SQLite database in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from dibs.errors import InvalidValue
from dibs.model.upkeep import Check
from dibs.store.contract import Observer
from dibs.store.joining import UserConnection, resolve
from dibs.store.migrate import OnMigration, ignore_migration
from dibs.store.operation import Operation
from dibs.store.operations import SqlOperations, execution
from dibs.store.operations.validation import TypeCache
from dibs.store.wakeups import LocalWakeups

T = TypeVar("T")

Lend = Callable[[], Any]
"""Returns the connection of the calling thread: anything that `app.on` takes."""


class BorrowedEngine(Protocol):
    """What a store on borrowed connections needs of an engine. `driver`: the connection of the driver."""

    many_writers: bool

    def operations(self) -> SqlOperations:
        """The operations of the engine."""

    def run(self, driver: Any, operation: Operation[Any], by: str | None) -> Any:
        """Run the operation in the transaction of the connection. Returns the result of its statements."""

    def wake(self, driver: Any) -> None:
        """Wake the workers in other processes; called after the commit of the user."""

    def missing(self, driver: Any) -> list[str]:
        """The names of the migrations that the database lacks."""

    def migrate(self, driver: Any, note: OnMigration) -> list[str]:
        """Apply the missing migrations, in the open transaction if there is one. Returns their names."""

    def empty(self, driver: Any) -> None:
        """Delete all rows of the tables of dibs, but not its record of migrations."""

    def drop(self, driver: Any) -> None:
        """Remove the tables of dibs with everything in them."""


class BorrowedStore:
    """Runs every operation on the connection that `lend` returns. It never migrates by itself."""

    served = False
    caution: str | None = None

    def __init__(self, engine: BorrowedEngine, lend: Lend) -> None:
        self._engine = engine
        self._lend = lend
        self.many_writers = engine.many_writers
        self._operations = operations = engine.operations()
        self.queue = operations.queue
        self.tasks = operations.tasks
        self.history = operations.history
        self.registry = operations.registry
        self.workflows = operations.workflows
        self.finalization = operations.finalization
        self.schedules = operations.schedules
        self.keys = operations.keys
        self.statistics = operations.statistics
        self.upkeep = operations.upkeep
        self.retention = operations.retention
        self.limits = operations.limits
        self.logs = operations.logs
        self.wakeups = LocalWakeups()

    @property
    def types(self) -> TypeCache:
        """The registered task types: never cached, because a rollback of the program removes them."""
        return TypeCache()

    @property
    def observer(self) -> Observer:
        """Notified of what the store does to tasks."""
        return self._operations.observer.target

    @observer.setter
    def observer(self, observer: Observer) -> None:
        self._operations.observer.target = observer

    def run(self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """Run the operation and return its result; with `on`, on that connection."""
        return execution.run(self, operation, by, on, idle)

    async def run_async(
        self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """`run`: a connection belongs to its thread, so this blocks the event loop."""
        return await execution.run_async(self, operation, by, on, idle)

    def run_once(self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """See SqlEngine."""
        user = self._user(on)
        returned = self._engine.run(user.driver, operation, by)
        if operation.should_wake(returned) and user.after_commit is not None:
            user.after_commit(partial(self._wake, user.driver))
        return operation.result(returned)

    async def run_once_async(
        self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """`run_once`, in this thread."""
        return self.run_once(operation, by, on, idle)

    def missing_migrations(self) -> list[str]:
        """The names of the migrations that the database lacks."""
        return self._engine.missing(self._user().driver)

    def migrate(self, note: OnMigration = ignore_migration) -> list[str]:
        """Apply the missing migrations on the connection; the names of those that were applied."""
        return self._engine.migrate(self._user().driver, note)

    def empty(self) -> None:
        """Delete all rows, for tests that keep the tables."""
        self._engine.empty(self._user().driver)

    def drop(self) -> None:
        """Remove the tables."""
        self._engine.drop(self._user().driver)

    def maintain(self, *, wait: bool = True) -> None:
        """Do nothing: workers maintain the database on connections of their own."""

    def doctor(self) -> list[Check]:
        """Refuse: the checks need connections of their own."""
        raise InvalidValue("A store on a borrowed connection has no doctor.", hint="Open the store by its URL.")

    def close(self) -> None:
        """Wake the waiters. The connection belongs to the program."""
        self.wakeups.close()
        self.wakeups = LocalWakeups()

    async def close_async(self) -> None:
        """See Store."""
        self.close()

    def _user(self, on: Any = None) -> UserConnection:
        return resolve(self._lend() if on is None else on)

    def _wake(self, driver: Any) -> None:
        self.wakeups.wake()
        self._engine.wake(driver)
