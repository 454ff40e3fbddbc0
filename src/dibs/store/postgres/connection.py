"""Connections to PostgreSQL: how a statement runs on one, and what its errors mean."""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack, ExitStack
from typing import Any, LiteralString, TypeVar

import msgspec
import psycopg
import psycopg_pool
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row

from dibs.errors import DibsError, OutcomeUnknown, SchemaMissing, StoreBusy, StoreError, StoreRefused, StoreUnavailable
from dibs.store.operation import Keep, Mark, Rows, Statement, Step, Undo
from dibs.store.sqlfiles import SqlFiles

SQL = SqlFiles("dibs.store.postgres")

POOL = 10
POOL_TIMEOUT = 30.0

NOTICES_DEATH: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How libpq notices that the other end is gone: within half a minute, idle (keepalives) or writing (tcp_user_timeout).
Without these a worker would wait for hours on a server whose machine lost its power, its leases long run out."""

NOTICED_THERE = {
    "idle_in_transaction_session_timeout": "10s",
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
}
"""How the server notices that we are gone, or frozen. It would keep the transaction of a client that lost its power
between two statements for two hours: with its locks, which hide its tasks from every recovery."""

NOT_EXECUTED = (
    errors.IdleInTransactionSessionTimeout,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    psycopg_pool.PoolClosed,
)
"""Errors after which the statement certainly changed nothing, so that it may simply be run again."""


def watchful(url: str) -> str:
    """How to connect to the URL and notice a dead peer; what the URL says itself holds."""
    said = conninfo_to_dict(url)
    return make_conninfo(url, **{name: value for name, value in NOTICES_DEATH.items() if name not in said})


def prepare_unless_pooled(connection: psycopg.Connection[Any]) -> None:
    """Make the session ours, unless each transaction may run in another one. Behind a pooler the name of a statement
    that we prepared may be the name of somebody else's, which would be run in its place."""
    if not _is_ours(connection.execute(SETTLE, _as_noticed_there(connection)).fetchone()):
        connection.prepare_threshold = None


async def prepare_unless_pooled_async(connection: psycopg.AsyncConnection[Any]) -> None:
    """`prepare_unless_pooled`, awaited."""
    settled = await connection.execute(SETTLE, _as_noticed_there(connection))
    if not _is_ours(await settled.fetchone()):
        connection.prepare_threshold = None


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """True where somebody stands between us and the server, and hands our transactions to its own sessions. It cannot
    know which process will serve us, so it makes the number up that it tells us when we connect."""
    row = connection.execute("SELECT pg_backend_pid() = %s::bigint", [connection.info.backend_pid]).fetchone()
    return not _is_ours(row)


SETTLE = """
    SELECT count(set_config(name, value, false)) > 0
    FROM unnest(%(names)s::text[], %(values)s::text[]) AS noticed (name, value)
    WHERE pg_backend_pid() = %(told)s::bigint
      AND (name <> 'idle_in_transaction_session_timeout' OR current_setting(name) = '0')"""


def _as_noticed_there(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> dict[str, Any]:
    names, values = list(NOTICED_THERE), list(NOTICED_THERE.values())
    return {"names": names, "values": values, "told": connection.info.backend_pid}


def _is_ours(row: Any) -> bool:
    return bool(row[0])


Pool = TypeVar("Pool", bound=psycopg_pool.ConnectionPool[Any] | psycopg_pool.AsyncConnectionPool[Any])


def newest_first(pool: Pool) -> Pool:
    """The pool, which from now on lends the connection that came back last. By itself it lends them in turn: each then
    has its own plans to make, ten times for each statement until PostgreSQL settles on one, and anew ever so often."""
    pool._pool = _Stack()  # one attribute of its insides; a test tells if that is no longer so
    return pool


class _Stack(deque[Any]):
    popleft = deque.pop


class Executor:
    """Runs statements on a connection, on behalf of one caller; `now` is None for the database's own clock. `ends`:
    where to leave what must be done at the end of the operation."""

    def __init__(self, connection: psycopg.Connection[Any], ends: ExitStack, now: int | None, by: str | None) -> None:
        self._connection = connection
        self._ends = ends
        self._together = False
        self._signature = {"now": now, "by": by}

    def begin(self) -> None:
        """From here on the statements are one transaction, until `ends` closes."""
        if not self._together:
            self._ends.enter_context(self._connection.transaction())
            self._together = True

    def __call__(self, statement: Step) -> Rows:
        """The rows of the statement."""
        if not isinstance(statement, Statement):
            return self._control(statement)
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            try:
                cursor.execute(SQL.text(statement.name, statement.words), bind(statement, self._signature))
            except UNENCODABLE as error:
                raise unencodable(error) from error
            return cursor.fetchall() if _has_rows(cursor) else []

    def _control(self, step: Step) -> Rows:
        """A step that is no statement."""
        self.begin()
        refused = [(as_refusal(step.error),)] if isinstance(step, Undo) else []
        for sql in SAVEPOINTS.get(type(step), ()):
            self._connection.execute(sql)
        return refused


SAVEPOINTS: dict[type, tuple[LiteralString, ...]] = {
    Mark: ("SAVEPOINT item",),
    Keep: ("RELEASE SAVEPOINT item",),
    Undo: ("ROLLBACK TO SAVEPOINT item", "RELEASE SAVEPOINT item"),
}


class AsyncExecutor:
    """`Executor`, awaited."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], ends: AsyncExitStack, now: int | None, by: str | None
    ) -> None:
        self._connection = connection
        self._ends = ends
        self._together = False
        self._signature = {"now": now, "by": by}

    async def begin(self) -> None:
        """From here on the statements are one transaction, until `ends` closes."""
        if not self._together:
            await self._ends.enter_async_context(self._connection.transaction())
            self._together = True

    async def __call__(self, statement: Step) -> Rows:
        """The rows of the statement."""
        if not isinstance(statement, Statement):
            return await self._control(statement)
        async with self._connection.cursor(row_factory=tuple_row) as cursor:
            try:
                await cursor.execute(SQL.text(statement.name, statement.words), bind(statement, self._signature))
            except UNENCODABLE as error:
                raise unencodable(error) from error
            return await cursor.fetchall() if _has_rows(cursor) else []

    async def _control(self, step: Step) -> Rows:
        """A step that is no statement."""
        await self.begin()
        refused = [(as_refusal(step.error),)] if isinstance(step, Undo) else []
        for sql in SAVEPOINTS.get(type(step), ()):
            await self._connection.execute(sql)
        return refused


def _has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    # Asking `cursor.description` would make an object for every column, 25 µs a statement.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def bind(statement: Statement, signature: dict[str, Any]) -> dict[str, Any]:
    """The statement's parameters; many rows become one JSON text, `said`. psycopg would write arrays element by element
    in Python, ten times as slowly."""
    if statement.rows is None:
        return {**statement.params, **signature}
    return {**statement.params, "said": msgspec.json.encode(statement.rows).decode(), **signature}


UNENCODABLE = (UnicodeError, OverflowError)
"""Errors that Python raises for a value before the database sees the value."""


def unencodable(error: Exception) -> StoreRefused:
    """The refusal of a value that cannot even be sent to the database."""
    return StoreRefused(f"PostgreSQL cannot be sent the value: {error}.")


def as_refusal(error: Exception) -> DibsError:
    """The error as a refusal of what was written. Raises an error that is about the connection, a lock or the
    program."""
    refusal = translate(error, writing=True) if isinstance(error, psycopg.Error) else error
    if isinstance(refusal, StoreError) and not isinstance(refusal, StoreRefused):
        raise error
    if not isinstance(refusal, DibsError):
        raise error
    return refusal


def translate(error: psycopg.Error, *, writing: bool) -> DibsError:
    """What an error of PostgreSQL means to a user of dibs."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, psycopg_pool.PoolTimeout):
        return StoreUnavailable(f"No connection to PostgreSQL within {POOL_TIMEOUT:.0f} seconds ({text}).")
    if isinstance(error, errors.UndefinedTable):
        hint = "Call migrate() once; a connection that you hand in must be to the same database as the URL."
        return SchemaMissing(f"This database has no dibs tables ({text}).", hint=hint)
    if isinstance(error, (errors.LockNotAvailable, errors.QueryCanceled)):
        return StoreBusy(f"PostgreSQL gave up waiting ({text}).")
    if isinstance(error, NOT_EXECUTED):
        return StoreUnavailable(f"PostgreSQL could not do it now ({text}).")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreError(f"PostgreSQL is read-only ({text}).", hint="Use the primary, not a replica.")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(f"PostgreSQL refused it ({text}).", hint="Grant this user access to the dibs_ tables.")
    if isinstance(error, psycopg.OperationalError) and not isinstance(error, errors.ProgramLimitExceeded):
        if writing:
            return OutcomeUnknown(f"The connection to PostgreSQL broke during a write ({text}).")
        return StoreUnavailable(f"The connection to PostgreSQL failed ({text}).")
    return StoreRefused(f"PostgreSQL refused the {'write' if writing else 'query'}: {text}")
