"""The connections of the pool, and the isolation level of their transactions.

dibs relies on READ COMMITTED: a statement that waited for a row's lock sees what the holder of the lock committed. At
REPEATABLE READ it would fail instead, or read from an old snapshot, so the level must not depend on what an
administrator chose as default_transaction_isolation. It is set:

- in a session that is ours, once, as a setting of the session;
- behind a pooler, where a setting would stay in the session of another client, by each transaction that names the
  level when it begins. Only where the default is another level: there each statement becomes such a transaction, for
  two more round trips;
- on a connection that the user hands in, for a transaction that dibs itself begins. A transaction of the user keeps
  its level: a conflict then fails the operation (nothing is changed), and a step that became ready unseen is found by
  upkeep. A single statement on an autocommit connection needs no level: its snapshot is as new as at READ COMMITTED.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import IsolationLevel

from dibs.errors import InvalidValue, StoreError

LEVEL = "read committed"
BEGIN_AT_LEVEL = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"


class PoolSession(psycopg.Connection[Any]):
    """A connection of the pool for threads."""

    names_level = False
    """True where each statement must run in a transaction that names its isolation level."""

    def name_level(self) -> None:
        """From now on each transaction names its level."""
        self.isolation_level = IsolationLevel.READ_COMMITTED
        self.names_level = True


class AsyncPoolSession(psycopg.AsyncConnection[Any]):
    """`PoolSession`, awaited."""

    names_level = False

    async def name_level(self) -> None:
        """See PoolSession."""
        await self.set_isolation_level(IsolationLevel.READ_COMMITTED)
        self.names_level = True


def begins_for_user(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """True where a transaction that dibs begins now would have the default level of a session that is not ours."""
    idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    return idle and not isinstance(connection, (PoolSession, AsyncPoolSession))


ENCODING = "UTF8"

ENCODING_HINT = (
    "Create a database with CREATE DATABASE name TEMPLATE template0 ENCODING 'UTF8', and name it in the URL. "
    "dibs changed nothing in this one."
)


def database_encoding(connection: psycopg.Connection[Any]) -> str:
    """The encoding of the database: the server reports it when the connection is made, a few poolers do not."""
    reported = connection.info.parameter_status("server_encoding")
    if reported is not None:
        return reported
    row = connection.execute("SHOW server_encoding").fetchone()
    assert row is not None
    return str(row[0])


def refuse_unless_utf8(connection: psycopg.Connection[Any]) -> None:
    """A database in another encoding cannot hold every text (LATIN1), or stores bytes of unknown encoding
    (SQL_ASCII)."""
    encoding = database_encoding(connection)
    if encoding != ENCODING:
        message = f"The database {connection.info.dbname!r} has the encoding {encoding}; dibs requires {ENCODING}."
        raise StoreError(message, hint=ENCODING_HINT)


def refuse_client_encoding(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """The same for a connection that the user hands in, before anything is written on it. psycopg answers with bytes
    where the client encoding is SQL_ASCII, and cannot send every text in the others."""
    if connection.info.encoding != "utf-8":
        encoding = connection.info.parameter_status("client_encoding")
        raise InvalidValue(
            f"The connection has the client encoding {encoding}; dibs requires {ENCODING}.",
            hint="Execute SET client_encoding TO 'UTF8' on the connection first.",
        )
