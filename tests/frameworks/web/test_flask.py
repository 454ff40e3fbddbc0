"""FlaskDibs: the store of the application, its transaction, and the application context of handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, current_app, g
from sqlalchemy import select

import dibs as dibs_package
from dibs.flask import FlaskDibs
from dibs.testing import isolated
from tests.frameworks.web import flask_gallery as gallery
from tests.frameworks.web.flask_gallery import Picture, db, dibs

Create = Callable[..., Flask]


def sqlalchemy_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def create(empty_url: str) -> Iterator[Create]:
    """Creates applications on the database of the test, and closes what they opened."""
    created: list[Flask] = []

    def create(**config: Any) -> Flask:
        application = gallery.create_app(**{"SQLALCHEMY_DATABASE_URI": sqlalchemy_url(empty_url), **config})
        created.append(application)
        with application.app_context():
            db.create_all()
            if application.config.get("DIBS_MIGRATE", True):
                dibs.migrate()
        return application

    yield create
    for application in created:
        with application.app_context():
            dibs.close()
            for engine in db.engines.values():
                engine.dispose()


def states() -> list[tuple[str, str]]:
    return sorted((task.type, task.state) for task in dibs.list_tasks())


def test_a_task_is_enqueued_in_the_transaction_of_the_session(create: Create) -> None:
    application = create()
    with application.test_client() as client:
        task = client.post("/pictures/cat").get_json()["task"]
        assert client.post("/pictures/broken").status_code == 500
    with application.app_context():
        assert [(each.id, each.type) for each in dibs.list_tasks()] == [(task, "measure")]
        assert [each.name for each in db.session.scalars(select(Picture))] == ["cat"]


def test_the_store_is_by_default_the_database_of_flask_sqlalchemy(create: Create, empty_url: str) -> None:
    with create().app_context():
        assert dibs.url.partition("?")[0].removeprefix("sqlite:///") in empty_url
        dibs.enqueue("measure", {"picture": 1})
    with dibs_package.Dibs(empty_url) as direct:
        assert [task.type for task in direct.list_tasks()] == ["measure"]


def test_the_configuration_names_another_store(create: Create, empty_url: str, tmp_path: Any) -> None:
    with create(DIBS_URL=f"sqlite:///{tmp_path}/tasks.db").app_context():
        dibs.enqueue("measure", {"picture": 1})
        assert (tmp_path / "tasks.db").exists()
        assert dibs.url == f"sqlite:///{tmp_path}/tasks.db"


def test_without_permission_to_migrate_no_table_is_created(create: Create) -> None:
    with create(DIBS_MIGRATE=False).app_context(), pytest.raises(dibs_package.SchemaMissing):
        dibs.list_tasks()


def test_handlers_run_in_an_application_context_that_is_torn_down_after_each_attempt(create: Create) -> None:
    application = create()
    with application.app_context():
        db.session.add_all([Picture(id=n, name=f"picture {n}") for n in range(40)])
        db.session.commit()
        tasks = [gallery.measure.enqueue(n) for n in range(20)]
        tasks += [gallery.measure_on_loop.enqueue(n) for n in range(20, 30)]
        tasks += [gallery.measure_batch.enqueue(gallery.Measurement(n)) for n in range(30, 40)]
        tasks.append(gallery.fail.enqueue())
        gallery.torn_down.clear()
        with dibs.worker(burst=True, concurrency=3, poll=0.1):
            assert [task.wait(timeout=30).state for task in tasks] == ["completed"] * 40 + ["failed"]
        assert [dibs.get(task.id).result for task in tasks[:40]] == [f"picture {n}" for n in range(40)]
        assert set(db.session.scalars(select(Picture.gallery))) == {"main"}
        db.session.commit()
        assert db.engine.pool.checkedout() == 0  # otherwise 20 tasks use up the pool
        assert 32 <= len(gallery.torn_down) <= 41  # a batch has one context
        assert [str(error) for error in gallery.torn_down if error is not None] == ["main"]


def test_a_direct_call_uses_the_context_of_the_caller(create: Create) -> None:
    with create().app_context():
        picture = Picture(name="cat")
        db.session.add(picture)
        db.session.flush()
        assert gallery.measure(picture.id) == "cat"  # another session would not see the row


def test_each_application_has_its_own_store_and_declarations(create: Create, tmp_path: Any) -> None:
    first, second = (create(DIBS_URL=f"sqlite:///{tmp_path}/{name}.db", GALLERY=name) for name in ("one", "two"))
    for application in (first, second):
        with application.app_context():
            gallery.measure.enqueue(1)
            assert len(dibs.list_tasks()) == 1
            assert [limit.name for limit in dibs.limits()] == ["measuring"]
    with pytest.raises(dibs_package.InvalidValue, match="Several Flask applications"):
        dibs.list_tasks()


def test_a_sandbox_replaces_the_stores_of_all_applications(create: Create) -> None:
    application = create(GALLERY="tested")
    with isolated(dibs) as box:
        with application.app_context():
            db.session.add(Picture(id=1, name="cat"))
            db.session.commit()
            gallery.measure.enqueue(1)
        box.drain()
        [done] = dibs.list_tasks()
        assert (done.state, done.result) == ("completed", "cat")
    with application.app_context():
        assert db.session.get(Picture, 1).gallery == "tested"
        assert dibs.list_tasks() == []


def test_a_sandbox_on_the_database_of_the_test_joins_the_session(create: Create, empty_url: str) -> None:
    application = create()
    with isolated(dibs, url=empty_url) as box:
        task = application.test_client().post("/pictures/cat").get_json()["task"]
        assert [each.id for each in box.drain()] == [task]
        assert application.test_client().post("/pictures/broken").status_code == 500
        box.assert_nothing_enqueued()
    with application.app_context():
        assert [each.gallery for each in db.session.scalars(select(Picture))] == ["main"]


# Without a database


@pytest.fixture
def extension(tmp_path: Any) -> FlaskDibs:
    return FlaskDibs(application(tmp_path))


def application(folder: Any, name: str = "one") -> Flask:
    made = Flask(name)
    made.config["DIBS_URL"] = f"sqlite:///{folder}/{name}.db"
    return made


def test_middleware_of_the_app_shares_the_context_of_the_attempt(extension: FlaskDibs) -> None:
    @extension.middleware
    def note(ctx: Any, call_next: Any) -> Any:
        g.noted = current_app.name
        return call_next()

    @extension.task
    def read() -> str:
        return str(g.noted)

    with isolated(extension) as box:
        assert box.run_now(read) == "one"


def test_async_middleware_of_the_app_shares_the_context_of_the_attempt(extension: FlaskDibs) -> None:
    @extension.middleware
    async def note(ctx: Any, call_next: Any) -> Any:
        g.noted = current_app.name
        return await call_next()

    @extension.task
    async def read() -> str:
        return str(g.noted)

    with isolated(extension) as box:
        assert box.run_now(read) == "one"


def test_handlers_run_in_the_latest_application_or_in_the_one_that_the_process_chooses(
    extension: FlaskDibs, tmp_path: Any
) -> None:
    first, second = application(tmp_path, "first"), application(tmp_path, "second")
    extension.init_app(first)
    extension.init_app(second)

    @extension.task
    def name() -> str:
        return current_app.name

    with isolated(extension) as box:
        assert box.run_now(name) == "second"
        extension.run_in(first)
        assert box.run_now(name) == "first"
        with second.app_context():
            assert box.run_now(name) == "second"


def test_an_application_that_cannot_be_loaded_is_an_error_that_says_how_to_name_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GALLERY_URL", "sqlite:///never-opened.db")
    for factory, said in (
        ("nowhere:create_app", "Could not import 'nowhere'"),
        (f"{gallery.__name__}", "does not use"),
    ):
        with pytest.raises(dibs_package.InvalidValue, match=said):
            FlaskDibs(factory=factory).app_context()


def test_an_application_outside_of_the_extension_is_refused(tmp_path: Any) -> None:
    alone = FlaskDibs()
    with pytest.raises(dibs_package.InvalidValue, match="No Flask application"):
        alone.list_tasks()
    with application(tmp_path).app_context(), pytest.raises(dibs_package.InvalidValue, match="does not use"):
        alone.list_tasks()
    assert repr(alone) == "FlaskDibs(the store of the Flask application)"


def test_an_application_has_one_extension(tmp_path: Any) -> None:
    made = application(tmp_path)
    FlaskDibs(made).init_app(made)
    with pytest.raises(dibs_package.InvalidValue, match="another FlaskDibs"):
        FlaskDibs(made)


@pytest.mark.parametrize(
    ("url", "said"), [("sqlite:///:memory:", "in memory"), ("mysql+pymysql://there/db", "in mysql")]
)
def test_a_database_in_which_dibs_keeps_no_tasks_is_refused_with_advice(url: str, said: str) -> None:
    class Engine:
        def __init__(self) -> None:
            from sqlalchemy.engine import make_url

            self.engine = self
            self.url = make_url(url)

    made = Flask("one")
    made.extensions["sqlalchemy"] = Engine()
    extension = FlaskDibs(made)
    with made.app_context(), pytest.raises(dibs_package.InvalidValue, match=f"{said}.*\n.*DIBS_URL"):
        extension.list_tasks()
