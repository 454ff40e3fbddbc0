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
from dibs.observe.metered import counted
from dibs.store.open import open_isolated
from dibs.store.operation import Operation
from dibs.testing.sandbox import Clock, Sandbox

__all__ = ["Clock", "Sandbox", "isolated"]


@contextmanager
def isolated(app: ClientBase[Any], *, on: Any = None) -> Iterator[Sandbox]:
    """Let the app use a new, empty queue inside the block, and its former store again afterwards.

    The queue is a SQLite file in a temporary folder, whatever store the app has; `app.on(connection)` is refused.

    With `on`, a connection of sqlite3 or psycopg (sync or async), the queue is in separate tables in the database of
    that connection, visible only to the connection: `app.on(connection)` joins its transactions, and a rollback removes
    the enqueued tasks. Commit or roll back before the block ends.
    """
    with _isolated(app) if on is None else _isolated_on(app, on) as box:
        yield box


@contextmanager
def _isolated_on(app: ClientBase[Any], connection: Any) -> Iterator[Sandbox]:
    former, clock = app._store, Clock()
    store = open_isolated(connection, clock)
    began_inside = not store.in_transaction
    store.run(store.registry.queues())  # raises here for a connection that cannot be used
    app._store = counted(store)
    try:
        yield Sandbox(app, clock)
    except BaseException:
        app._store = former
        if began_inside:
            store.roll_back()
        store.drop()
        raise
    app._store = former
    left_open = began_inside and store.in_transaction
    if left_open:
        store.roll_back()
    store.drop()
    if left_open:
        raise InvalidValue(
            "A transaction was still open on the connection at the end of isolated(app, on=connection); "
            "it was rolled back.",
            hint="Commit or roll back inside the block.",
        )


@contextmanager
def _isolated(app: ClientBase[Any]) -> Iterator[Sandbox]:
    former = app._store, app.url
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="dibs-", ignore_cleanup_errors=True) as folder:
        app.use_url(f"sqlite:///{quote((Path(folder) / 'dibs.db').as_posix())}", clock=clock)
        store = app._store
        app._store = _SeparateStore(store)
        try:
            yield Sandbox(app, clock)
        finally:
            app._store, app.url = former
            store.close()


class _SeparateStore:
    """The store of a sandbox, which refuses to join a transaction: that would write into the database of the
    connection, not into the sandbox."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

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
            hint="Use isolated(app, on=connection): the queue is then in separate tables of that database.",
        )
