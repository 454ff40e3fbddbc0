"""Text encodings: dibs stores UTF-8 only, and speaks UTF-8 with the server."""

from __future__ import annotations

from typing import Any

import psycopg

from dibs.errors import InvalidValue, StoreError

NEEDED = "UTF8"

HINT = (
    "Create a database with CREATE DATABASE name TEMPLATE template0 ENCODING 'UTF8', and name it in the URL. "
    "dibs changed nothing in this one."
)


def of_database(connection: psycopg.Connection[Any]) -> str:
    """The encoding of the database: the server reports it when the connection is made, a few poolers do not."""
    reported = connection.info.parameter_status("server_encoding")
    if reported is not None:
        return reported
    row = connection.execute("SHOW server_encoding").fetchone()
    assert row is not None
    return str(row[0])


def refuse_unless_utf8(connection: psycopg.Connection[Any]) -> None:
    """A database in another encoding cannot hold every text (LATIN1), or stores bytes of unknown encoding
    (SQL_ASCII)."""
    encoding = of_database(connection)
    if encoding != NEEDED:
        message = f"The database {connection.info.dbname!r} has the encoding {encoding}; dibs requires {NEEDED}."
        raise StoreError(message, hint=HINT)


def refuse_client_encoding(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """The same for a connection that the user hands in, before anything is written on it. psycopg answers with bytes
    where the client encoding is SQL_ASCII, and cannot send every text in the others."""
    if connection.info.encoding != "utf-8":
        encoding = connection.info.parameter_status("client_encoding")
        raise InvalidValue(
            f"The connection has the client encoding {encoding}; dibs requires {NEEDED}.",
            hint="Execute SET client_encoding TO 'UTF8' on the connection first.",
        )
