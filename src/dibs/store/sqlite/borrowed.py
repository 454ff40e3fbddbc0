"""SQLite on a connection that the program lends: see BorrowedStore."""

from __future__ import annotations

import sqlite3
from typing import Any

from dibs.store.joining import refused
from dibs.store.migrate import OnMigration, missing
from dibs.store.operation import Operation
from dibs.store.operations import SqlOperations
from dibs.store.operations.validation import TypeCache
from dibs.store.sqlite.connection import clock, run_joined, translate
from dibs.store.sqlite.dialect import SqliteDialect
from dibs.store.sqlite.migrations import KNOWN, applied, migrate, migrate_in_transaction

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'dibs\\_%' ESCAPE '\\'"


class BorrowedSqlite:
    """The engine of a BorrowedStore on connections of sqlite3."""

    many_writers = False

    def operations(self) -> SqlOperations:
        """See BorrowedEngine."""
        return SqlOperations(SqliteDialect(), TypeCache())

    def run(self, driver: Any, operation: Operation[Any], by: str | None) -> Any:
        """See BorrowedEngine."""
        return run_joined(operation, by, _checked(driver), clock)

    def wake(self, driver: Any) -> None:
        """Do nothing: a waiting worker notices every commit."""

    def missing(self, driver: Any) -> list[str]:
        """See BorrowedEngine."""
        try:
            return [each.name for each in missing(KNOWN, applied(_checked(driver)))]
        except sqlite3.Error as error:
            raise translate(error) from error

    def migrate(self, driver: Any, note: OnMigration) -> list[str]:
        """See BorrowedEngine. A file gets WAL mode, unless a transaction is open."""
        connection = _checked(driver)
        if connection.in_transaction:
            return [each.name for each in migrate_in_transaction(connection, clock, note)]
        patience = connection.execute("PRAGMA busy_timeout").fetchone()[0]
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return [each.name for each in migrate(connection, clock, note=note)]
        except sqlite3.Error as error:
            raise translate(error) from error
        finally:
            connection.execute(f"PRAGMA busy_timeout = {patience}")

    def empty(self, driver: Any) -> None:
        """See BorrowedEngine."""
        self._for_each_table(driver, 'DELETE FROM "{}"', kept=frozenset({"dibs_migrations"}))

    def drop(self, driver: Any) -> None:
        """See BorrowedEngine."""
        self._for_each_table(driver, 'DROP TABLE "{}"')

    def _for_each_table(self, driver: Any, statement: str, kept: frozenset[str] = frozenset()) -> None:
        connection = _checked(driver)
        begun = not connection.in_transaction
        try:
            if begun:
                connection.execute("BEGIN IMMEDIATE")
            for (name,) in connection.execute(_TABLES).fetchall():
                if name not in kept:
                    connection.execute(statement.format(name))
            if begun:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            if begun and connection.in_transaction:
                connection.execute("ROLLBACK")
            raise translate(error) from error


def _checked(driver: Any) -> sqlite3.Connection:
    if not isinstance(driver, sqlite3.Connection):
        raise refused(driver, "SQLite", "Dibs", "sqlite3")
    return driver
