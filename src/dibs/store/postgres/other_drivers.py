"""Operations on connections of psycopg2 and asyncpg that the user handed in.

The errors of both drivers are raised as those of psycopg with the same SQLSTATE, so that each error has one meaning,
whatever the driver is.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from functools import cache
from typing import Any

import psycopg

from dibs.errors import InvalidValue
from dibs.store.operation import Instruction, Operation, RollBackToSavepoint, Rows, Statement, drive, drive_async
from dibs.store.postgres.connection import NAMED, SAVEPOINTS, SQL, as_refusal, bind, unencodable
from dibs.store.postgres.sessions import ENCODING
from dibs.store.sql import Words, to_numbered

Text = str
"""SQL of this module, run as it is."""

BEGIN, SET = "BEGIN ISOLATION LEVEL READ COMMITTED", "SAVEPOINT dibs"
ROLL_BACK, RELEASE = "ROLLBACK TO SAVEPOINT dibs", "RELEASE SAVEPOINT dibs"


def refuse_encoding(encoding: str) -> None:
    """Refuse a connection with another client encoding than UTF-8, before anything is written on it."""
    if encoding.upper().replace("-", "") not in {"UTF8", "UNICODE"}:
        raise InvalidValue(
            f"The connection has the client encoding {encoding}; dibs requires {ENCODING}.",
            hint="Execute SET client_encoding TO 'UTF8' on the connection first.",
        )


def run_on_psycopg2(connection: Any, operation: Operation[Any], by: str | None, now: int | None) -> Any:
    """Run the operation in the transaction of the connection; with autocommit, in a transaction of its own."""
    extensions = sys.modules["psycopg2.extensions"]
    if connection.closed:
        raise psycopg.OperationalError("the connection is closed")
    idle = connection.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE
    begins = _is_framed(operation) and connection.autocommit and idle
    common = {"now": now, "by": by}
    with connection.cursor(cursor_factory=extensions.cursor) as cursor:

        def execute(step: Instruction | Text) -> Rows:
            return _on_psycopg2(cursor, step, common)

        try:
            return drive(_framed(operation, begins), execute)
        except BaseException:
            if begins and not connection.closed:
                cursor.execute("ROLLBACK")  # connection.rollback() does nothing with autocommit
            raise


async def run_on_asyncpg(connection: Any, operation: Operation[Any], by: str | None, now: int | None) -> Any:
    """Run the operation in the transaction of the connection; without one, in a transaction of its own."""
    begins = _is_framed(operation) and not connection.is_in_transaction()
    common = {"now": now, "by": by}

    async def execute(step: Instruction | Text) -> Rows:
        return await _on_asyncpg(connection, step, common)

    try:
        return await drive_async(_framed(operation, begins), execute)
    except BaseException:
        if begins and not connection.is_closed() and connection.is_in_transaction():
            await connection.execute("ROLLBACK")
        raise


def _is_framed(operation: Operation[Any]) -> bool:
    """True for an operation that needs a transaction, or may find that it needs one."""
    return operation.writes or operation.atomic


def _framed(operation: Operation[Any], begins: bool) -> Generator[Any, Any, Any]:
    """The statements of the operation, in a savepoint that is undone after an error. `begins`: in a transaction that
    ends with them."""
    if not _is_framed(operation):
        return (yield from operation.begin())
    if begins:
        yield BEGIN
    yield SET
    try:
        returned = yield from operation.begin()
    except Exception:
        yield ROLL_BACK
        yield RELEASE
        raise
    yield RELEASE
    if begins:
        yield "COMMIT"
    return returned


def _texts(step: Instruction | Text) -> tuple[str, ...]:
    """The SQL of an instruction that is not a statement. BeginTransaction has none: the operation is in one already."""
    return (step,) if isinstance(step, Text) else SAVEPOINTS.get(type(step), ())


def _on_psycopg2(cursor: Any, step: Instruction | Text, common: dict[str, Any]) -> Rows:
    refusal = [(as_refusal(step.error),)] if isinstance(step, RollBackToSavepoint) else []
    try:
        if not isinstance(step, Statement):
            for text in _texts(step):
                cursor.execute(text)
            return refusal
        cursor.execute(SQL.text(step.name, step.words), bind(step, common))
        return cursor.fetchall() if cursor.description is not None else []
    except sys.modules["psycopg2"].Error as error:
        raise _as_psycopg(error, error.pgcode) from error
    except (UnicodeError, ValueError) as error:  # psycopg2 refuses text with NUL by a ValueError
        raise unencodable(error) from error


async def _on_asyncpg(connection: Any, step: Instruction | Text, common: dict[str, Any]) -> Rows:
    refusal = [(as_refusal(step.error),)] if isinstance(step, RollBackToSavepoint) else []
    asyncpg = sys.modules["asyncpg"]
    try:
        if not isinstance(step, Statement):
            for text in _texts(step):
                await connection.execute(text)
            return refusal
        params = bind(step, common)
        casts = tuple((name, cast_of(value)) for name, value in params.items())
        sql, names = _numbered(step.name, step.words, casts)
        return [tuple(row) for row in await connection.fetch(sql, *(params[name] for name in names))]
    except asyncpg.PostgresError as error:
        raise _as_psycopg(error, error.sqlstate) from error
    except asyncpg.DataError as error:
        raise unencodable(error) from error
    except (asyncpg.InterfaceError, OSError) as error:
        kind = psycopg.OperationalError if connection.is_closed() else psycopg.InterfaceError
        raise kind(str(error)) from error


@cache
def _numbered(name: str, words: Words, casts: tuple[tuple[str, str], ...]) -> tuple[str, tuple[str, ...]]:
    return to_numbered(NAMED.text(name, words), dict(casts))


def cast_of(value: Any) -> str:
    """The type of a parameter in PostgreSQL, as psycopg chooses it by the value; "" leaves the choice to the server.

    A text is cast, so that no codec that the user has set for JSON encodes it a second time."""
    if isinstance(value, bool):
        return "::boolean"
    if isinstance(value, int):
        return f"::{_integer(value)}"
    if isinstance(value, (list, tuple)):
        numbers = [each for each in value if isinstance(each, int)]
        return f"::{_integer(max(numbers, key=abs))}[]" if numbers else ""
    return {float: "::double precision", str: "::text"}.get(type(value), "")


def _integer(value: int) -> str:
    """The smallest type for the value: the server converts it to larger ones by itself, but not to smaller ones."""
    bits = (value if value >= 0 else ~value).bit_length()
    return "smallint" if bits < 16 else "integer" if bits < 32 else "bigint"


def _as_psycopg(error: Exception, sqlstate: str | None) -> psycopg.Error:
    """The error of psycopg for an error of another driver; one without SQLSTATE is about the connection."""
    try:
        kind = psycopg.errors.lookup(sqlstate or "")
    except KeyError:
        kind = psycopg.OperationalError if sqlstate is None else psycopg.DatabaseError
    return kind(str(error))
