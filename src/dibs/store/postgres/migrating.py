"""Migrations on PostgreSQL: a transaction-level advisory lock keeps two processes from migrating at once."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg.errors import ReadOnlySqlTransaction

from dibs.store.migrate import Migration, Note, migrations, missing, refuse_if_missing, tell_nobody
from dibs.store.postgres.connection import translate, watchful
from dibs.store.postgres.patience import UntilWritable
from dibs.store.postgres.replies import MIGRATING, Session, expect_long_reply, sessions_of

KNOWN = migrations("dibs.store.postgres")

LOCK = 0x64696273  # "dibs"

_TABLE = """CREATE TABLE IF NOT EXISTS dibs_migrations (
    version    integer PRIMARY KEY,
    name       text    NOT NULL,
    compatible integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""


def migrate(url: str, allowed: bool = True, note: Note = tell_nobody) -> list[Migration]:
    """Apply what is missing; look first, so that opening a current database takes no lock. A server that is read-only
    is asked again, on new sessions: during a failover one of them leads to the new primary."""
    writable = UntilWritable()
    while True:
        try:
            return _migrate_once(url, allowed, note)
        except ReadOnlySqlTransaction as error:
            time.sleep(writable.pause_after(error))


def _migrate_once(url: str, allowed: bool, note: Note) -> list[Migration]:
    try:
        with sessions_of(url).connect(watchful(url), autocommit=True, prepare_threshold=None) as connection:
            todo = missing(KNOWN, _applied(connection))
            if not allowed:
                refuse_if_missing(todo)
            return _apply(connection, note) if todo else []
    except ReadOnlySqlTransaction:
        raise
    except psycopg.Error as error:
        raise translate(error, writing=False) from error


def _applied(connection: psycopg.Connection[Any]) -> dict[int, int]:
    if connection.execute("SELECT to_regclass('dibs_migrations')").fetchone() == (None,):
        return {}
    return dict(connection.execute("SELECT version, compatible FROM dibs_migrations").fetchall())


def _apply(connection: Session, note: Note) -> list[Migration]:
    expect_long_reply(connection, "a migration", MIGRATING)
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
