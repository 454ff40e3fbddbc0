"""Tools to test handlers with any test runner: an isolated queue for each test, with a clock that the test controls.

Only the clock is replaced. Tasks are stored, claimed, run and finished by the same code as in a worker, and have the
same history; there are no threads, so everything happens in order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dibs.client_base import ClientBase
from dibs.errors import InvalidValue
from dibs.model.search import TaskFilter
from dibs.observe.metered import counted
from dibs.redaction import redact_url
from dibs.store.joining import has_begun, is_sqlalchemy
from dibs.store.open import open_isolated, sqlite_file
from dibs.store.operation import Operation
from dibs.testing.clock import Clock
from dibs.testing.sandbox import Sandbox

__all__ = ["Clock", "Sandbox", "isolated"]


@contextmanager
def isolated(app: ClientBase[Any], *, on: Any = None, url: str | None = None) -> Iterator[Sandbox]:
    """Let the app use a new, empty queue inside the block, and its former store again afterwards.

    The queue is a SQLite file in a temporary folder, whatever store the app has; `app.on(connection)` is refused.

    With `on`, the queue is in separate tables in the database of that connection, visible only to the connection:
    `app.on(connection)` joins its transactions, and a rollback removes the enqueued tasks. Commit or roll back before
    the block ends. It may be a connection of sqlite3 or psycopg (sync or async), a Connection of SQLAlchemy, a Session
    bound to one, a connection of Django, or its alias.

    With `url`, the queue is in the database at that URL, which belongs to the test and has no tasks:
    `app.on(connection)` joins the transactions of all connections to it. The tables stay after the block.
    """
    if on is not None and url is not None:
        raise InvalidValue("isolated() takes `on` or `url`, not both.", hint="A connection has a database already.")
    with _isolated_on(app, on) if on is not None else _isolated_at(app, url) if url else _isolated(app) as box:
        yield box


@contextmanager
def _isolated_on(app: ClientBase[Any], connection: Any) -> Iterator[Sandbox]:
    former, clock, begun = app._store, Clock(), has_begun(connection)
    store = open_isolated(connection, clock)
    if begun and not store.in_transaction:
        store.begin()
    began_inside = not store.in_transaction if begun is None else not begun
    roll_back = connection.rollback if is_sqlalchemy(connection) else store.roll_back
    store.run(store.registry.queues())  # raises here for a connection that cannot be used
    app._store = counted(store)
    try:
        yield Sandbox(app, clock)
    except BaseException:
        app._store = former
        if began_inside:
            roll_back()
        store.drop()
        raise
    app._store = former
    left_open = began_inside and store.in_transaction
    if left_open:
        roll_back()
    store.drop()
    if left_open and not is_sqlalchemy(connection):  # SQLAlchemy begins a transaction with any read
        raise InvalidValue(
            "A transaction was still open on the connection at the end of isolated(app, on=connection); "
            "it was rolled back.",
            hint="Commit or roll back inside the block.",
        )


@contextmanager
def _isolated(app: ClientBase[Any]) -> Iterator[Sandbox]:
    with tempfile.TemporaryDirectory(prefix="dibs-", ignore_cleanup_errors=True) as folder:
        url = f"sqlite:///{quote((Path(folder) / 'dibs.db').as_posix())}"
        with _using(app, url) as (store, clock):
            app._store = _SeparateStore(store)
            yield Sandbox(app, clock)


@contextmanager
def _isolated_at(app: ClientBase[Any], url: str) -> Iterator[Sandbox]:
    with _using(app, url) as (store, clock):
        if store.run(store.tasks.list_tasks(TaskFilter(limit=1))).tasks:
            raise InvalidValue(
                f"The store {redact_url(url)} has tasks, which a test would run.",
                hint="Give each test a database of its own; nothing was changed.",
            )
        if sqlite_file(url) is None:
            app._store = _BlockingStore(store)
        yield Sandbox(app, clock)


@contextmanager
def _using(app: ClientBase[Any], url: str) -> Iterator[tuple[Any, Clock]]:
    """Let the app use the store at the URL inside the block."""
    former, clock = (app._store, app.url), Clock()
    app.use_url(url, clock=clock)
    store = app._store
    try:
        yield store, clock
    finally:
        app._store, app.url = former
        store.close()


class _OtherStore:
    """A store whose calls a subclass changes."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _BlockingStore(_OtherStore):
    """The store of a sandbox on PostgreSQL, which blocks the event loop: the test waits for each call anyway, and the
    pool of an event loop would outlive the loop, because a fixture cannot close the pool."""

    def run(self, operation: Operation[Any], **options: Any) -> Any:
        return self._store.run(operation, **options)

    async def run_async(self, operation: Operation[Any], *, on: Any = None, **options: Any) -> Any:
        if on is not None:
            return await self._store.run_async(operation, on=on, **options)
        return self._store.run(operation, **options)


class _SeparateStore(_OtherStore):
    """The store of a sandbox, which refuses to join a transaction: that would write into the database of the
    connection, not into the sandbox."""

    def run(self, operation: Operation[Any], *, on: Any = None, **options: Any) -> Any:
        _refuse_to_join(on)
        return self._store.run(operation, **options)

    async def run_async(self, operation: Operation[Any], *, on: Any = None, **options: Any) -> Any:
        _refuse_to_join(on)
        return await self._store.run_async(operation, **options)


def _refuse_to_join(on: Any) -> None:
    if on is not None:
        raise InvalidValue(
            "app.on(connection) inside isolated(app) would write into the database of the connection.",
            hint="Use isolated(app, on=connection): the queue is then in separate tables of that database; or "
            "isolated(app, url=…), if the database belongs to the test. The pytest fixture `dibs` takes them from the "
            "fixtures dibs_connection and dibs_url.",
        )
