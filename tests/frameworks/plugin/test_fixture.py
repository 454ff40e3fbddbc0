"""The fixture `dibs` in the tests of a program: sync and async, in several processes, with its settings and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.plugin.project import Project
from tests.helpers.databases import run_sql

SHOP = """
    import dibs

    app = dibs.Dibs("sqlite:///shop.db")
    later = dibs.AsyncDibs("sqlite:///shop.db")
    sent = []


    @app.task
    def mail(to: str) -> None:
        sent.append(to)


    @later.task
    async def double(n: int) -> int:
        return 2 * n
"""

SYNC = """
    import pytest

    import shop


    @pytest.mark.parametrize("name", ["ann", "bob", "cem", "dee"])
    def test_each_test_has_a_queue_and_a_clock_of_its_own(dibs, name):
        shop.sent.clear()
        assert dibs.app is shop.app
        assert shop.app.list_tasks() == []
        before = dibs.clock.now
        assert shop.mail.options(delay=3600).enqueue(name).id == 1
        assert dibs.drain() == []
        dibs.advance(hours=1)
        assert [task.params for task in dibs.drain()] == [{"to": name}]
        assert shop.sent == [name]
        assert (dibs.clock.now - before).total_seconds() == 3600


    @pytest.fixture
    def basket():
        shop.mail.enqueue("fixture")


    def test_a_fixture_enqueues_as_well(dibs, basket):
        dibs.assert_enqueued(shop.mail, to="fixture")
"""

ASYNC = """
    import asyncio

    import pytest

    import shop


    @pytest.fixture
    def dibs_app():
        return shop.later


    @pytest.mark.MARK
    @pytest.mark.parametrize("n", [1, 2, 3])
    async def test_coroutines(dibs, n):
        assert await dibs.run_now_async(shop.double, n) == 2 * n
        enqueued = await asyncio.gather(*(shop.double.enqueue(each) for each in range(n)))
        assert len(await shop.later.list_tasks()) == n + 1
        done = await dibs.drain_async()
        assert sorted(task.result for task in done) == [2 * each for each in range(n)]
        assert {task.id for task in done} == {task.id for task in enqueued}
"""


@pytest.fixture
def project(tmp_path: Path, empty_url: str) -> Project:
    project = Project(tmp_path / "project", empty_url)
    project.write(shop=SHOP)
    project.settings("dibs_app = shop:app")
    return project


def own_server(url: str) -> list[str]:
    """The options with which each test has a schema in this database; for SQLite none."""
    return [] if url.startswith("sqlite") else ["--dibs-url", url]


def test_each_test_has_an_empty_queue_also_in_several_processes_at_once(project: Project, empty_url: str) -> None:
    project.write(
        test_sync=SYNC,
        test_asyncio=ASYNC.replace("MARK", "asyncio"),
        test_anyio=ASYNC.replace("MARK", "anyio")
        + """
    @pytest.fixture(params=["asyncio"])
    def anyio_backend(request):
        return request.param
""",
    )
    printed = project.run("-n", "2", *own_server(empty_url))
    assert "11 passed" in printed, printed
    assert project.files == set()  # the app's own store was never opened
    if not empty_url.startswith("sqlite"):
        assert run_sql(empty_url, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'dibs%'") == []
        assert run_sql(empty_url, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'dibs%'") == []


JOINING = """
    import os
    import sqlite3

    import psycopg
    import pytest
    import sqlalchemy as sa
    from sqlalchemy.orm import Session

    import shop

    URL = os.environ["DATABASE_URL"]


    def connect():
        return sqlite3.connect(URL.removeprefix("sqlite:///")) if URL.startswith("sqlite") else psycopg.connect(URL)


    @pytest.fixture(params=["driver", "session"])
    def dibs_connection(request):
        if request.param == "driver":
            connection = connect()
            yield connection
            connection.close()
            return
        engine = sa.create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))
        with engine.connect() as connection, connection.begin() as outer:
            with Session(bind=connection, join_transaction_mode="create_savepoint") as session:
                yield session
            outer.rollback()
        engine.dispose()


    def test_a_task_is_enqueued_by_the_commit_and_removed_by_a_rollback(dibs, dibs_connection):
        shop.sent.clear()
        shop.mail.on(dibs_connection).enqueue("never")
        dibs_connection.rollback()
        dibs.assert_nothing_enqueued()
        shop.mail.on(dibs_connection).enqueue("ann")
        dibs_connection.commit()
        assert len(dibs.drain()) == 1
        assert shop.sent == ["ann"]
        dibs_connection.rollback()
"""


def test_tasks_in_the_transactions_of_a_connection_of_the_test(project: Project, empty_url: str) -> None:
    project.write(test_joining=JOINING)
    printed = project.run()
    assert "2 passed" in printed, printed
    assert _tables(empty_url) == []


def _tables(url: str) -> list[tuple[str]]:
    """What the tests have left in the database."""
    if url.startswith("sqlite"):
        return run_sql(url, "SELECT name FROM sqlite_master")  # type: ignore[return-value]
    return run_sql(url, "SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")  # type: ignore[return-value]


OF_THE_TEST = """
    import os

    import pytest
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
    from sqlalchemy.pool import NullPool

    import shop

    SERVER = os.environ["DATABASE_URL"]


    @pytest.fixture
    def dibs_app():
        return shop.later


    if SERVER.startswith("sqlite"):

        @pytest.fixture
        def dibs_url(tmp_path):
            return f"sqlite:///{tmp_path}/test.db"


    @pytest.fixture
    async def session(dibs_url):
        async_url = dibs_url.replace("sqlite://", "sqlite+aiosqlite://").replace("postgresql://", "postgresql+psycopg://")
        engine = create_async_engine(async_url, poolclass=NullPool)
        async with AsyncSession(engine) as session:
            yield session
        await engine.dispose()


    @pytest.mark.parametrize("n", [1, 2])
    async def test_an_async_session_on_the_database_of_the_test(dibs, session, n):
        await shop.double.on(session).enqueue(n)
        await session.rollback()
        await shop.double.on(session).enqueue(n)
        dibs.assert_nothing_enqueued()
        await session.commit()
        [done] = await dibs.drain_async()
        assert done.result == 2 * n
"""


def test_tasks_in_the_transactions_of_an_async_session_on_the_database_of_the_test(
    project: Project, empty_url: str
) -> None:
    project.write(test_async_session=OF_THE_TEST)
    project.settings("asyncio_mode = auto\n")
    printed = project.run(*own_server(empty_url))
    assert "2 passed" in printed, printed


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_joining_a_transaction_of_another_database_is_refused_with_the_names_of_the_fixtures(
    project: Project, empty_url: str
) -> None:
    project.write(
        test_refused="""
        import sqlite3

        import shop

        def test_refused(dibs):
            shop.mail.on(sqlite3.connect("orders.db")).enqueue("ann")
        """
    )
    printed = project.run()
    assert "1 failed" in printed
    assert "fixtures dibs_connection and dibs_url" in printed


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("", "Write `dibs_app = "),
        ("dibs_app = shops:app", "The module 'shops' does not exist"),
        ("dibs_app = shop:client", "It has: shop:app, shop:later."),
        ("dibs_app = shop:sent", "shop:sent is a list, not an app"),
        ("dibs_app = shop:app\ndibs_url = mysql://there/db", "is not the URL of a PostgreSQL database"),
    ],
)
def test_a_missing_or_wrong_setting_is_an_error_that_says_what_to_write(
    tmp_path: Path, setting: str, said: str
) -> None:
    project = Project(tmp_path / "project", "")
    project.write(shop=SHOP, test_it="def test_it(dibs): ...")
    project.settings(setting)
    printed = project.run()
    assert "1 error" in printed
    assert said in printed


def test_a_run_without_the_fixture_imports_nothing_of_dibs_but_the_plugin(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "")
    project.write(
        test_it="""
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.partition(".")[0] in ("dibs", "msgspec", "typer", "sqlite3")}
            assert loaded == {"dibs", "dibs.version", "dibs.pytest_plugin"}
        """
    )
    project.settings("")
    assert "1 passed" in project.run()


def test_pytest_does_not_rewrite_the_assertions_of_dibs(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "")
    project.write(
        shop=SHOP,
        conftest="import shop",
        test_it="""
        import sys

        def test_it(dibs, pytestconfig):
            loaders = {name: type(sys.modules[name].__loader__).__name__ for name in ("dibs.client", "test_it")}
            assert loaders == {"dibs.client": "SourceFileLoader", "test_it": "AssertionRewritingHook"}
            assert hasattr(pytestconfig.pluginmanager.rewrite_hook, "_must_rewrite")
        """,
    )
    project.settings("dibs_app = shop:app")
    assert "1 passed" in project.run()
