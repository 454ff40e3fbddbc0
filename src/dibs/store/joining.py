"""What `app.on` takes, and the connection of the driver under it.

An object of the user (a cursor, a session of SQLAlchemy, an alias of Django) leads to one connection of a driver, on
which a store runs its statements. No library is imported here: an object of a library that the program has not imported
cannot exist.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from dibs.errors import InvalidValue

Wake = Callable[[], object]

KINDS = (
    "a connection or cursor of sqlite3, psycopg or psycopg2; a connection of aiosqlite or asyncpg; a Connection, "
    "Session, AsyncConnection or AsyncSession of SQLAlchemy; a connection of Django, or its alias"
)


class UserConnection(NamedTuple):
    """A connection that the user handed in.

    `driver`: the connection of sqlite3, aiosqlite, psycopg, psycopg2 or asyncpg. `after_commit`: has a function called
    after the commit of the user; None if the library reports no commits.
    """

    driver: Any
    after_commit: Callable[[Wake], object] | None = None


def resolve(given: Any) -> UserConnection:
    """The connection of the driver under the object. Begins a transaction of SQLAlchemy, as any statement does.

    An object of an unknown kind is returned as it is, for the store to refuse."""
    given = _unwrapped(given)
    if is_a(given, "sqlalchemy.orm", "Session"):
        connection = _begun(given.connection())
        return UserConnection(connection.connection.driver_connection, partial(_after_session, given))
    if is_a(given, "sqlalchemy.engine", "Connection"):
        connection = _begun(given)
        return UserConnection(connection.connection.driver_connection, partial(_at_checkin, connection))
    if _is_django(given):
        given.ensure_connection()
        given.validate_no_broken_transaction()  # Django would roll the statements back at the end without an error
        reports = given.in_atomic_block or given.get_autocommit()
        return UserConnection(given.connection, partial(given.on_commit, robust=True) if reports else None)
    return UserConnection(given)


def resolve_fixed(given: Any) -> Any:
    """The connection of the driver under the object, which stays the same from transaction to transaction."""
    given = _unwrapped(given)
    if is_a(given, "sqlalchemy.orm", "Session") and not is_a(given.get_bind(), "sqlalchemy.engine", "Connection"):
        raise InvalidValue(
            "The session of SQLAlchemy takes a connection from its engine for each transaction.",
            hint="Bind the session of the test to one connection: Session(bind=engine.connect()).",
        )
    return resolve(given).driver


async def resolve_async(given: Any) -> UserConnection:
    """`resolve`, awaited, which also takes the async objects of SQLAlchemy."""
    given = _unwrapped(given)
    if is_a(given, "sqlalchemy.ext.asyncio", "AsyncSession"):
        connection = await given.connection()
        return UserConnection(await _begun_async(connection), partial(_after_session, given.sync_session))
    if is_a(given, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        return UserConnection(await _begun_async(given), partial(_at_checkin, given.sync_connection))
    return resolve(given)


def holds_file_lock(given: Any) -> bool:
    """True if the connection is in a transaction on a SQLite file, which may have locked the file."""
    given = _unwrapped(given)
    if is_sqlalchemy(given):
        bind = given.get_bind() if hasattr(given, "get_bind") else given
        return bool(bind.dialect.name == "sqlite" and given.in_transaction())
    if _is_django(given):
        return bool(given.vendor == "sqlite" and (given.in_atomic_block or not given.get_autocommit()))
    return bool(getattr(given, "in_transaction", False))


def has_begun(given: Any) -> bool | None:
    """True if the library above the driver has begun a transaction, in the database or not yet. None without such a
    library."""
    given = _unwrapped(given)
    if is_sqlalchemy(given):
        return bool(given.in_transaction())
    return bool(given.in_atomic_block or not given.get_autocommit()) if _is_django(given) else None


def refused(given: Any, engine: str, client: str, drivers: str) -> InvalidValue:
    """The error for an object that is not a connection to this engine, or not for this client."""
    kind = type(given)
    return InvalidValue(
        f"A {kind.__module__}.{kind.__qualname__} is not a connection to {engine} that {client} can use.",
        hint=f"app.on() takes {KINDS}. On {engine}, {client} uses {drivers}.",
    )


def is_a(given: Any, module: str, *classes: str) -> bool:
    """True if the object is of one of these classes. False if the program has not imported the module."""
    loaded = sys.modules.get(module)  # another thread may be importing it now: it lacks names then
    return loaded is not None and isinstance(given, tuple(getattr(loaded, name, ()) for name in classes))


def _unwrapped(given: Any) -> Any:
    """The connection of a cursor, the session of a scoped session, the connection that Django has for an alias."""
    cursors = {"sqlite3": ("Cursor",), "psycopg": ("Cursor", "AsyncCursor"), "psycopg2.extensions": ("cursor",)}
    if any(is_a(given, module, *classes) for module, classes in cursors.items()):
        return given.connection
    if is_a(given, "sqlalchemy.orm", "scoped_session") or is_a(given, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        return given()
    if is_a(given, "django.utils.connection", "ConnectionProxy"):
        return given._connections[given._alias]  # a private attribute; a test fails if Django changes it
    connections: Any = getattr(sys.modules.get("django.db"), "connections", ())
    return connections[given] if isinstance(given, str) and given in connections else given


def is_sqlalchemy(given: Any) -> bool:
    """True for a connection or session of SQLAlchemy."""
    given = _unwrapped(given)
    return (
        is_a(given, "sqlalchemy.orm", "Session")
        or is_a(given, "sqlalchemy.engine", "Connection")
        or is_a(given, "sqlalchemy.ext.asyncio", "AsyncSession", "AsyncConnection")
    )


def _is_django(given: Any) -> bool:
    return is_a(given, "django.db.backends.base.base", "BaseDatabaseWrapper")


BEGIN = "SELECT 1"
"""SQLAlchemy begins a transaction with its first statement. Statements that the driver runs without it would not be in
a transaction that SQLAlchemy commits."""


def _begun(connection: Any) -> Any:
    connection.exec_driver_sql(BEGIN)
    return connection


async def _begun_async(connection: Any) -> Any:
    await connection.exec_driver_sql(BEGIN)
    return (await connection.get_raw_connection()).driver_connection


WAKE = "dibs.wake"


def _after_session(session: Any, wake: Wake) -> None:
    """Call `wake` after the next commit of the session."""
    event = sys.modules["sqlalchemy"].event
    session.info[WAKE] = wake
    if not event.contains(session, "after_commit", _session_committed):
        event.listen(session, "after_commit", _session_committed)


def _session_committed(session: Any) -> None:
    """A savepoint that ends is reported as a commit too."""
    if not session.in_nested_transaction() and (wake := session.info.pop(WAKE, None)) is not None:
        wake()


def _at_checkin(connection: Any, wake: Wake) -> None:
    """Call `wake` when the connection returns to its pool: SQLAlchemy reports a commit of a Connection only before it
    commits."""
    event, pool = sys.modules["sqlalchemy"].event, connection.engine.pool
    connection.info[WAKE] = wake
    if not event.contains(pool, "checkin", _checked_in):
        event.listen(pool, "checkin", _checked_in)


def _checked_in(connection: Any, record: Any) -> None:
    if (wake := record.info.pop(WAKE, None)) is not None:
        wake()
