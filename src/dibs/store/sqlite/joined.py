"""Operations on a connection that the user hands in: they join the user's transaction and never commit it."""

from __future__ import annotations

import sqlite3
from typing import Any

from dibs.store.operation import Operation, drive
from dibs.store.sqlite.connection import UNENCODABLE, Clock, Executor, add_functions, translate

_IN_TEMP = "SELECT 1 FROM temp.sqlite_master WHERE name = 'dibs_tasks'"
_IN_FILE = "SELECT 1 FROM main.sqlite_master WHERE name = 'dibs_tasks'"
_ATTACHED = """
SELECT schema FROM pragma_table_list JOIN pragma_database_list AS files ON files.name = schema
WHERE pragma_table_list.name = 'dibs_tasks' ORDER BY files.seq
"""


def run_joined(operation: Operation[Any], by: str | None, connection: sqlite3.Connection, clock: Clock) -> Any:
    """Run the operation inside the connection's transaction, undone as a whole if it fails.

    Without an open transaction dibs behaves as any statement would: a connection that commits by itself gets a
    transaction of the operation's own, any other is left with one open, for the user to commit.
    """
    add_functions(connection)
    settings = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        return _run(operation, by, connection, clock)
    except (sqlite3.Error, *UNENCODABLE) as error:
        raise translate(error) from error
    finally:
        connection.row_factory, connection.text_factory = settings


def _run(operation: Operation[Any], by: str | None, connection: sqlite3.Connection, clock: Clock) -> Any:
    if not operation.writes:
        return drive(operation.begin(), Executor(connection, clock(), by))
    executor = Executor(connection, clock(), by, (("sequence", _sequence(connection)),))
    begun = not connection.in_transaction
    if begun:
        connection.execute("BEGIN IMMEDIATE")
    connection.execute("SAVEPOINT dibs")
    try:
        result = drive(operation.begin(), executor)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO dibs")
            connection.execute("RELEASE dibs")
            if begun:
                connection.execute("ROLLBACK")
        raise
    connection.execute("RELEASE dibs")
    if begun and _commits_itself(connection):
        connection.execute("COMMIT")
    return result


def _sequence(connection: sqlite3.Connection) -> str:
    """The table with the highest task id, in the schema in which SQLite finds the tasks: that of the temporary tables
    (isolated() in dibs.testing), else the file, else the first file that the user has attached."""
    if connection.execute(_IN_TEMP).fetchone():
        return "temp.sqlite_sequence"
    if connection.execute(_IN_FILE).fetchone():
        return "main.sqlite_sequence"
    attached = connection.execute(_ATTACHED).fetchone()
    return '"{}".sqlite_sequence'.format(attached[0].replace('"', '""')) if attached else "main.sqlite_sequence"


def _commits_itself(connection: sqlite3.Connection) -> bool:
    legacy = getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL", -1)
    autocommit = getattr(connection, "autocommit", legacy)  # Python 3.12 and later
    return connection.isolation_level is None if autocommit == legacy else bool(autocommit)
