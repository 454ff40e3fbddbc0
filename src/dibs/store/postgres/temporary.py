"""A schema of its own for a test, in a database that other tests use at the same time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import sql

from dibs.errors import StoreUnavailable
from dibs.store.postgres.connection import translate
from dibs.store.postgres.outages import ServerUnreachable, connect

LOCK_TIMEOUT = "10s"
"""How long the drop waits for a transaction that the test has left open."""


@contextmanager
def schema(url: str) -> Iterator[str]:
    """Create a schema for the block, and yield the URL whose sessions have only this schema in their search path: with
    `public` in it, a session would find the tables of another queue there."""
    name = f"dibs_test_{secrets.token_hex(8)}"
    _execute(url, sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    try:
        yield _with_search_path(url, name)
    finally:
        _execute(url, sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def _with_search_path(url: str, name: str) -> str:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query["options"] = f"{query.get('options', '')} -c search_path={name}".strip()
    return parts._replace(query=urlencode(query, quote_via=quote)).geturl()


def _execute(url: str, statement: sql.Composed) -> None:
    try:
        with connect(url) as connection:
            connection.execute(sql.SQL("SET lock_timeout = {}").format(LOCK_TIMEOUT))
            connection.execute(statement)
    except ServerUnreachable as unreachable:
        raise StoreUnavailable(f"PostgreSQL cannot be reached ({unreachable}).") from unreachable
    except psycopg.Error as error:
        raise translate(error, writing=True) from error
