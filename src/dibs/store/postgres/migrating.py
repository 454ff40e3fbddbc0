"""Migrations on PostgreSQL: a transaction-level advisory lock keeps two processes from migrating at once."""

from __future__ import annotations

from typing import Any

import psycopg

from dibs.store.migrate import Migration, Note, migrations, missing, refuse_if_missing, tell_nobody
from dibs.store.postgres.connection import translate, watchful

KNOWN = migrations("dibs.store.postgres")

LOCK = 0x64696273  # "dibs"

_TABLE = """CREATE TABLE IF NOT EXISTS dibs_migrations (
    version    integer PRIMARY KEY,
    name       text    NOT NULL,
    compatible integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""


def migrate(url: str, allowed: bool = True, note: Note = tell_nobody) -> list[Migration]:
    """Apply what is missing; look first, so that opening a current database takes no lock."""
    try:
        with psycopg.connect(watchful(url), autocommit=True, prepare_threshold=None) as connection:
            todo = missing(KNOWN, _applied(connection))
            if not allowed:
                refuse_if_missing(todo)
            return apply(connection, note) if todo else []
    except psycopg.Error as error:
        raise translate(error, writing=False) from error


def _applied(connection: psycopg.Connection[Any]) -> dict[int, int]:
    if connection.execute("SELECT to_regclass('dibs_migrations')").fetchone() == (None,):
        return {}
    return dict(connection.execute("SELECT version, compatible FROM dibs_migrations").fetchall())


def apply(connection: psycopg.Connection[Any], note: Note) -> list[Migration]:
    """Apply what is missing in the first schema of the connection's search path, all of it or nothing."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        connection.execute(_TABLE)
        todo = missing(KNOWN, _applied(connection))  # another process may have been faster
        for migration in todo:
            note(migration.name)
            connection.execute(migration.sql.encode())
            row = (migration.version, migration.name, migration.compatible)
            connection.execute("INSERT INTO dibs_migrations (version, name, compatible) VALUES (%s, %s, %s)", row)
    return todo
