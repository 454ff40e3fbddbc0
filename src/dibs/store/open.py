"""Open the store at a URL. Only this module imports the engines."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from dibs.errors import InvalidValue
from dibs.redaction import redact_url
from dibs.store.contract import Store, StoreClock

if TYPE_CHECKING:
    from dibs.store.borrowed import BorrowedEngine
    from dibs.store.postgres.store import PostgresStore


def open_store(url: str, *, api_key: str | None = None, clock: StoreClock | None = None, migrate: bool = True) -> Store:
    """The store at the URL; nothing is opened before the first operation."""
    if _split(url).scheme in ("http", "https"):
        return _remote(url, api_key, clock)
    if api_key is not None:
        raise InvalidValue("An API key is for the URL of a server (http or https).", hint="Leave api_key out.")
    if (path := sqlite_file(url)) is not None:
        return _sqlite(path, clock, migrate)
    if _split(url).scheme in ("postgresql", "postgres"):
        return _postgres(url, clock, migrate)
    raise _unknown(url)


def open_isolated(given: Any, clock: StoreClock) -> IsolatedStore:
    """A store in tables of its own that only this connection sees: see dibs.testing."""
    from dibs.store.joining import resolve_fixed

    connection = resolve_fixed(given)
    if isinstance(connection, sqlite3.Connection):
        from dibs.store.sqlite.isolated import IsolatedSqliteStore

        return IsolatedSqliteStore(connection, clock)
    if "psycopg" in sys.modules:
        from dibs.store.postgres.isolated import IsolatedPostgresStore, is_connection

        if is_connection(connection):
            return IsolatedPostgresStore(connection, clock)
    raise InvalidValue(
        f"A {type(connection).__module__}.{type(connection).__qualname__} is not a connection for isolated().",
        hint="Give a connection of sqlite3 or psycopg (sync or async), or a connection of SQLAlchemy or Django over "
        "one of these; or isolated(app, url=…).",
    )


@contextmanager
def temporary_schema(url: str) -> Iterator[str]:
    """Create a schema in the PostgreSQL database for the block, and yield the URL by which programs use it."""
    if _split(url).scheme not in ("postgresql", "postgres"):
        raise InvalidValue(f"{redact_url(url)!r} is not the URL of a PostgreSQL database.")
    _import_postgres()
    from dibs.store.postgres import temporary

    with temporary.schema(url) as of_schema:
        yield of_schema


def borrowed_engine(name: str) -> BorrowedEngine:
    """The engine of a BorrowedStore: "sqlite" or "postgresql"."""
    if name == "sqlite":
        from dibs.store.sqlite.borrowed import BorrowedSqlite

        return BorrowedSqlite()
    try:
        from dibs.store.postgres.borrowed import BorrowedPostgres
    except ImportError as error:
        raise _without_psycopg(error) from None
    return BorrowedPostgres()


class IsolatedStore(Store, Protocol):
    """A store on a connection of a program, until `drop`."""

    @property
    def isolated_on(self) -> Any:
        """The connection of the driver, which must stay open."""

    @property
    def in_transaction(self) -> bool:
        """True while the connection has an open transaction."""

    def begin(self) -> None:
        """Begin a transaction in the database, where the library above the driver has one that it has not begun there
        yet."""

    def roll_back(self) -> None:
        """End the connection's transaction, if there is one."""

    def drop(self) -> None:
        """Remove the tables."""


def sqlite_file(url: str) -> Path | None:
    """The SQLite file in the URL; None for the URL of another engine."""
    parts = _split(url)
    if parts.scheme != "sqlite":
        return None
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path or path == ":memory:" or parts.query:
        raise InvalidValue(
            f"{redact_url(url)!r} is not the URL of a SQLite file.",
            hint="Use sqlite:///file.db, or sqlite:////tmp/file.db for an absolute path; dibs keeps tasks in a file.",
        )
    return Path(path)


def _split(url: str) -> SplitResult:
    if not isinstance(url, str):  # for example a Path
        raise _unknown(url)
    try:
        return urlsplit(url)
    except ValueError:  # an unclosed bracket
        raise _unknown(url) from None


def _unknown(url: Any) -> InvalidValue:
    shown = redact_url(url) if isinstance(url, str) else url
    return InvalidValue(
        f"{shown!r} is not the URL of a store.",
        hint="Use sqlite:///file.db (four slashes for an absolute path), postgresql://user@host/database "
        "or http://host:8787.",
    )


def _sqlite(path: Path, clock: StoreClock | None, migrate: bool) -> Store:
    from dibs.store.sqlite import connection
    from dibs.store.sqlite.store import SqliteStore

    return SqliteStore(path, clock=clock or connection.clock, migrate=migrate)


def _postgres(url: str, clock: StoreClock | None, migrate: bool) -> Store:
    return _import_postgres()(url, clock=clock, migrate=migrate)


def _import_postgres() -> type[PostgresStore]:
    try:
        from dibs.store.postgres.store import PostgresStore
    except ImportError as error:
        raise _without_psycopg(error) from None
    return PostgresStore


def _without_psycopg(error: ImportError) -> InvalidValue:
    return InvalidValue(
        f"PostgreSQL needs psycopg, which is not installed ({error}).", hint="pip install 'dibs[postgres]'"
    )


def _remote(url: str, api_key: str | None, clock: StoreClock | None) -> Store:
    if clock is not None:
        raise InvalidValue("A store behind a server takes no clock: the server's database has the clock.")
    try:
        from dibs.store.remote.store import RemoteStore
    except ImportError as error:
        raise InvalidValue(
            f"A store behind a server needs httpx, which is not installed ({error}).", hint="pip install 'dibs[http]'"
        ) from None
    return RemoteStore(url, api_key or os.environ.get("DIBS_API_KEY") or None)
