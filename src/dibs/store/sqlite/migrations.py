"""Migrations on SQLite: the write lock keeps two processes from migrating at once."""

from __future__ import annotations

import sqlite3

from dibs.errors import StoreBusy
from dibs.store.contract import StoreClock
from dibs.store.migrate import Applied, Migration, OnMigration, ignore_migration, migrations, missing, refuse_if_missing
from dibs.store.sqlite.connection import translate

KNOWN = migrations("dibs.store.sqlite")

_TABLE = """CREATE TABLE IF NOT EXISTS dibs_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    compatible INTEGER NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT"""


def migrate(
    connection: sqlite3.Connection, clock: StoreClock, allowed: bool = True, note: OnMigration = ignore_migration
) -> list[Migration]:
    """Apply the missing migrations; read first, so that opening a current database takes no lock."""
    try:
        todo = missing(KNOWN, applied(connection))
        if not allowed:
            refuse_if_missing(todo)
        return _apply(connection, clock, note) if todo else []
    except sqlite3.Error as error:
        raise translate(error) from error


def applied(connection: sqlite3.Connection) -> dict[int, Applied]:
    """The migrations that the database has, by version."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'dibs_migrations'").fetchone() is None:
        return {}
    rows = connection.execute("SELECT version, name, compatible FROM dibs_migrations")
    return {version: Applied(name, compatible) for version, name, compatible in rows}


def _apply(connection: sqlite3.Connection, clock: StoreClock, note: OnMigration) -> list[Migration]:
    connection.execute("PRAGMA busy_timeout = 30000")
    try:
        connection.execute("BEGIN IMMEDIATE")
        todo = migrate_in_transaction(connection, clock, note)
        connection.execute("COMMIT")
        return todo
    except sqlite3.Error as error:
        if isinstance(translate(error), StoreBusy):
            raise StoreBusy("Another program held the SQLite file for 30 seconds; nothing was migrated.") from None
        raise
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("PRAGMA busy_timeout = 10000")


def migrate_in_transaction(connection: sqlite3.Connection, clock: StoreClock, note: OnMigration) -> list[Migration]:
    """Apply the missing migrations in the open transaction of the connection."""
    connection.execute(_TABLE)
    todo = missing(KNOWN, applied(connection))  # another process may have migrated meanwhile
    for migration in todo:
        note(migration.name)
        for statement in migration.statements():
            connection.execute(statement)
        row = (migration.version, migration.name, migration.compatible, clock())
        connection.execute("INSERT INTO dibs_migrations VALUES (?, ?, ?, ?)", row)
    return todo
