"""Objects that users hand to `app.on`, of every kind, used by plain calls."""

from __future__ import annotations

import inspect
import itertools
import sqlite3
from collections.abc import Callable
from typing import Any, Protocol

import aiosqlite
import asyncpg
import django
import psycopg
import psycopg2
import sqlalchemy as sa
from django.conf import settings
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.helpers.databases import sqlite_path

settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
django.setup()

Wait = Callable[[Any], Any]
"""Returns the result of a coroutine; anything else as it is."""


class Given(Protocol):
    """A kind of object, opened on a database. `given`: what a test hands to `app.on`."""

    given: Any

    def execute(self, sql: str) -> None:
        """Run a statement of the user."""

    def commit(self) -> None:
        """Commit."""

    def rollback(self) -> None:
        """Roll back."""

    def set_savepoint(self) -> None:
        """Set a savepoint."""

    def undo(self) -> None:
        """Roll back to the savepoint."""

    def close(self) -> None:
        """Close the connection."""


class OfDriver:
    """A connection or cursor of a driver. `execute`: its own, for drivers without a method of that name."""

    def __init__(self, wait: Wait, connection: Any, *, cursor: bool = False) -> None:
        self._wait = wait
        self._connection = wait(connection)
        self.given = wait(self._connection.cursor()) if cursor else self._connection

    def execute(self, sql: str) -> None:
        connection = self._connection
        self._wait((connection if hasattr(connection, "execute") else connection.cursor()).execute(sql))

    def commit(self) -> None:
        self._wait(self._connection.commit())

    def rollback(self) -> None:
        self._wait(self._connection.rollback())

    def set_savepoint(self) -> None:
        self.execute("SAVEPOINT mine")

    def undo(self) -> None:
        self.execute("ROLLBACK TO SAVEPOINT mine")

    def close(self) -> None:
        self._wait(self._connection.close())


class OfAsyncpg(OfDriver):
    """A connection of asyncpg, in a transaction that asyncpg has begun."""

    def __init__(self, wait: Wait, connection: Any, *, codec: bool = False) -> None:
        super().__init__(wait, connection)
        if codec:
            wait(self._connection.set_type_codec("json", encoder=repr, decoder=repr, schema="pg_catalog"))
        self._begin()

    def _begin(self) -> None:
        self._transaction = self._connection.transaction()
        self._wait(self._transaction.start())

    def commit(self) -> None:
        self._wait(self._transaction.commit())
        self._begin()

    def rollback(self) -> None:
        self._wait(self._transaction.rollback())
        self._begin()


class OfSqlAlchemy:
    """A Connection or Session of SQLAlchemy, sync or async."""

    def __init__(self, wait: Wait, engine: Any, open_one: Callable[[Any], Any]) -> None:
        self._wait, self._engine = wait, engine
        self.given = open_one(engine)
        if not hasattr(self.given, "get_bind"):
            self.given = wait(self.given)

    def execute(self, sql: str) -> None:
        self._wait(self.given.execute(sa.text(sql)))

    def commit(self) -> None:
        self._wait(self.given.commit())

    def rollback(self) -> None:
        self._wait(self.given.rollback())

    def set_savepoint(self) -> None:
        nested = self.given.begin_nested()
        self._nested = self._wait(_started(nested)) if hasattr(nested, "__await__") else nested

    def undo(self) -> None:
        self._wait(self._nested.rollback())

    def close(self) -> None:
        self._wait(self.given.close())
        self._wait(self._engine.dispose())


class OfDjango:
    """A connection of Django in an atomic block, or its alias."""

    def __init__(self, url: str, *, by_alias: bool = False) -> None:
        self._alias = f"test-{next(_NUMBERS)}"
        connections.databases[self._alias] = {**connections.databases["default"], **_of_django(url)}
        self._connection = connections[self._alias]
        self.given: Any = self._alias if by_alias else self._connection
        self._begin()

    def _begin(self) -> None:
        self._block = transaction.atomic(using=self._alias)
        self._block.__enter__()

    def execute(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def commit(self) -> None:
        self._block.__exit__(None, None, None)
        self._begin()

    def rollback(self) -> None:
        self._connection.set_rollback(True)
        self.commit()

    def set_savepoint(self) -> None:
        self._savepoint = self._connection.savepoint()

    def undo(self) -> None:
        self._connection.savepoint_rollback(self._savepoint)

    def close(self) -> None:
        self._connection.set_rollback(True)
        self._block.__exit__(None, None, None)
        self._connection.close()
        del connections[self._alias], connections.databases[self._alias]


_NUMBERS = itertools.count(1)


def _of_django(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": sqlite_path(url)}
    parts: dict[str, Any] = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.pop("dbname"),
        "USER": parts.pop("user", ""),
        "PASSWORD": parts.pop("password", ""),
        "HOST": parts.pop("host", ""),
        "PORT": parts.pop("port", ""),
        "OPTIONS": parts,
    }


async def _started(nested: Any) -> Any:
    return await nested


def sync_engine(url: str) -> Any:
    return sa.create_engine(url, poolclass=NullPool)


def _async(url: str) -> Any:
    return create_async_engine(url, poolclass=NullPool)


def with_driver(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


Opens = Callable[[str, Wait], Given]

KINDS: dict[tuple[str, str], dict[str, Opens]] = {
    ("sqlite", "sync"): {
        "sqlite3 cursor": lambda url, wait: OfDriver(wait, sqlite3.connect(sqlite_path(url)), cursor=True),
        "Connection": lambda url, wait: OfSqlAlchemy(wait, sync_engine(url), lambda engine: engine.connect()),
        "Session": lambda url, wait: OfSqlAlchemy(wait, sync_engine(url), Session),
        "scoped_session": lambda url, wait: OfSqlAlchemy(
            wait, sync_engine(url), lambda engine: scoped_session(sessionmaker(engine))
        ),
        "Django connection": lambda url, wait: OfDjango(url),
        "Django alias": lambda url, wait: OfDjango(url, by_alias=True),
    },
    ("postgres", "sync"): {
        "psycopg cursor": lambda url, wait: OfDriver(wait, psycopg.connect(url), cursor=True),
        "psycopg2": lambda url, wait: OfDriver(wait, psycopg2.connect(url)),
        "psycopg2 cursor": lambda url, wait: OfDriver(wait, psycopg2.connect(url), cursor=True),
        "Connection on psycopg": lambda url, wait: OfSqlAlchemy(
            wait, sync_engine(with_driver(url, "psycopg")), lambda engine: engine.connect()
        ),
        "Session on psycopg": lambda url, wait: OfSqlAlchemy(wait, sync_engine(with_driver(url, "psycopg")), Session),
        "Session on psycopg2": lambda url, wait: OfSqlAlchemy(wait, sync_engine(with_driver(url, "psycopg2")), Session),
        "Django connection": lambda url, wait: OfDjango(url),
        "Django alias": lambda url, wait: OfDjango(url, by_alias=True),
    },
    ("sqlite", "async"): {
        "aiosqlite": lambda url, wait: OfDriver(wait, aiosqlite.connect(sqlite_path(url))),
        "AsyncConnection": lambda url, wait: OfSqlAlchemy(
            wait, _async(with_driver(url, "aiosqlite")), lambda engine: engine.connect()
        ),
        "AsyncSession": lambda url, wait: OfSqlAlchemy(wait, _async(with_driver(url, "aiosqlite")), AsyncSession),
    },
    ("postgres", "async"): {
        "psycopg cursor": lambda url, wait: OfDriver(wait, psycopg.AsyncConnection.connect(url), cursor=True),
        "asyncpg": lambda url, wait: OfAsyncpg(wait, asyncpg.connect(url)),
        "asyncpg with a codec for JSON": lambda url, wait: OfAsyncpg(wait, asyncpg.connect(url), codec=True),
        "AsyncConnection on asyncpg": lambda url, wait: OfSqlAlchemy(
            wait, _async(with_driver(url, "asyncpg")), lambda engine: engine.connect()
        ),
        "AsyncSession on asyncpg": lambda url, wait: OfSqlAlchemy(
            wait, _async(with_driver(url, "asyncpg")), AsyncSession
        ),
        "AsyncSession on psycopg": lambda url, wait: OfSqlAlchemy(
            wait, _async(with_driver(url, "psycopg")), AsyncSession
        ),
    },
}
"""Every kind of object, by the engine and the mode of the client that takes it."""


def waits_on(loop: Any) -> Wait:
    """Runs coroutines on the loop of the client; without a loop, results are plain values."""

    async def awaited(work: Any) -> Any:
        return await work

    def wait(work: Any) -> Any:
        return loop.run(awaited(work)) if loop is not None and inspect.isawaitable(work) else work

    return wait
