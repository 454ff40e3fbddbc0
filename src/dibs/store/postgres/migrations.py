"""Migrations on PostgreSQL: a transaction-level advisory lock keeps two processes from migrating at once."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.errors import ReadOnlySqlTransaction

from dibs.store.migrate import Applied, Migration, OnMigration, ignore_migration, migrations, missing, refuse_if_missing
from dibs.store.postgres.connection import translate
from dibs.store.postgres.outages import UntilWritable, connect
from dibs.store.postgres.replies import MIGRATING, expect_long_reply
from dibs.store.postgres.sessions import refuse_unless_utf8

KNOWN = migrations("dibs.store.postgres")

LOCK = 0x64696273  # "dibs"

_NO_TIMEOUTS = """
    SELECT set_config(name, '0', true) FROM pg_settings
    WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout')"""

_TABLE = """CREATE TABLE IF NOT EXISTS dibs_migrations (
    version    integer PRIMARY KEY,
    name       text    NOT NULL,
    compatible integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""


def migrate(url: str, allowed: bool = True, note: OnMigration = ignore_migration) -> list[Migration]:
    """Apply the missing migrations; read first, so that opening a current database takes no lock. Raises
    ServerUnreachable if the server cannot be reached now. A server that is read-only is tried again on new sessions:
    during a failover one of them leads to the new primary."""
    writable = UntilWritable()
    while True:
        try:
            return _migrate_once(url, allowed, note)
        except ReadOnlySqlTransaction as error:
            time.sleep(writable.pause_after(error))


def _migrate_once(url: str, allowed: bool, note: OnMigration) -> list[Migration]:
    try:
        with connect(url) as connection:
            refuse_unless_utf8(connection)
            todo = missing(KNOWN, applied(connection))
            if not allowed:
                refuse_if_missing(todo)
            if not todo:
                return []
            expect_long_reply(connection, "a migration", MIGRATING)
            # At READ COMMITTED: a program that waited for the migrations of another program must see them.
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            return apply(connection, note)
    except ReadOnlySqlTransaction:
        raise
    except psycopg.Error as error:
        raise translate(error, writing=False) from error


def applied(connection: psycopg.Connection[Any]) -> dict[int, Applied]:
    """The migrations that the database has, by version."""
    if connection.execute("SELECT to_regclass('dibs_migrations')").fetchone() == (None,):
        return {}
    rows = connection.execute("SELECT version, name, compatible FROM dibs_migrations").fetchall()
    return {version: Applied(name, compatible) for version, name, compatible in rows}


def apply(connection: psycopg.Connection[Any], note: OnMigration) -> list[Migration]:
    """Apply the missing migrations in the first schema of the connection's search path, all or none. Timeouts for
    ordinary statements do not apply, neither to waiting for another program that migrates nor to rebuilding a
    table."""
    with connection.transaction():
        connection.execute(_NO_TIMEOUTS)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        connection.execute(
            "SET LOCAL lock_timeout TO DEFAULT"
        )  # how long to wait for a busy table is the administrator's decision
        connection.execute(_TABLE)
        todo = missing(KNOWN, applied(connection))  # another process may have migrated meanwhile
        for migration in todo:
            note(migration.name)
            connection.execute(migration.sql.encode())
            row = (migration.version, migration.name, migration.compatible)
            connection.execute("INSERT INTO dibs_migrations (version, name, compatible) VALUES (%s, %s, %s)", row)
    return todo
