"""Fresh databases for every run, all alike, and the count afterwards that nothing was lost or done twice."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis

from bench.scenarios import Scenario, Verb
from bench.sides import TYPE, params
from dibs import Dibs, NewTask
from dibs.store.sqlite.connection import connect
from tests.helpers import postgres

FILL = 1000
COUNTS = "SELECT state, count(*) FROM dibs_tasks GROUP BY state"
EVENTS = "SELECT event, count(*) FROM dibs_history GROUP BY event"
FULL = {"synchronous": 2, "journal_mode": "wal"}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}

Counts = dict[str, int]


Fill = Callable[[str, int], None]
"""Creates the tables in an empty database, and this number of tasks."""


def fill_dibs(url: str, tasks: int) -> None:
    """Fill a database with tasks of dibs."""
    with Dibs(url) as app:
        app.migrate()
        for first in range(0, tasks, FILL):
            app.enqueue_many(NewTask(TYPE, params(n)) for n in range(first, min(first + FILL, tasks)))


class Engine(ABC):
    """Where databases come from: one is filled for each number of tasks, and copied for each run."""

    name: str
    version: str
    has_dibs = True
    kinds: tuple[str, ...] = ("drain", "enqueue", "mix", "pick-up", "idle", "growth", "contention")
    """What is measured on it."""

    workers: tuple[int, ...] = (1, 2)
    """How many worker processes drain it."""

    def __init__(self) -> None:
        self._filled: dict[tuple[Fill, int], str] = {}
        self._kept: list[str] = []

    @contextlib.contextmanager
    def fresh(self, scenario: Scenario) -> Iterator[str]:
        """The URL of a new database, with the scenario's tasks in it if it claims them."""
        tasks = scenario.total if scenario.claims else 0
        with self.filled(tasks, fill_dibs) as url:
            yield url

    @contextlib.contextmanager
    def filled(self, tasks: int, fill: Fill) -> Iterator[str]:
        """The URL of a copy of the database that `fill` made with this number of tasks."""
        if (fill, tasks) not in self._filled:
            self._filled[fill, tasks] = self._fill(tasks, fill)
        url = self._copy(self._filled[fill, tasks])
        try:
            yield url
        finally:
            self._drop(url)

    def empty(self) -> str:
        """The URL of a new database with nothing in it, which stays until all are removed."""
        self._kept.append(self._new())
        return self._kept[-1]

    def tidy(self, url: str) -> None:  # noqa: B027 - most do that as they go
        """What the database does by itself after a while, at once."""

    def close(self) -> None:
        """Remove what the copies were made from."""
        for url in [*self._filled.values(), *self._kept]:
            self._drop(url)

    def check(self, url: str, scenario: Scenario) -> None:
        """Raise unless every task is where it must be, with all lines of its history."""
        found = self.count(url, COUNTS), self.count(url, EVENTS)
        expected = _expected(scenario)
        if found != expected:
            raise RuntimeError(f"After '{scenario.name}' on {self.name} there is {found}; it should be {expected}.")

    @property
    def family(self) -> str:
        """What queues call it, however it is set up."""
        return self.name.partition(",")[0]

    @property
    def processes(self) -> list[psutil.Process]:
        """The server's processes, where there is a server and it is on this machine."""
        return []

    def _fill(self, tasks: int, fill: Fill) -> str:
        url = self._new()
        fill(url, tasks)
        return url

    @abstractmethod
    def _new(self) -> str: ...

    @abstractmethod
    def _copy(self, url: str) -> str: ...

    @abstractmethod
    def _drop(self, url: str) -> None: ...

    @abstractmethod
    def count(self, url: str, sql: str) -> Counts:
        """The rows of a query for names and numbers."""


class Sqlite(Engine):
    """Files in a temporary folder (TMPDIR; on a RAM disk fsync would cost nothing)."""

    name = "SQLite"

    def __init__(self) -> None:
        super().__init__()
        self.version = sqlite3.sqlite_version
        self._folder = tempfile.TemporaryDirectory(prefix="dibs-bench-")
        self._numbers = itertools.count(1)
        with Dibs(url := self._new()) as app:
            app.migrate()
        with contextlib.closing(connect(_path(url))) as connection:
            require_settings(FULL, {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in FULL})

    def _new(self) -> str:
        return f"sqlite:///{self._folder.name}/{next(self._numbers)}.db"

    def _copy(self, url: str) -> str:
        copy = self._new()
        shutil.copy(_path(url), _path(copy))  # its last connection is closed, so there is no WAL beside it
        with _path(copy).open("rb") as file:
            os.fsync(file.fileno())
        return copy

    def _drop(self, url: str) -> None:
        for file in _path(url).parent.glob(f"{_path(url).name}*"):
            file.unlink()

    def count(self, url: str, sql: str) -> Counts:
        with contextlib.closing(sqlite3.connect(_path(url))) as connection:
            return dict(connection.execute(sql).fetchall())


class Postgres(Engine):
    """The server named in DIBS_TEST_POSTGRES, or a private one; only if it keeps what it commits."""

    name = "PostgreSQL"

    def __init__(self) -> None:
        super().__init__()
        os.environ.setdefault("DIBS_TEST_PGDATA", postgres.new_data_folder())
        self._server = postgres.start()
        with psycopg.connect(self._server) as connection:
            self.version = str(connection.info.parameter_status("server_version"))
            rows = connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(DURABLE)])
            require_settings(DURABLE, dict(rows.fetchall()))

    def _new(self) -> str:
        return postgres.empty(self._server)

    def _copy(self, url: str) -> str:
        return postgres.clone(self._server, str(psycopg.conninfo.conninfo_to_dict(url)["dbname"]))

    @property
    def processes(self) -> list[psutil.Process]:
        """See Engine."""
        with psycopg.connect(self._server) as connection, contextlib.suppress(psutil.Error):
            backend = psutil.Process(connection.info.backend_pid)
            if backend.name().startswith("postgres") and (server := backend.parent()):
                return [server, *server.children()]
        return []

    def _fill(self, tasks: int, fill: Fill) -> str:
        url = super()._fill(tasks, fill)
        self.tidy(url)
        return url

    def tidy(self, url: str) -> None:
        """See Engine."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")

    def _drop(self, url: str) -> None:
        postgres.drop(self._server, url)

    def count(self, url: str, sql: str) -> Counts:
        with postgres.connect(url) as connection:
            return dict(connection.execute(sql.encode()).fetchall())


ENGINES: dict[str, type[Engine]] = {"sqlite": Sqlite, "postgres": Postgres}


@contextlib.contextmanager
def counting(url: str) -> Iterator[Callable[[Any], int]]:
    """What counts, on a connection that is open before it matters: a query for a number, or a function of a client."""
    if url.startswith("redis:"):
        with redis.Redis.from_url(url) as client:
            yield lambda function: int(function(client))
        return
    connection: Any = (
        sqlite3.connect(_path(url)) if url.startswith("sqlite:") else psycopg.connect(url, autocommit=True)
    )
    with contextlib.closing(connection):
        yield lambda query: int(connection.execute(query).fetchone()[0])


def number(url: str, query: Any) -> int:
    """What a query counts."""
    with counting(url) as count:
        return count(query)


def _expected(scenario: Scenario) -> tuple[Counts, Counts]:
    tasks = scenario.total
    if scenario.verb is Verb.CLAIM:
        return {"claimed": tasks}, {"enqueued": tasks, "claimed": tasks}
    if scenario.verb is Verb.CYCLE:
        return {"completed": tasks}, {"enqueued": tasks, "claimed": tasks, "completed": tasks}
    return {"pending": tasks}, {"enqueued": tasks}


def require_settings(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Raise unless the database keeps what it was asked to keep."""
    if found != wanted:
        raise RuntimeError(f"The settings are not those to measure: {found} instead of {wanted}.")


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
