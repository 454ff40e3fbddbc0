"""PostgreSQL on a connection of psycopg that the program lends: see BorrowedStore."""

from __future__ import annotations

from typing import Any

import psycopg

from dibs.store.joining import refused
from dibs.store.migrate import OnMigration, missing
from dibs.store.operation import Operation
from dibs.store.operations import SqlOperations
from dibs.store.operations.validation import TypeCache
from dibs.store.postgres.connection import translate, translate_joined
from dibs.store.postgres.dialect import PostgresDialect
from dibs.store.postgres.joined import check_joinable, run_joined
from dibs.store.postgres.migrations import KNOWN, applied, apply
from dibs.store.postgres.sessions import refuse_unless_utf8
from dibs.store.postgres.wakeups import CHANNEL

_EMPTY = """
    DO $$ DECLARE part record; BEGIN
        FOR part IN SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
            AND relname LIKE 'dibs\\_%' AND relname <> 'dibs_migrations' LOOP
            EXECUTE format('DELETE FROM %I', part.relname);
        END LOOP;
    END $$"""

_DROP = """
    DO $$ DECLARE part record; BEGIN
        FOR part IN SELECT oid::regprocedure AS name FROM pg_proc
            WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'dibs\\_%' LOOP
            EXECUTE format('DROP FUNCTION IF EXISTS %s CASCADE', part.name);
        END LOOP;
        FOR part IN SELECT oid::regclass AS name FROM pg_class
            WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname LIKE 'dibs\\_%' LOOP
            EXECUTE format('DROP TABLE IF EXISTS %s CASCADE', part.name);
        END LOOP;
    END $$"""


class BorrowedPostgres:
    """The engine of a BorrowedStore on connections of psycopg."""

    many_writers = True

    def operations(self) -> SqlOperations:
        """See BorrowedEngine."""
        return SqlOperations(PostgresDialect(), TypeCache())

    def run(self, driver: Any, operation: Operation[Any], by: str | None) -> Any:
        """See BorrowedEngine."""
        check_joinable(driver, driver)
        try:
            return run_joined(driver, operation, by, None)
        except psycopg.Error as error:
            raise translate_joined(error, writing=operation.writes) from error

    def wake(self, driver: Any) -> None:
        """Notify the workers over the connection, which has committed."""
        _execute(driver, f"NOTIFY {CHANNEL}")

    def missing(self, driver: Any) -> list[str]:
        """See BorrowedEngine."""
        try:
            return [each.name for each in missing(KNOWN, applied(_checked(driver)))]
        except psycopg.Error as error:
            raise translate(error, writing=False) from error

    def migrate(self, driver: Any, note: OnMigration) -> list[str]:
        """See BorrowedEngine."""
        connection = _checked(driver)
        try:
            refuse_unless_utf8(connection)
            return [each.name for each in apply(connection, note)]
        except psycopg.Error as error:
            raise translate(error, writing=True) from error

    def empty(self, driver: Any) -> None:
        """See BorrowedEngine."""
        _execute(driver, _EMPTY)

    def drop(self, driver: Any) -> None:
        """See BorrowedEngine."""
        _execute(driver, _DROP)


def _execute(driver: Any, statement: str) -> None:
    try:
        _checked(driver).execute(statement.encode())
    except psycopg.Error as error:
        raise translate(error, writing=True) from error


def _checked(driver: Any) -> psycopg.Connection[Any]:
    if not isinstance(driver, psycopg.Connection):
        raise refused(driver, "PostgreSQL", "Dibs", "psycopg.Connection")
    return driver
