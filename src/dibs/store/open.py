"""From a URL to a store: the only place that knows every engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from dibs.errors import InvalidValue
from dibs.store.contract import Store

Clock = Callable[[], int]


def open_store(url: str, *, clock: Clock | None = None, migrate: bool = True) -> Store:
    """The store at the URL; nothing is opened before the first operation."""
    if (path := sqlite_file(url)) is not None:
        return _sqlite(path, clock, migrate)
    if _split(url).scheme in ("postgresql", "postgres"):
        return _postgres(url, clock, migrate)
    raise _unknown(url)


def sqlite_file(url: str) -> Path | None:
    """The file that the URL names; None if it leads elsewhere."""
    parts = _split(url)
    if parts.scheme != "sqlite":
        return None
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path or path == ":memory:" or parts.query:
        raise InvalidValue(
            f"{url!r} names no SQLite file.",
            hint="Use sqlite:///file.db, or sqlite:////tmp/file.db for an absolute path; dibs keeps tasks in a file.",
        )
    return Path(path)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # brackets without an end
        raise _unknown(url) from None


def _unknown(url: str) -> InvalidValue:
    return InvalidValue(
        f"dibs does not know where {url!r} leads.",
        hint="Use sqlite:///file.db (four slashes for an absolute path) or postgresql://user@host/database.",
    )


def _sqlite(path: Path, clock: Clock | None, migrate: bool) -> Store:
    from dibs.store.sqlite import connection
    from dibs.store.sqlite.store import SqliteStore

    return SqliteStore(path, clock=clock or connection.clock, migrate=migrate)


def _postgres(url: str, clock: Clock | None, migrate: bool) -> Store:
    try:
        from dibs.store.postgres.store import PostgresStore
    except ImportError as error:
        raise InvalidValue(
            f"PostgreSQL needs psycopg, which is not installed ({error}).", hint="pip install 'dibs[postgres]'"
        ) from None
    return PostgresStore(url, clock=clock, migrate=migrate)
