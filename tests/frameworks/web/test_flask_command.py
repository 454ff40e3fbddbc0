"""`flask dibs`: the commands of dibs on the store of a Flask application, and its workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

import dibs as dibs_package
from tests.environments import ROOT
from tests.frameworks.web import flask_gallery as gallery
from tests.frameworks.web.flask_gallery import Picture, db, dibs

GALLERY = "tests.frameworks.web.flask_gallery"
RunFlask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def application(empty_url: str) -> Iterator[Flask]:
    url = empty_url.replace("postgresql://", "postgresql+psycopg://")
    application = gallery.create_app(SQLALCHEMY_DATABASE_URI=url)
    with application.app_context():
        db.create_all()
        db.session.add_all([Picture(id=n, name=f"picture {n}") for n in range(4)])
        db.session.commit()
        yield application
        db.session.remove()  # returns its connection, which dispose() then closes
        dibs.close()
        db.engine.dispose()


@pytest.fixture
def flask(empty_url: str) -> RunFlask:
    """Runs the flask command with the factory."""

    def run(*arguments: str, app: str | None = GALLERY, **env: str) -> subprocess.CompletedProcess[str]:
        url = empty_url.replace("postgresql://", "postgresql+psycopg://")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DIBS_", "FLASK_"))}
        return subprocess.run(
            [sys.executable, "-m", "flask", *(["--app", app] if app else []), *arguments],
            cwd=ROOT,
            env={**kept, "GALLERY_URL": url, **env},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    return run


def in_every_lane() -> list[Any]:
    return [
        gallery.measure.enqueue(0),
        gallery.measure_on_loop.enqueue(1),
        gallery.measure_in_child.enqueue(2),
        gallery.measure_batch.enqueue(gallery.Measurement(3)),
    ]


def assert_measured(tasks: list[Any]) -> None:
    found = [dibs.get(task.id) for task in tasks]
    assert [task and (task.state, task.result) for task in found] == [("completed", f"picture {n}") for n in range(4)]
    assert list(db.session.scalars(select(Picture.gallery))) == ["main"] * 4


def test_a_worker_runs_handlers_of_every_lane_in_the_context_of_the_application(
    application: Flask, flask: RunFlask
) -> None:
    tasks = in_every_lane()
    done = flask("dibs", "worker", "--burst")
    assert done.returncode == 0, done.stderr
    assert_measured(tasks)


def test_the_processes_of_a_supervisor_find_the_application_by_its_environment(
    application: Flask, flask: RunFlask
) -> None:
    tasks = in_every_lane()
    done = flask("dibs", "worker", "--processes", "2", "--burst", app=None, FLASK_APP=GALLERY)
    assert done.returncode == 0, done.stderr
    assert_measured(tasks)


LATE = """
from flask import Flask, current_app
from dibs.flask import FlaskDibs

dibs = FlaskDibs(factory="late:create_app")


@dibs.task
def in_thread() -> str:
    return current_app.config["NAME"]


@dibs.task(lane="process")
def in_child() -> str:
    return current_app.config["NAME"]


def create_app() -> Flask:
    application = Flask(__name__)
    application.config.update(NAME="late", DIBS_URL="sqlite:///late.db")
    dibs.init_app(application)
    return application
"""


def test_a_worker_and_its_child_processes_find_the_application_by_the_factory_of_the_extension(tmp_path: Any) -> None:
    (tmp_path / "late.py").write_text(LATE)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DIBS_", "FLASK_"))}
    with dibs_package.Dibs(f"sqlite:///{tmp_path}/late.db") as client:
        tasks = [client.enqueue("in_thread"), client.enqueue("in_child")]
        command = [sys.executable, "-m", "dibs", "worker", "late:dibs", "--burst"]
        subprocess.run(command, cwd=tmp_path, env=kept, check=True, capture_output=True, timeout=110)
        assert [client.wait(task.id).raw_result for task in tasks] == ["late", "late"]


def test_the_commands_use_the_store_of_the_application(application: Flask, flask: RunFlask) -> None:
    task = gallery.measure.enqueue(1)
    listed = flask("dibs", "tasks", "list", "--json")
    assert [each["id"] for each in json.loads(listed.stdout)["tasks"]] == [task.id]
    refused = flask("dibs", "tasks", "show", "99")
    assert (refused.returncode, "There is no task 99" in refused.stderr) == (1, True)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_options_and_the_help_are_those_of_dibs(application: Flask, flask: RunFlask, tmp_path: Any) -> None:
    assert "redrive" in flask("dibs", "dead", "--help").stdout
    assert "worker" in flask("dibs").stdout
    assert "worker, top, tasks" in flask("--help").stdout
    other = f"sqlite:///{tmp_path}/other.db"
    assert flask("dibs", "--url", other, "enqueue", "measure", "--json").returncode == 0
    assert json.loads(flask("dibs", "tasks", "list", "--url", other, "--json").stdout)["tasks"][0]["id"] == 1
    assert dibs.list_tasks() == []


WITHOUT_HANDLERS = """
from flask import Flask
from dibs.flask import FlaskDibs

application = Flask(__name__)
FlaskDibs(application)
"""


def test_a_worker_without_handlers_says_where_to_declare_them(tmp_path: Any) -> None:
    (tmp_path / "app.py").write_text(WITHOUT_HANDLERS)
    done = subprocess.run(
        [sys.executable, "-m", "flask", "dibs", "worker"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith(("DIBS_", "FLASK_"))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "in the module or the factory of the application" in done.stderr
