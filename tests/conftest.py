"""Fixtures of all tests: an engine, a database of its own, a client, a clock.

The matrix (tests/matrix.py) says on which engines and in which modes a test runs. Over HTTP the database is a SQLite
file or a PostgreSQL database as well: `url` is its URL, and the clients that `open_app` opens speak to a server in
front of it. So a test can look at the rows themselves on every engine.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from tests import matrix
from tests.helpers import memory, mutation, postgres
from tests.helpers.clients import AsyncAsSync, Clock, Loop

pytest_plugins = ["tests.durations"]

ENGINES = ("sqlite", "postgres")
SERVED = {"http": "sqlite", "http+postgres": "postgres"}
"""Engine under test -> the engine of the database behind its server."""

CONTRACTS = frozenset({"contract", "workflow"})
"""The folders of contract tests."""

NOWHERE = matrix.Way("no-engine", "no-mode")
"""The way of a test that the chosen suite does not run: pytest wants at least one case for each test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The three suites of the matrix."""
    parser.addoption(
        "--suite",
        choices=matrix.SUITES,
        default=os.environ.get("DIBS_TEST_SUITE", "test"),
        help="which part of the matrix to run: test (default), proof (what CI adds) or stress (everything)",
    )


def suite_for(config: pytest.Config, path: Path) -> str:
    """The chosen suite. A file that is named on the command line and is not part of `test` runs as in `proof`."""
    chosen: str = config.getoption("--suite")
    group = matrix.group_of(path)
    if chosen == "test" and not group.test and _is_named(config, path):
        return "proof"
    return chosen


def _is_named(config: pytest.Config, path: Path) -> bool:
    named = [Path(config.invocation_params.dir, str(arg).split("::")[0]) for arg in config.args]
    return any(each != matrix.ROOT and path.is_relative_to(each) and each != matrix.ROOT.parent for each in named)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file that the chosen suite does not run, and no conftest.py of a folder without such a file."""
    if not collection_path.is_relative_to(matrix.ROOT):
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    return None if any(_is_run(config, file) for file in files) else True


def _is_run(config: pytest.Config, file: Path) -> bool:
    if "frameworks" in file.parts and "DIBS_TEST_FRAMEWORK" not in os.environ:
        return False  # `python -m tests.frameworks` runs them, where the frameworks are installed
    return not file.name.startswith("test_") or bool(matrix.group_of(file).letters(suite_for(config, file)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import the tests before they are collected, each test process in another order.

    The first run after a change of the tests compiles them, with their assertions rewritten: that takes longer than the
    rest of collecting. In the same order all processes would compile each file at the same time; so each process finds
    most of them compiled by another.
    """
    config = session.config
    if not hasattr(config, "workerinput") or config.args != config.getini("testpaths"):
        return
    files = sorted(file for file in matrix.ROOT.rglob("test_*.py") if _is_run(config, file))
    number = int(config.workerinput["workerid"].removeprefix("gw"))
    first = len(files) * number // int(config.workerinput["workercount"])
    for file in files[first:] + files[:first]:
        with contextlib.suppress(Exception):  # the collection reports a file that cannot be imported
            importlib.import_module(".".join(file.relative_to(matrix.ROOT.parent).with_suffix("").parts))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test the engines and modes of the matrix; generate nothing else."""
    group, suite = matrix.group_of(metafunc.definition.path), suite_for(metafunc.config, metafunc.definition.path)
    named_engines, named_modes = _named(metafunc.definition, "engine"), _named(metafunc.definition, "mode")
    has_engine = "engine" in metafunc.fixturenames and not named_engines
    has_mode = "mode" in metafunc.fixturenames and not named_modes
    if has_engine and has_mode:
        ways = [way for way in group.ways(suite) if _suits(metafunc, way.engine)] or [NOWHERE]
        metafunc.parametrize(("engine", "mode"), ways, ids=[way.id for way in ways], indirect=True)
    elif has_engine:
        engines = [engine for engine in group.engines(suite) if _suits(metafunc, engine)]
        metafunc.parametrize("engine", engines or [NOWHERE.engine], indirect=True)
    elif has_mode:
        modes = group.modes(suite, named_engines)
        metafunc.parametrize("mode", modes or [NOWHERE.mode], indirect=True)


def _named(test: pytest.Function, parameter: str) -> list[str]:
    """The values of a parameter that a test names itself, alone or with other parameters."""
    for mark in test.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
        if parameter in names:
            place = names.index(parameter)
            return [values if len(names) == 1 else values[place] for values in mark.args[1]]
    return []


def _suits(metafunc: pytest.Metafunc, engine: str) -> bool:
    """Contract tests and tests of a `store_url` also run over HTTP, unless they are about the database itself."""
    about_database = metafunc.definition.get_closest_marker("database") is not None
    is_contract = not CONTRACTS.isdisjoint(metafunc.definition.path.parts) and "open_app" in metafunc.fixturenames
    may_be_served = (is_contract or "store_url" in metafunc.fixturenames) and not about_database
    return engine not in SERVED or may_be_served


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the chosen suite does not run; begin with the longest."""
    items[:] = sorted((item for item in items if _is_chosen(config, item)), key=_turn)


def _is_chosen(config: pytest.Config, item: pytest.Item) -> bool:
    params, suite = _params(item), suite_for(config, item.path)
    group = matrix.group_of(item.path)
    if params.get("engine") == NOWHERE.engine or params.get("mode") == NOWHERE.mode:
        return False
    if params.get("mode") in ("sync", "async") and "engine" in params:
        return True  # its way was chosen when it was generated
    names_engine = isinstance(item, pytest.Function) and _named(item, "engine")
    return (
        params["engine"] in group.engines(suite)
        if "engine" in params and not names_engine
        else group.runs_once_in(suite)
    )


def _turn(item: pytest.Item) -> int:
    """The longest test comes first, so that no process waits for it in the end; the browser tests come together, so
    that a run starts one browser and not a dozen."""
    return 0 if item.path.stem == "test_schemathesis" else 1 if "browser" in item.path.parts else 2


def _params(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _hear_ctrl_c() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would everything that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Choose where files are kept, once, before worker processes inherit the environment."""
    os.environ["DIBS_TEST_SUITE"] = config.getoption("--suite")
    memory.keep_files_there()
    _hear_ctrl_c()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process that a test starts compiles dibs anew
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


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy: a copy takes a tenth of the time of the migrations."""
    file = tmp_path_factory.mktemp("template") / "dibs.db"
    with dibs.Dibs(f"sqlite:///{file}") as app:
        app.migrate()
    return file


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The engine under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def server_host() -> Iterator[Any]:
    """Where servers run."""
    from tests.helpers.served import ServerHost

    server_host = ServerHost()
    yield server_host
    server_host.close()


@pytest.fixture
def url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new, migrated database of the engine under test."""
    if SERVED.get(engine, engine) == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        yield f"sqlite:///{shutil.copy(template, tmp_path / 'dibs.db')}"
        return
    databases: postgres.Lending = request.getfixturevalue("postgres_databases")
    database = databases.lend(keep_connections=not _has_own_connections(request.node))
    yield database
    databases.take_back(database)


@pytest.fixture
def store_url(url: str, engine: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the processes of a test find the store: a new database, or a server before it, by real time."""
    if engine not in SERVED:
        yield url
        return
    with request.getfixturevalue("server_host").serving(url) as place:
        yield place


def _has_own_connections(item: pytest.Item) -> bool:
    """True for a test that is about connections: all faults, and the tests with the mark."""
    return "stress" in item.path.parts or item.get_closest_marker("own_connections") is not None


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


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> str:
    """The client under test: sync or async."""
    return str(request.param)


@pytest.fixture
def clock() -> Clock:
    """The database's clock, turned by hand."""
    return Clock()


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    """The event loop of all async clients of this test process; their pools are kept from test to test."""
    loop = Loop()
    postgres.KEPT_LOOPS.add(loop.asyncio_loop)
    yield loop
    loop.run(postgres.close_pools_of_running_loop())
    loop.close()


@pytest.fixture
def open_app(mode: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens clients of the kind under test, and closes them after the test."""
    opened: list[Any] = []
    with contextlib.ExitStack() as servers:
        way = Served(request, servers) if in_params(request, "engine") in SERVED else directly

        def open_one(url: str, **options: Any) -> Any:
            place, options = way(url, options)
            if mode == "sync":
                app: Any = dibs.Dibs(place, **options)
            else:
                app = AsyncAsSync(dibs.AsyncDibs(place, **options), request.getfixturevalue("loop"))
            opened.append(app)
            return app

        yield open_one
        for app in opened:
            app.close()


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
            server_host = self._request.getfixturevalue("server_host")
            self._urls[key] = self._servers.enter_context(server_host.serving(url, **of_database))
        return self._urls[key], {name: options[name] for name in options if name not in of_database}


@pytest.fixture
def app(url: str, clock: Clock, open_app: Callable[..., Any]) -> Any:
    """The client under test, on a new database, with a clock that stands still."""
    return open_app(url, clock=clock)


@pytest.fixture
def new_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has counted nothing yet: in a run of all tests the labels have seen more values than they
    tell apart."""
    from dibs.observe import metrics

    for family in metrics.FAMILIES:
        monkeypatch.setattr(family, "_series", {values: family._zeros() for values in family._fixed_combinations()})
        for label in family.labels:
            monkeypatch.setattr(label, "_known", set(label.fixed))
