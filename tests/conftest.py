"""Every contract test runs on SQLite and PostgreSQL, sync and async, and over HTTP, on a database of its own.

Over HTTP the database is a SQLite file (or PostgreSQL) as well: `url` is its URL, and the clients that `open_app` opens
speak to a server before it. So a test can look at the rows themselves on every engine.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import dibs
from tests.helpers import memory, mutation, postgres
from tests.helpers.clients import AsyncAsSync, Clock, Loop

ENGINES = ("sqlite", "postgres")
SERVED = {"http": "sqlite", "http+postgres": "postgres"}
"""Engine under test -> the engine of the database that its server stands before."""

AT_THE_CORE = frozenset({"test_claim", "test_fencing", "test_finalization", "test_finish", "test_idempotency"})
"""Contracts about racing and repeating. A server must keep them whatever its database; and they run sync and async on
each engine."""

CONTRACTS = frozenset({"contract", "workflow"})
"""The folders of contract tests."""

ABOVE = frozenset({"browser", "cli", "server", "stress"})
"""The folders of tests of what stands above the store, and of short plays of what `make faults` plays on both."""

ON_SQLITE_ONLY = frozenset({"test_examples"})
"""To a worker in another language the store is a URL; what stands behind the server is tested elsewhere."""


def _hear_ctrl_c() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would everything that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Choose where files are kept, once, before worker processes inherit the environment."""
    memory.keep_files_there()
    _hear_ctrl_c()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process that a test starts compiles dibs anew
    os.environ.setdefault("DIBS_TEST_PGDATA", postgres.new_data_folder())
    if broken := os.environ.get("DIBS_TEST_MUTATION"):
        mutation.apply(mutation.read(broken))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the short suite some tests take turns; with DIBS_TEST_EVERYTHING all run in every way.

    A contract test runs sync or async, the one on SQLite and the other on PostgreSQL: the two differ only in how a
    statement is sent. Those at the core run both ways. What stands above the store (the command line, the server and
    its pages) is tested on SQLite or on PostgreSQL: the store below is tested on both. So is what takes_turns. Over
    HTTP every fourth contract test is run, and all of those at the core.
    """
    items.sort(key=_turn)
    if os.environ.get("DIBS_TEST_EVERYTHING"):
        return
    several = _on_several_engines(items)
    left_out = {
        item
        for item in items
        if _is_other_mode(item) or _is_spared(item) or (_name_of(item) in several and _is_other_engine(item))
    }
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _turn(item: pytest.Item) -> int:
    """The longest test comes first, so that nobody waits for it in the end; the browser tests come together, so that a
    run starts one browser and not a dozen."""
    return 0 if item.path.stem == "test_schemathesis" else 1 if "browser" in item.path.parts else 2


def _is_other_mode(item: pytest.Item) -> bool:
    engine = _params(item).get("engine")
    if engine is None or CONTRACTS.isdisjoint(item.path.parts):
        return False
    if engine not in SERVED and "contract" in item.path.parts and item.path.stem in AT_THE_CORE:
        return False
    turn = crc32(item.originalname.encode()) + ("postgres" in engine)  # type: ignore[attr-defined]
    mode = ("sync", "async")[turn % 2]
    return _params(item).get("mode", mode) != mode


def _is_spared(item: pytest.Item) -> bool:
    """Over HTTP, away from the core, and it is the turn of the others."""
    served = _params(item).get("engine") in SERVED and not CONTRACTS.isdisjoint(item.path.parts)
    return served and item.path.stem not in AT_THE_CORE and crc32(item.nodeid.encode()) % 4 > 0


def _is_other_engine(item: pytest.Item) -> bool:
    return _params(item)["engine"] != ENGINES[crc32(_name_of(item).encode()) % 2]


def _on_several_engines(items: list[pytest.Item]) -> set[str]:
    """Tests that take turns, and would run on both engines."""
    engines: dict[str, set[str]] = {}
    for item in filter(_takes_turns, items):
        engines.setdefault(_name_of(item), set()).add(_params(item)["engine"])
    return {name for name, found in engines.items() if found == set(ENGINES)}


def _takes_turns(item: pytest.Item) -> bool:
    said = item.get_closest_marker("takes_turns") is not None or not ABOVE.isdisjoint(item.path.parts)
    return said and "engine" in _params(item)


def _name_of(item: pytest.Item) -> str:
    """The test, whatever its engine."""
    return re.sub(r"(?<=[\[-])(sqlite|postgres)(?=[\]-])", "engine", item.nodeid)


def _params(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test its engines, unless it names them itself."""
    named = any("engine" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "engine" in metafunc.fixturenames and not named:
        metafunc.parametrize("engine", engines_for(metafunc), indirect=True)


def engines_for(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """Contract tests also run over HTTP, but for those that are about the database itself."""
    if metafunc.definition.path.stem in ON_SQLITE_ONLY:
        return ("sqlite",)
    about_database = metafunc.definition.get_closest_marker("database") is not None
    is_contract = not CONTRACTS.isdisjoint(metafunc.definition.path.parts)
    if about_database or "open_app" not in metafunc.fixturenames or not is_contract:
        return ENGINES
    on_postgres = metafunc.definition.path.stem in AT_THE_CORE
    return (*ENGINES, *SERVED) if on_postgres else (*ENGINES, "http")


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The engine under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def house() -> Iterator[Any]:
    """Where servers run."""
    from tests.helpers.served import House

    house = House()
    yield house
    house.close()


@pytest.fixture
def url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new, migrated database of the engine under test."""
    if SERVED.get(engine, engine) == "sqlite":
        yield f"sqlite:///{tmp_path}/dibs.db"
        return
    databases: postgres.Lending = request.getfixturevalue("postgres_databases")
    database = databases.lend()
    yield database
    databases.take_back(database)


@pytest.fixture
def empty_url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new database of the engine under test with nothing in it."""
    if SERVED.get(engine, engine) == "sqlite":
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
def open_app(mode: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens clients of the kind under test, and closes them after the test."""
    opened: list[Any] = []
    loops: list[Loop] = []
    with contextlib.ExitStack() as servers:
        way = Served(request, servers) if in_params(request, "engine") in SERVED else directly

        def open_one(url: str, **options: Any) -> Any:
            place, options = way(url, options)
            if mode == "sync":
                app: Any = dibs.Dibs(place, **options)
            else:
                loops.append(Loop())
                app = AsyncAsSync(dibs.AsyncDibs(place, **options), loops[-1])
            opened.append(app)
            return app

        yield open_one
        for app in opened:
            app.close()
        for loop in loops:
            loop.close()


def in_params(request: pytest.FixtureRequest, name: str) -> Any:
    """What the test was parametrized with under this name."""
    callspec = getattr(request.node, "callspec", None)
    return None if callspec is None else callspec.params.get(name)


def directly(url: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The way to a database: there is nothing in between."""
    return url, options


class Served:
    """The way over HTTP: a server before each database, with the test's clock, shared by all clients of the test."""

    def __init__(self, request: pytest.FixtureRequest, servers: contextlib.ExitStack) -> None:
        self._request, self._servers = request, servers
        self._urls: dict[tuple[Any, ...], str] = {}

    def __call__(self, url: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The server's URL, and what is left of the options."""
        of_database = {name: options[name] for name in ("clock", "migrate") if name in options}
        key = (url, *of_database.items())
        if key not in self._urls:
            house = self._request.getfixturevalue("house")
            self._urls[key] = self._servers.enter_context(house.serving(url, **of_database))
        return self._urls[key], {name: options[name] for name in options if name not in of_database}


@pytest.fixture
def app(url: str, clock: Clock, open_app: Callable[..., Any]) -> Any:
    """The client under test, on a new database, with a clock that stands still."""
    return open_app(url, clock=clock)


@pytest.fixture
def new_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has counted nothing yet: in a run of all tests the labels have seen more values than they
    tell apart."""
    from dibs.observe import sharing

    for family in sharing.FAMILIES:
        monkeypatch.setattr(family, "_series", {values: family._nothing() for values in family._foreseen()})
        for label in family.labels:
            monkeypatch.setattr(label, "_known", set(label.fixed))
