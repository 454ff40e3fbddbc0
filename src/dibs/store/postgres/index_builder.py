"""Builds the indexes of streams that claims have requested (see StreamIndexes).

CREATE INDEX CONCURRENTLY does not block other sessions. It cannot run in a transaction, and waits for all transactions
that write tasks. If its session ends before it has ended, an index remains that PostgreSQL maintains and never reads;
such an index is dropped, and built again.

One process builds at a time: a second session holds an advisory lock in a transaction, which works behind a pooler as
well. The transaction is at read committed, and so has no snapshot for which the build would have to wait. If the
process is killed, the lock is free at once, but the server may go on with the build; so an index that is not valid is
dropped only if no session holds the lock of a build on the table.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from psycopg import IsolationLevel

from dibs.errors import StoreUnavailable
from dibs.store.postgres.connection import SQL, is_pooled, translate
from dibs.store.postgres.dialect import DEFINITIONS
from dibs.store.postgres.outages import ServerUnreachable, connect
from dibs.store.postgres.replies import MIGRATING, expect_long_reply

logger = logging.getLogger("dibs.postgres")

LOCK = 0x64696274
"""The advisory lock of the process that builds indexes: the one after that of migrations."""

_NO_TIMEOUTS = """
    SELECT set_config(name, '0', %(local)s) FROM pg_settings
    WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')"""

_TRY_LOCK = f"SELECT pg_try_advisory_xact_lock({LOCK})"
"""Without parameters: after a statement with parameters the transaction would keep its snapshot, for which the build
would wait for ever."""

_ANALYZE = "ANALYZE dibs_tasks"
"""The statistics may be older than the numbers of a random order. The planner then expects no numbered task, reads
another index from its beginning to its end for each stream, and a claim takes half a minute."""

_NOT_OWNER = "The role of dibs does not own the table dibs_tasks."


def build_requested(url: str) -> int:
    """Build the requested indexes. Returns the number of indexes that are built; 0 if another process is building."""
    try:
        with connect(url) as keeper, connect(url) as builder:
            expect_long_reply(keeper, "the end of an index")
            expect_long_reply(builder, "an index", MIGRATING)
            keeper.isolation_level = IsolationLevel.READ_COMMITTED
            with keeper.transaction():
                keeper.execute(_NO_TIMEOUTS, {"local": True})
                if not _value(keeper, _TRY_LOCK):
                    return 0
                if not is_pooled(builder):  # a pooler would leave the settings to another client
                    builder.execute(_NO_TIMEOUTS, {"local": False})
                requested = builder.execute(SQL.text("requested_indexes").encode()).fetchall()
                return sum(_build(builder, name) for (name,) in requested)
    except ServerUnreachable as unreachable:
        raise StoreUnavailable(f"PostgreSQL cannot be reached ({unreachable}).") from unreachable
    except psycopg.Error as error:
        raise translate(error, writing=False) from error


def creation(name: str) -> str:
    """The statement that builds the index."""
    return f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON dibs_tasks {DEFINITIONS[name]}"


def _build(connection: psycopg.Connection[Any], name: str) -> bool:
    if name not in DEFINITIONS:  # a later version of dibs has requested it
        return False
    try:
        if not _exists(connection, name):
            if not _value(connection, SQL.text("owns_tasks")):
                raise psycopg.errors.InsufficientPrivilege(_NOT_OWNER)
            if not _removed_remains(connection, name):
                return False
            logger.info("building the index %s for claims", name, extra={"event": "index.build", "index": name})
            connection.execute(creation(name).encode())
            connection.execute(_ANALYZE)
    except psycopg.OperationalError:
        raise
    except psycopg.Error as error:
        about = {"event": "index.failed", "index": name}
        logger.warning("the index %s for claims was not built: %s", name, error, extra=about)
        connection.execute(SQL.text("note_index_error").encode(), {"name": name, "error": str(error)[:500]})
        return False
    connection.execute(SQL.text("note_index_built").encode(), {"name": name})
    return True


def _exists(connection: psycopg.Connection[Any], name: str) -> bool:
    return name in {row[0] for row in connection.execute(SQL.text("claim_indexes").encode())}


def _removed_remains(connection: psycopg.Connection[Any], name: str) -> bool:
    """Drop the index, which is not valid, if it exists. False if a session may still be building it."""
    if _value(connection, "SELECT to_regclass(%s) IS NULL", name):
        return True
    if _value(connection, SQL.text("being_built")):
        return False
    connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}".encode())
    return True


def _value(connection: psycopg.Connection[Any], sql: str, *params: Any) -> Any:
    row = connection.execute(sql.encode(), params or None).fetchone()
    assert row is not None
    return row[0]
