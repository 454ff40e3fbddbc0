"""A store in temporary tables of one SQLite connection, for tests of code that joins tasks to its own transaction.

A temporary table hides the table of the same name in the file, for this connection alone. It takes part in the
connection's transactions and disappears with the connection, so no task of a test can reach the file.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from typing import Any, TypeVar

from dibs.errors import InvalidValue
from dibs.model.upkeep import Check
from dibs.store.contract import Observer, StoreClock
from dibs.store.joining import resolve
from dibs.store.migrate import OnMigration, ignore_migration
from dibs.store.operation import Operation
from dibs.store.operations import SqlOperations, execution
from dibs.store.operations.validation import TypeCache
from dibs.store.sqlite.connection import run_joined, translate
from dibs.store.sqlite.dialect import SqliteDialect
from dibs.store.sqlite.migrations import KNOWN
from dibs.store.wakeups import LocalWakeups

T = TypeVar("T")

_CREATE_TABLE = re.compile(r"^CREATE TABLE\b")


class IsolatedSqliteStore:
    """Runs every operation on the connection. Missing tables are created, also after a rollback that removed them."""

    served = False
    many_writers = False
    caution: str | None = None

    def __init__(self, connection: sqlite3.Connection, clock: StoreClock) -> None:
        self._operations = operations = SqlOperations(SqliteDialect(), TypeCache())
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
        self._connection = connection
        self._clock = clock
        self._lock = threading.RLock()  # handlers may run in another thread

    @property
    def types(self) -> TypeCache:
        """The registered task types: never cached, because a rollback removes them."""
        return TypeCache()

    @property
    def observer(self) -> Observer:
        """Notified of what the store does to tasks."""
        return self._operations.observer.target

    @observer.setter
    def observer(self, observer: Observer) -> None:
        self._operations.observer.target = observer

    @property
    def isolated_on(self) -> sqlite3.Connection:
        """The connection that the store uses. It must stay open until `drop`."""
        return self._connection

    @property
    def in_transaction(self) -> bool:
        """True while the connection has a transaction that the program began."""
        return self._connection.in_transaction and not self._always_in_one

    @property
    def _always_in_one(self) -> bool:
        """True for `autocommit=False` (Python 3.12), where each transaction is followed by the next at once."""
        return getattr(self._connection, "autocommit", None) is False

    def run(self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """Run the operation and return its result; with `on`, inside that connection's transaction."""
        return execution.run(self, operation, by, on, idle)

    async def run_async(
        self, operation: Operation[T], *, by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """`run`, without blocking the event loop."""
        return await execution.run_async(self, operation, by, on, idle)

    def run_once(self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False) -> T:
        """See SqlEngine. With `on`, the operation joins the transaction, which the program commits."""
        _check_same(on, self._connection)
        with self._lock:
            joined = self._connection.in_transaction or on is not None
            try:
                self._create_if_missing()
                result = operation.result(run_joined(operation, by, self._connection, self._clock))
            finally:
                if not joined and self._connection.in_transaction:
                    self._connection.execute("COMMIT")
        if operation.should_wake(result):
            self.wakeups.wake()
        return result

    async def run_once_async(
        self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """`run_once`: a sqlite3 connection belongs to its thread."""
        return self.run_once(operation, by, on)

    def migrate(self, note: OnMigration = ignore_migration) -> list[str]:
        """Do nothing: the tables always have the schema of this version."""
        return []

    def maintain(self, *, wait: bool = True) -> None:
        """Do nothing: the tables are short-lived."""

    def doctor(self) -> list[Check]:
        """No checks."""
        return []

    def close(self) -> None:
        """Wake the waiters. The tables stay until `drop`: a client may be closed and used again."""
        self.wakeups.close()
        self.wakeups = LocalWakeups()

    async def close_async(self) -> None:
        """See Store."""
        self.close()

    def begin(self) -> None:
        """Begin a transaction."""
        self._connection.execute("BEGIN")

    def roll_back(self) -> None:
        """End the connection's transaction, if there is one."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def drop(self) -> None:
        """Remove the tables: the connection sees the tables of the file again."""
        with self._lock:
            if self._always_in_one:  # a later rollback would bring the tables back
                self._connection.rollback()
            for (name,) in self._connection.execute(
                "SELECT name FROM sqlite_temp_master WHERE type = 'table' AND name LIKE 'dibs\\_%' ESCAPE '\\'"
            ).fetchall():
                self._connection.execute(f'DROP TABLE temp."{name}"')
            if self._always_in_one:
                self._connection.commit()
        self.wakeups.close()

    def _create_if_missing(self) -> None:
        found = self._connection.execute("SELECT 1 FROM sqlite_temp_master WHERE name = 'dibs_tasks'").fetchone()
        if found is None:
            try:
                self._create()
            except sqlite3.Error as error:
                raise translate(error) from error

    def _create(self) -> None:
        begun = not self._connection.in_transaction
        if begun:
            self._connection.execute("BEGIN")
        for migration in KNOWN:
            for statement in migration.statements():
                self._connection.execute(_CREATE_TABLE.sub("CREATE TEMP TABLE", statement))
        if begun:  # a rollback of later statements must not remove the tables
            self._connection.execute("COMMIT")


def _check_same(on: Any, connection: sqlite3.Connection) -> None:
    if on is not None and on is not connection and resolve(on).driver is not connection:
        raise InvalidValue(
            "Inside isolated(app, on=connection) every operation uses that connection; this is another connection.",
            hint="Hand the same connection to app.on() and to isolated().",
        )
