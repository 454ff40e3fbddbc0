"""Connections to PostgreSQL: their settings, how statements run on them, and what their errors mean.

Three decisions here protect tasks. The timeouts of both sides bound how long a dead peer is waited for, and how long
the locks of a dead client stay. Behind a pooler, which may run each transaction in another session, dibs neither
prepares statements nor changes settings of the session. `NOT_EXECUTED` and `translate` decide whether a failed write
may be run again: an error after which the write may have been committed must become OutcomeUnknown, and must not be in
NOT_EXECUTED. Every connection of dibs is opened with `connection_string`; a test checks that.

`sessions.py` has the isolation level, `replies.py` the time for a reply, `store.py` the pools.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import AsyncExitStack, ExitStack
from functools import cache
from typing import Any, LiteralString, TypeVar

import msgspec
import psycopg
import psycopg_pool
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo
from psycopg.rows import tuple_row

from dibs.errors import (
    DibsError,
    InvalidValue,
    OutcomeUnknown,
    SchemaMissing,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from dibs.redaction import MASK, redact_url
from dibs.store.operation import Instruction, ReleaseSavepoint, RollBackToSavepoint, Rows, SetSavepoint, Statement
from dibs.store.postgres.replies import AnySession, AsyncSession, Session, lock_timeout_of, without_reply_timeout
from dibs.store.postgres.sessions import BEGIN_AT_LEVEL, LEVEL, begins_for_user
from dibs.store.sql import SqlFiles, Words, to_numbered

SQL = SqlFiles("dibs.store.postgres", "pyformat")
NAMED = SqlFiles("dibs.store.postgres")
"""The statements with parameters as `:name`."""

POOL = 10
"""The largest number of connections in a pool."""

POOL_TIMEOUT = 30.0
"""Seconds to wait for a connection of the pool."""

CLIENT_TIMEOUTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How libpq notices a dead server: within half a minute, idle (keepalives) or writing (tcp_user_timeout). Without these
settings a worker would wait for hours for a server that lost its power, long after its leases have expired."""

SERVER_TIMEOUTS = {
    "idle_in_transaction_session_timeout": "10s",
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
}
"""How the server notices a dead or frozen client. Otherwise it would keep the transaction of a client that lost its
power between two statements for two hours, with its locks, which hide the locked tasks from recovery."""

NOT_EXECUTED = (
    errors.IdleInTransactionSessionTimeout,
    errors.IdleSessionTimeout,  # the server ends a session only while it waits for a statement, never during one
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    psycopg_pool.PoolClosed,
)
"""Errors after which the statement certainly changed nothing, so that it may be run again."""


def connection_string(url: str) -> str:
    """Return the connection string of libpq for the URL, with CLIENT_TIMEOUTS; a timeout in the URL takes precedence.

    The client encoding is always UTF-8. With another encoding from the URL, from the environment (PGCLIENTENCODING) or
    from the defaults of the database, dibs would read bytes instead of text, or fail to send some texts.
    """
    url = without_reply_timeout(url)
    options = _parse(url)
    added = {name: value for name, value in CLIENT_TIMEOUTS.items() if name not in options}
    return make_conninfo(url, **added, client_encoding="UTF8")


def _parse(url: str) -> dict[str, Any]:
    """Return the options of the URL. InvalidValue if libpq cannot read the URL."""
    try:
        options = conninfo_to_dict(url)
        if all(port.isdecimal() or not port for port in str(options.get("port", "")).split(",")):
            return options
        reason = "the port is not a number"
    except psycopg.ProgrammingError as error:
        reason = str(error)
    raise _invalid_url(url, reason)  # not in the block above: the exception would carry the message of libpq


def _invalid_url(url: str, reason: str) -> InvalidValue:
    """Return the error for a URL that libpq cannot read. The message of libpq quotes parts of the URL, which may be
    parts of the password: all quoted texts are masked, except for names of options."""
    options = {option.keyword.decode() for option in Conninfo.get_defaults()}
    options |= set(re.findall(r"[?&]([A-Za-z_]+)=", url))

    def mask(found: re.Match[str]) -> str:
        return found[0] if found[1] in options else f'"{MASK}"'

    shown = re.sub(r'"([^"]*)"', mask, " ".join(reason.split()))
    hint = "Percent-encode special characters in user and password: %40 for @, %2F for /, %25 for %."
    return InvalidValue(f"The URL {redact_url(url)!r} is not valid: {shown}.", hint=hint)


def configure_session(connection: Session) -> None:
    """Set the settings of a new session, unless there is a pooler, which may run each transaction in another session.

    Behind a pooler no statement is prepared: another client may have prepared another statement under the same name.
    """
    row = connection.execute(CONFIGURE, _session_settings(connection)).fetchone()
    if not _is_own_session(row):
        connection.prepare_threshold = None
        if _has_other_isolation(row):
            connection.name_level()


async def configure_session_async(connection: AsyncSession) -> None:
    """`configure_session`, awaited."""
    row = await (await connection.execute(CONFIGURE, _session_settings(connection))).fetchone()
    if not _is_own_session(row):
        connection.prepare_threshold = None
        if _has_other_isolation(row):
            await connection.name_level()


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Return True behind a pooler, which runs transactions in sessions of its own. A pooler cannot know which process
    of the server will run a transaction, so it invents the process id that it reports when a client connects."""
    row = connection.execute("SELECT pg_backend_pid() = %s::bigint", [connection.info.backend_pid]).fetchone()
    return not _is_own_session(row)


CONFIGURE = """
    SELECT count(set_config(name, value, false)) > 0, current_setting('default_transaction_isolation')
    FROM unnest(%(names)s::text[], %(values)s::text[]) AS setting (name, value)
    WHERE pg_backend_pid() = %(reported)s::bigint
      AND (name NOT IN ('idle_in_transaction_session_timeout', 'lock_timeout') OR current_setting(name) = '0')"""


def _session_settings(connection: AnySession) -> dict[str, Any]:
    """Return the parameters of CONFIGURE. `reported`: the process id that the server, or a pooler, reported."""
    settings = {
        **SERVER_TIMEOUTS,
        "default_transaction_isolation": LEVEL,
        "lock_timeout": lock_timeout_of(connection),
    }
    return {"names": list(settings), "values": list(settings.values()), "reported": connection.info.backend_pid}


def _is_own_session(row: Any) -> bool:
    return bool(row[0])


def _has_other_isolation(row: Any) -> bool:
    return bool(row[1] != LEVEL)


Pool = TypeVar("Pool", bound=psycopg_pool.ConnectionPool[Any] | psycopg_pool.AsyncConnectionPool[Any])


def lend_last_returned(pool: Pool) -> Pool:
    """Let the pool lend the connection that was returned last. By default a pool lends its connections in turn: then
    every connection plans every statement, about ten times until PostgreSQL keeps a plan, and again from time to
    time."""
    pool._pool = _Stack()  # a private attribute; a test fails if psycopg changes it
    return pool


class _Stack(deque[Any]):
    popleft = deque.pop


class PostgresExecutor:
    """Runs the statements of one operation on a connection.

    `now`: the time in microseconds, None for the clock of the database. `by`: the author in the history. `ends`: the
    context of the operation; a transaction ends when `ends` closes.
    """

    def __init__(self, connection: psycopg.Connection[Any], ends: ExitStack, now: int | None, by: str | None) -> None:
        self._connection = connection
        self._ends = ends
        self._in_transaction = False
        self._names_level = getattr(connection, "names_level", False)
        self._common_params = {"now": now, "by": by}

    def begin(self) -> None:
        """Begin a transaction for the following statements. It ends when `ends` closes."""
        if not self._in_transaction:
            for_user = begins_for_user(self._connection)
            self._ends.enter_context(self._connection.transaction())
            self._in_transaction = True
            if for_user:
                self._connection.execute(BEGIN_AT_LEVEL)

    def __call__(self, statement: Instruction) -> Rows:
        """Run the statement and return its rows."""
        if not isinstance(statement, Statement):
            return self._control(statement)
        if self._names_level and not self._in_transaction:
            with self._connection.transaction():
                return self._execute(statement)
        return self._execute(statement)

    def _execute(self, statement: Statement) -> Rows:
        with psycopg.RawCursor(self._connection, row_factory=tuple_row) as cursor:
            try:
                cursor.execute(*raw_query(statement, self._common_params))
            except UNENCODABLE as error:
                raise unencodable(error) from error
            return cursor.fetchall() if _has_rows(cursor) else []

    def _control(self, step: Instruction) -> Rows:
        """Run an instruction that is not a statement."""
        self.begin()
        refused = [(as_refusal(step.error),)] if isinstance(step, RollBackToSavepoint) else []
        for sql in SAVEPOINTS.get(type(step), ()):
            self._connection.execute(sql)
        return refused


SAVEPOINTS: dict[type, tuple[LiteralString, ...]] = {
    SetSavepoint: ("SAVEPOINT item",),
    ReleaseSavepoint: ("RELEASE SAVEPOINT item",),
    RollBackToSavepoint: ("ROLLBACK TO SAVEPOINT item", "RELEASE SAVEPOINT item"),
}


class AsyncPostgresExecutor:
    """`PostgresExecutor`, awaited."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], ends: AsyncExitStack, now: int | None, by: str | None
    ) -> None:
        self._connection = connection
        self._ends = ends
        self._in_transaction = False
        self._names_level = getattr(connection, "names_level", False)
        self._common_params = {"now": now, "by": by}

    async def begin(self) -> None:
        """Begin a transaction for the following statements. It ends when `ends` closes."""
        if not self._in_transaction:
            for_user = begins_for_user(self._connection)
            await self._ends.enter_async_context(self._connection.transaction())
            self._in_transaction = True
            if for_user:
                await self._connection.execute(BEGIN_AT_LEVEL)

    async def __call__(self, statement: Instruction) -> Rows:
        """Run the statement and return its rows."""
        if not isinstance(statement, Statement):
            return await self._control(statement)
        if self._names_level and not self._in_transaction:
            async with self._connection.transaction():
                return await self._execute(statement)
        return await self._execute(statement)

    async def _execute(self, statement: Statement) -> Rows:
        async with psycopg.AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            try:
                await cursor.execute(*raw_query(statement, self._common_params))
            except UNENCODABLE as error:
                raise unencodable(error) from error
            return await cursor.fetchall() if _has_rows(cursor) else []

    async def _control(self, step: Instruction) -> Rows:
        """Run an instruction that is not a statement."""
        await self.begin()
        refused = [(as_refusal(step.error),)] if isinstance(step, RollBackToSavepoint) else []
        for sql in SAVEPOINTS.get(type(step), ()):
            await self._connection.execute(sql)
        return refused


def _has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    # `cursor.description` would make an object for every column, 25 µs a statement.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def raw_query(statement: Statement, common_params: dict[str, Any]) -> tuple[bytes, list[Any]]:
    """Return the text with `$1`, `$2` for a raw cursor, and the parameters in their order.

    Another cursor would search the text for placeholders. psycopg remembers what it found only for texts of up to 4,096
    bytes, and a claim is longer: 60 µs a claim."""
    text, names = _numbered(statement.name, statement.words)
    params = bind(statement, common_params)
    return text, [params[name] for name in names]


@cache
def _numbered(name: str, words: Words) -> tuple[bytes, tuple[str, ...]]:
    text, names = to_numbered(NAMED.text(name, words), {})
    return text.encode(), names


def bind(statement: Statement, common_params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the statement. Many rows become one JSON text, `items`: psycopg would write arrays
    element by element in Python, ten times as slowly."""
    if statement.rows is None:
        return {**statement.params, **common_params}
    return {**statement.params, "items": msgspec.json.encode(statement.rows).decode(), **common_params}


READ_ONLY = (
    "Nothing was written. Connect to the primary: name every node in the URL, with target_session_attrs=read-write, and"
    " check default_transaction_read_only."
)


def translate_joined(error: psycopg.Error, *, writing: bool) -> DibsError:
    """Return the error of dibs for an error on a connection of the user. On such a connection dibs can neither repeat
    the call nor replace the connection."""
    translated = translate(error, writing=writing)
    if isinstance(error, errors.ReadOnlySqlTransaction):
        translated.hint = (
            "Nothing was written. The connection that you handed in is read-only: its transaction was begun so, or its"
            " server is no longer the primary. Close it, connect to the primary, and repeat your transaction."
        )
    return translated


UNENCODABLE = (UnicodeError, OverflowError)
"""Errors that Python raises for a value before the database sees the value."""


def unencodable(error: Exception) -> StoreRefused:
    """Return the error for a value that cannot be sent to the database."""
    return StoreRefused(f"PostgreSQL cannot be sent the value: {error}.")


def as_refusal(error: Exception) -> DibsError:
    """Return the error, if it refuses the written data; raise it again if it is about the connection, a lock or a
    defect of the program."""
    refusal = translate(error, writing=True) if isinstance(error, psycopg.Error) else error
    if isinstance(refusal, StoreError) and not isinstance(refusal, StoreRefused):
        raise error
    if not isinstance(refusal, DibsError):
        raise error
    return refusal


def translate(error: psycopg.Error, *, writing: bool) -> DibsError:
    """Return the error of dibs for an error of PostgreSQL. `writing`: the operation writes, so after a lost connection
    its outcome is unknown."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, psycopg_pool.PoolTimeout):
        return StoreUnavailable(f"No connection to PostgreSQL within {POOL_TIMEOUT:.0f} seconds ({text}).")
    if isinstance(error, errors.UndefinedTable):
        hint = "Call migrate() once; a connection that you hand in must be to the same database as the URL."
        return SchemaMissing(f"This database has no dibs tables ({text}).", hint=hint)
    if isinstance(error, (errors.LockNotAvailable, errors.QueryCanceled)):
        return StoreBusy(f"PostgreSQL gave up waiting ({text}).")
    if isinstance(error, NOT_EXECUTED):
        return StoreUnavailable(f"PostgreSQL could not run it now ({text}).")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailable(f"PostgreSQL is read-only ({text}).", hint=READ_ONLY)
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(f"PostgreSQL refused it ({text}).", hint="Grant this user access to the dibs_ tables.")
    lost = (psycopg.OperationalError, errors.TransactionTimeout)
    if isinstance(error, lost) and not isinstance(error, errors.ProgramLimitExceeded):
        if writing:
            return OutcomeUnknown(f"The connection to PostgreSQL broke during a write ({text}).")
        return StoreUnavailable(f"The connection to PostgreSQL failed ({text}).")
    return StoreRefused(f"PostgreSQL refused the {'write' if writing else 'query'}: {text}")
