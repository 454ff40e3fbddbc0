"""Every contract test runs on SQLite and PostgreSQL, sync and async, on a database of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from tests.helpers import mutation, postgres
from tests.helpers.clients import AsyncAsSync, Clock, Loop

ENGINES = ("sqlite", "postgres")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the data folder of the private PostgreSQL once, before worker processes inherit the environment."""
    os.environ.setdefault("DIBS_TEST_PGDATA", postgres.new_data_folder())
    if broken := os.environ.get("DIBS_TEST_MUTATION"):
        mutation.apply(mutation.read(broken))


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The URL of the PostgreSQL server."""
    return postgres.start()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """The name of a migrated database to clone."""
    return postgres.make_template(postgres_server)


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: str, postgres_template: str) -> Iterator[postgres.Lending]:
    """Migrated databases for one test after the other."""
    databases = postgres.Lending(postgres_server, postgres_template)
    yield databases
    databases.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The engine under test."""
    return str(request.param)


@pytest.fixture
def url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new, migrated database of the engine under test."""
    if engine == "sqlite":
        yield f"sqlite:///{tmp_path}/dibs.db"
        return
    databases: postgres.Lending = request.getfixturevalue("postgres_databases")
    database = databases.lend()
    yield database
    databases.take_back(database)


@pytest.fixture
def empty_url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new database of the engine under test with nothing in it."""
    if engine == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
        return
    server = request.getfixturevalue("postgres_server")
    database = postgres.empty(server)
    yield database
    postgres.drop(server, database)


@pytest.fixture(params=("sync", "async"))
def mode(request: pytest.FixtureRequest) -> str:
    """The client under test."""
    return str(request.param)


@pytest.fixture
def clock() -> Clock:
    """The database's clock, turned by hand."""
    return Clock()


@pytest.fixture
def open_app(mode: str) -> Iterator[Callable[..., Any]]:
    """Opens clients of the kind under test, and closes them after the test."""
    opened: list[Any] = []
    loops: list[Loop] = []

    def open_one(url: str, **options: Any) -> Any:
        if mode == "sync":
            app: Any = dibs.Dibs(url, **options)
        else:
            loops.append(Loop())
            app = AsyncAsSync(dibs.AsyncDibs(url, **options), loops[-1])
        opened.append(app)
        return app

    yield open_one
    for app in opened:
        app.close()
    for loop in loops:
        loop.close()


@pytest.fixture
def app(url: str, clock: Clock, open_app: Callable[..., Any]) -> Any:
    """The client under test, on a new database, with a clock that stands still."""
    return open_app(url, clock=clock)
