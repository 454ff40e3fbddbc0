"""A store in a schema of its own, on one PostgreSQL connection, for tests of code that joins tasks to its own
transaction.

The schema is first in the search path of the connection, so the names of dibs lead there and those of the program lead
where they led before. No other connection sees it.
"""

from __future__ import annotations

import secrets
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from dibs.errors import InvalidValue
from dibs.model.upkeep import Check
from dibs.store.contract import Observer, StoreClock
from dibs.store.joining import resolve, resolve_async
from dibs.store.migrate import OnMigration, ignore_migration
from dibs.store.operation import Operation
from dibs.store.operations import SqlOperations, execution
from dibs.store.operations.validation import TypeCache
from dibs.store.postgres.connection import translate
from dibs.store.postgres.dialect import PostgresDialect
from dibs.store.postgres.joined import begins_by_itself, run_on
from dibs.store.postgres.migrations import apply
from dibs.store.wakeups import LocalWakeups

T = TypeVar("T")
Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


def is_connection(given: Any) -> bool:
    """True for a connection that IsolatedPostgresStore can use."""
    return isinstance(given, (psycopg.Connection, psycopg.AsyncConnection))


class IsolatedPostgresStore:
    """Runs every operation on the connection. A missing schema is created, also after a rollback that removed it.

    The connection of an event loop is used by blocking calls: a test waits for each of them anyway.
    """

    served = False
    many_writers = False
    caution: str | None = None

    def __init__(self, connection: Connection, clock: StoreClock) -> None:
        self._operations = operations = SqlOperations(PostgresDialect(many_writers=False, measured=False), TypeCache())
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
        self._given = connection
        self._clock = clock
        self._schema = f"dibs_isolated_{secrets.token_hex(6)}"
        self._path: str | None = None  # the search path before

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
    def isolated_on(self) -> Connection:
        """The connection that the store uses. It must stay open until `drop`."""
        return self._given

    @property
    def in_transaction(self) -> bool:
        """True while the connection has something to commit."""
        return self._given.info.transaction_status != TransactionStatus.IDLE

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
        _check_same(on, self._given)
        if isinstance(self._given, psycopg.AsyncConnection) and self._given.lock.locked():
            raise InvalidValue("Another coroutine is using the connection.", hint="Await it first.")
        return self._run(operation, by, on)

    async def run_once_async(
        self, operation: Operation[T], by: str | None = None, on: Any = None, idle: bool = False
    ) -> T:
        """`run_once`, when no other coroutine is using the connection."""
        _check_same(None if on is None else (await resolve_async(on)).driver, self._given)
        if isinstance(self._given, psycopg.AsyncConnection):
            async with self._given.lock:
                return self._run(operation, by, on)
        return self._run(operation, by, on)

    def _run(self, operation: Operation[T], by: str | None, on: Any) -> T:
        joined = self.in_transaction or on is not None
        with _Blocking(self._given) as connection:
            try:
                self._create_if_missing(connection)
                if begins_by_itself(connection, operation):
                    connection.execute("SELECT 1")
                result = operation.result(run_on(connection, operation, by, self._clock()))
            except psycopg.Error as error:
                raise translate(error, writing=operation.writes) from error
            finally:
                if not joined and self.in_transaction:
                    connection.commit()
        if operation.should_wake(result):
            self.wakeups.wake()
        return result

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
        """Begin a transaction, as the first statement of a connection without autocommit does."""
        with _Blocking(self._given) as connection:
            connection.execute("SELECT 1")

    def roll_back(self) -> None:
        """End the connection's transaction, if there is one."""
        with _Blocking(self._given) as connection:
            connection.rollback()

    def drop(self) -> None:
        """Remove the schema, and restore the search path of the connection."""
        idle = not self.in_transaction
        with _Blocking(self._given) as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self._schema)))
            if self._path is not None:
                connection.execute("SELECT set_config('search_path', %s, false)", [self._path])
            if idle and self.in_transaction:
                connection.commit()
        self.wakeups.close()

    def _create_if_missing(self, connection: psycopg.Connection[Any]) -> None:
        idle = not self.in_transaction
        row = connection.execute("SELECT current_schema(), current_setting('search_path')").fetchone()
        assert row is not None
        if row[0] != self._schema:
            self._path = row[1]
            self._create(connection, row[1])
        if idle and self.in_transaction:  # a rollback of later statements must not remove the tables
            connection.commit()

    def _create(self, connection: psycopg.Connection[Any], path: str) -> None:
        schema = sql.Identifier(self._schema)
        with connection.transaction():
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            connection.execute("SELECT set_config('search_path', %s, false)", [f"{self._schema}, {path}"])
            apply(connection, ignore_migration)


class _Blocking:
    """A connection for blocking calls: the connection itself, or for an async connection another one on its socket."""

    def __init__(self, given: Connection) -> None:
        self._given = given
        self._made: psycopg.Connection[Any] | None = None

    def __enter__(self) -> psycopg.Connection[Any]:
        if isinstance(self._given, psycopg.Connection):
            return self._given
        pgconn = self._given.pgconn
        self._handlers = pgconn.notice_handler, pgconn.notify_handler
        self._made = made = psycopg.Connection(pgconn)
        made.prepare_threshold = None  # the async connection owns the names of prepared statements
        made._autocommit = self._given.autocommit
        return made

    def __exit__(self, *_: object) -> None:
        if self._made is not None:
            pgconn = self._made.pgconn
            pgconn.notice_handler, pgconn.notify_handler = self._handlers
            del self._made.pgconn  # otherwise psycopg warns that it was not closed


def _check_same(on: Any, connection: Connection) -> None:
    if on is not None and on is not connection and resolve(on).driver is not connection:
        raise InvalidValue(
            "Inside isolated(app, on=connection) every operation uses that connection; this is another connection.",
            hint="Hand the same connection to app.on() and to isolated().",
        )
