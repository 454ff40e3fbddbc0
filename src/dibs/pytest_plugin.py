"""The pytest plugin: the fixture `dibs`, an isolated queue for each test of a program.

pytest imports this module in every run in an environment with dibs. So nothing of dibs is imported before a test asks
for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dibs.testing import Sandbox

DJANGO_FIXTURES = ("db", "transactional_db", "django_db_reset_sequences", "django_db_serialized_rollback")
"""The fixtures of pytest-django that give a test access to its database."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings of the fixture."""
    parser.addini("dibs_app", "MODULE:APP, the app that the fixture `dibs` isolates")
    parser.addini(
        "dibs_url", "URL of a PostgreSQL database in which each test with the fixture `dibs` has its own schema"
    )
    parser.getgroup("dibs").addoption("--dibs-url", metavar="URL", help="replaces the setting dibs_url")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Leave dibs out of the packages whose assertions pytest rewrites: those of every distribution with a plugin. That
    takes 2 s in the first run and 0.6 s in each later one that imports dibs, and no test shows an assertion of dibs.

    The attribute is private. Where a version of pytest has no such attribute, dibs is rewritten."""
    hook = getattr(early_config.pluginmanager, "rewrite_hook", None)
    getattr(hook, "_must_rewrite", set()).discard("dibs")


@pytest.fixture(scope="session")
def dibs_app(pytestconfig: pytest.Config) -> Any:
    """The app under test: the Dibs or AsyncDibs object of your program. By default the one that the setting dibs_app
    names; override the fixture to return another one."""
    program = pytestconfig.getini("dibs_app")
    if not program:
        _fail(
            "The fixture `dibs` has no app.",
            'Write `dibs_app = "module:app"` below [tool.pytest.ini_options] in pyproject.toml (without quotes in '
            "pytest.ini), or override the fixture `dibs_app` in conftest.py.",
        )
    from dibs.cli.load import load
    from dibs.errors import DibsError

    try:
        return load(program)
    except DibsError as error:
        _fail(f"The setting dibs_app names no app: {error.message}", error.hint)


@pytest.fixture
def dibs_url(pytestconfig: pytest.Config) -> Iterator[str | None]:
    """The URL of a database that belongs to the test: None for a SQLite file in a temporary folder. Override the
    fixture if your code calls `app.on()` with connections to the database of the test."""
    server = pytestconfig.getoption("--dibs-url") or pytestconfig.getini("dibs_url")
    if not server:
        yield None
        return
    from dibs.store.open import temporary_schema

    with temporary_schema(server) as url:
        yield url


@pytest.fixture
def dibs_connection(request: pytest.FixtureRequest) -> Any:
    """The connection in whose transactions the test enqueues: None, or in a test with the database of pytest-django the
    alias of this database. Override the fixture to return a connection of your own."""
    if not request.config.pluginmanager.hasplugin("django"):
        return None
    used = [name for name in DJANGO_FIXTURES if name in request.fixturenames]
    for name in used:
        request.getfixturevalue(name)  # the transaction of the test begins before the queue is made in it
    return "default" if used or request.node.get_closest_marker("django_db") is not None else None


@pytest.fixture
def dibs(dibs_app: Any, dibs_connection: Any, dibs_url: str | None) -> Iterator[Sandbox]:
    """An isolated, empty queue for this test, with a clock that the test controls: a dibs.testing.Sandbox."""
    from dibs.testing import isolated

    with isolated(dibs_app, on=dibs_connection, url=None if dibs_connection is not None else dibs_url) as box:
        yield box


def _fail(message: str, hint: str) -> Any:
    pytest.fail(f"{message}\nhint: {hint}" if hint else message, pytrace=False)
