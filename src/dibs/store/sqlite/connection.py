"""Connections to the SQLite file: how they are opened, how a statement runs, what their errors mean."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from dibs.errors import DibsError, OutcomeUnknown, SchemaMissing, StoreBusy, StoreError, StoreRefused, StoreUnavailable
from dibs.store.contract import StoreClock
from dibs.store.operation import (
    WIDTH,
    Instruction,
    Operation,
    ReleaseSavepoint,
    RollBackToSavepoint,
    Row,
    Rows,
    SetSavepoint,
    Statement,
    drive,
)
from dibs.store.sql import SqlFiles, Words

SQL = SqlFiles("dibs.store.sqlite")

OPEN_TIMEOUT = 10.0

_encode = msgspec.json.encode


class ReadOnly(StoreError):
    """The file was read-only when it was opened. SQLite keeps such a connection read-only: the file must be opened
    again after its permissions have changed."""


def clock() -> int:
    """The time of this machine, in microseconds since 1970: SQLite runs in this process."""
    return time.time_ns() // 1000


def connect(path: Path) -> sqlite3.Connection:
    """A connection to an existing file, durable and in WAL mode. StoreUnavailable where there is no file.

    If several processes switch a new file to WAL at the same moment, SQLite refuses all but one without waiting:
    the others try again.
    """
    give_up_at = time.monotonic() + OPEN_TIMEOUT
    while True:
        try:
            return _connect(path)
        except StoreBusy:
            if time.monotonic() > give_up_at:
                raise
        time.sleep(random.uniform(0.001, 0.01))


def _connect(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=rw"  # without it SQLite creates the file: see database_file.py
    try:
        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256
        )
    except sqlite3.OperationalError as error:
        raise _cannot_open(path, error) from None
    try:
        _configure(connection)
    except sqlite3.Error as error:
        connection.close()
        raise translate(error) from error
    return connection


def _cannot_open(path: Path, error: sqlite3.Error) -> StoreUnavailable:
    if path.exists():
        return StoreUnavailable(f"Cannot open {path}: {error}.", hint="Check that this user may read and write it.")
    if not path.parent.exists():
        return StoreUnavailable(f"Cannot open {path}: {error}.", hint="Check that its folder exists.")
    hint = "Move the file back together with its -wal, or begin with an empty one: migrate() (`dibs migrate`)."
    return StoreUnavailable(f"There is no file {path}.", hint=hint)


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA busy_timeout = 10000")
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -32768")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    add_functions(connection)


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the function for random-order numbers (see `fresh_keys`): not every SQLite has logarithms."""
    connection.create_function("dibs_exponential", 0, _exponential)


def _exponential() -> float:
    return random.expovariate(1.0)


class SqliteExecutor:
    """Runs statements on a connection, at one time and for one author."""

    def __init__(self, connection: sqlite3.Connection, now: int, by: str | None, words: Words = ()) -> None:
        self._connection = connection
        self._now = now
        self._by = by
        self._words = words

    def __call__(self, statement: Instruction) -> Rows:
        """The rows of the statement; a change is also appended to the history."""
        if not isinstance(statement, Statement):
            return self._control(statement)
        if statement.values is not None:
            return self._insert(statement.name, statement.values)
        sql = SQL.text(statement.name, statement.words + self._words)
        if statement.name in _ALL_ROWS:
            rows: Rows = self._connection.execute(sql, self._bind({"items": statement.rows})).fetchall()
        elif statement.rows is None:
            rows = self._connection.execute(sql, self._bind(statement.params)).fetchall()
        elif statement.change or statement.name in _RETURNING:
            rows = [
                row for each in statement.rows for row in self._connection.execute(sql, self._bind(each)).fetchall()
            ]
        else:
            self._connection.executemany(sql, map(self._bind, statement.rows))
            rows = []
        if statement.change and rows:
            self._append_history(rows)
        return rows

    def _control(self, step: Instruction) -> Rows:
        """Run an instruction that is not a statement. BeginTransaction has no effect: an operation is a transaction."""
        match step:
            case SetSavepoint():
                self._connection.execute("SAVEPOINT item")
            case ReleaseSavepoint():
                self._connection.execute("RELEASE item")
            case RollBackToSavepoint(error):
                return self._undo(error)
        return []

    def _undo(self, error: Exception) -> Rows:
        refusal = as_refusal(error)
        if not self._connection.in_transaction:  # the error has ended the transaction
            raise error
        self._connection.execute("ROLLBACK TO item")
        self._connection.execute("RELEASE item")
        return [(refusal,)]

    def _insert(self, name: str, values: Sequence[Row]) -> Rows:
        for some in _portions(values):
            sql = SQL.text(name, _rows_of(len(some), len(some[0])))
            self._connection.execute(sql, tuple(chain.from_iterable(some)))
        return []

    def _bind(self, params: Any) -> dict[str, Any]:
        bound = {**params, "now": self._now, "by": self._by}
        for name in _LISTS:
            if name in bound and isinstance(bound[name], (list, tuple)):
                bound[name] = _encode(bound[name]).decode()
        return bound

    def _append_history(self, rows: Sequence[tuple[Any, ...]]) -> None:
        signed = (self._by, self._now)
        self._connection.executemany(SQL.text("append_history"), [row[:WIDTH] + signed for row in rows])


_LISTS = ("ids", "keys", "queues", "types", "items", "streams", "names")
_ALL_ROWS = frozenset(
    {
        "adapt_backlogs",
        "add_log_lines",
        "advance_backlogs",
        "advance_groups",
        "advance_queues",
        "close_backlogs",
        "complete",
        "find_ended_keys",
        "find_keys",
        "register_backlogs",
        "return_permits",
        "send_signals",
        "settle_tasks",
        "taken_keys",
        "use_counters",
    }
)
"""Statements that take all their rows at once, as `items`."""

_RETURNING = frozenset({"count_steps", "progress", "renew", "start", "claim_outcomes"})


PORTIONS = (64, 16)
"""Rows inserted by one statement: every statement releases the interpreter's lock and costs some microseconds. There
are few sizes, because a connection prepares each size once."""


def _portions(values: Sequence[Row]) -> Iterator[Sequence[Row]]:
    done = 0
    for size in PORTIONS:
        while len(values) - done >= size:
            yield values[done : done + size]
            done += size
    if done < len(values):
        yield values[done:]


@cache
def _rows_of(count: int, width: int) -> Words:
    row = f"({', '.join('?' * width)})"
    return (("rows", ", ".join([row] * count)),)


def as_refusal(error: Exception) -> DibsError:
    """The error as a refusal of what was written. Raises an error that is about the file, a lock or the program."""
    refusal = translate(error) if isinstance(error, (sqlite3.Error, *UNENCODABLE)) else error
    if isinstance(refusal, StoreError) and not isinstance(refusal, StoreRefused):
        raise error
    if not isinstance(refusal, DibsError):
        raise error
    return refusal


UNENCODABLE = (UnicodeError, OverflowError)
"""Errors that Python raises for a value before the database sees the value."""

REFUSALS = ("SQLITE_CONSTRAINT", "SQLITE_TOOBIG", "SQLITE_MISMATCH", "SQLITE_RANGE", "SQLITE_ERROR")


def translate(error: Exception) -> DibsError:
    """What an error of SQLite means to a user of dibs."""
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(f"The SQLite file is locked by another program ({error}).")
    if code.startswith("SQLITE_FULL"):
        return StoreError("The disk is full; nothing was written.", hint="Free some space and try again.")
    if code.startswith("SQLITE_READONLY"):
        return ReadOnly("The SQLite file is read-only.", hint="Give this user write access to the file and its folder.")
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        hint = "Run the doctor's checks, then restore a backup or `sqlite3 FILE .recover` it."
        return StoreError(f"The SQLite file is damaged, or not a database ({error}).", hint=hint)
    if code.startswith("SQLITE_IOERR"):
        return OutcomeUnknown(f"The disk failed while SQLite was writing ({error}).")
    if code.startswith("SQLITE_CANTOPEN"):
        return StoreUnavailable(f"The SQLite file cannot be opened ({error}).", hint="Check the path and its folder.")
    if "no such table: dibs_" in str(error):
        hint = "Call migrate() once; a connection that you hand in must be to the same file as the URL."
        return SchemaMissing(f"This database has no dibs tables ({error}).", hint=hint)
    if code.startswith(REFUSALS) or isinstance(error, UNENCODABLE):
        return StoreRefused(f"SQLite refused the write: {error}.")
    return StoreError(
        f"SQLite failed: {error}.", hint="If you did not misuse a connection that you handed in, report a bug."
    )


_IN_TEMP = "SELECT 1 FROM temp.sqlite_master WHERE name = 'dibs_tasks'"
_IN_FILE = "SELECT 1 FROM main.sqlite_master WHERE name = 'dibs_tasks'"
_ATTACHED = """
SELECT schema FROM pragma_table_list JOIN pragma_database_list AS files ON files.name = schema
WHERE pragma_table_list.name = 'dibs_tasks' ORDER BY files.seq
"""


def run_joined(operation: Operation[Any], by: str | None, connection: sqlite3.Connection, clock: StoreClock) -> Any:
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


def _run(operation: Operation[Any], by: str | None, connection: sqlite3.Connection, clock: StoreClock) -> Any:
    if not operation.writes:
        return drive(operation.begin(), SqliteExecutor(connection, clock(), by))
    executor = SqliteExecutor(connection, clock(), by, (("schema", _schema(connection)),))
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


def _schema(connection: sqlite3.Connection) -> str:
    """The schema in which SQLite finds the tasks: that of the temporary tables (isolated() in dibs.testing), else the
    file, else the first file that the user has attached."""
    if connection.execute(_IN_TEMP).fetchone():
        return "temp"
    if connection.execute(_IN_FILE).fetchone():
        return "main"
    attached = connection.execute(_ATTACHED).fetchone()
    return '"{}"'.format(attached[0].replace('"', '""')) if attached else "main"


def _commits_itself(connection: sqlite3.Connection) -> bool:
    legacy = getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL", -1)
    autocommit = getattr(connection, "autocommit", legacy)  # Python 3.12 and later
    return connection.isolation_level is None if autocommit == legacy else bool(autocommit)
