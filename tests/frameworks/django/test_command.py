"""`manage.py dibs`: the command line of dibs on the store of the project."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

import dibs
from dibs.django import app, tables
from dibs.django.management.commands.dibs import without_options_of_django
from tests.frameworks.django.running import Project
from tests.frameworks.django.shop import tasks
from tests.helpers.waiting import let_pass, until

SETTINGS = """
import django
SECRET_KEY = "x"
INSTALLED_APPS = ["django.contrib.contenttypes", "dibs.django", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
"""

MANAGE = """
import os, sys
from django.core.management import execute_from_command_line
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
if __name__ == "__main__":
    execute_from_command_line(sys.argv)
"""

TASKS = """
from dibs.django import app

@app.task
def tell() -> str:
    return "first"
"""


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    call_command("dibs", *arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_the_commands_use_the_store_of_the_project(alias: str, capsys: pytest.CaptureFixture[str]) -> None:
    task = tasks.ship.enqueue(7)
    assert [each["id"] for each in printed(capsys, "tasks", "list")["tasks"]] == [task.id]
    printed(capsys, "enqueue", "ship", '{"order": 8}')
    assert app.list_tasks(limit=1)[0].params == {"order": 8}
    printed(capsys, "tasks", "cancel", str(task.id))
    assert app.get(task.id).state == "cancelled"  # type: ignore[union-attr]


def test_no_command_makes_tables(alias: str, capsys: pytest.CaptureFixture[str]) -> None:
    tables.drop(alias)
    try:
        for command in (["tasks", "list"], ["enqueue", "ship"], ["migrate"], ["upkeep"]):
            with pytest.raises(CommandError):
                call_command("dibs", *command)
            assert "manage.py migrate" in capsys.readouterr().err, command
    finally:
        tables.create(alias)


def test_a_url_on_the_command_line_is_another_store(alias: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    call_command("dibs", "migrate", "--url", url)
    call_command("dibs", "enqueue", "ship", "--url", url)
    with dibs.Dibs(url) as other:
        assert len(other.list_tasks()) == 1
    assert app.list_tasks() == []


def test_options_of_django_do_not_reach_dibs() -> None:
    given = ["--settings", "a.b", "tasks", "list", "--pythonpath=/x", "--json", "--settings=c"]
    assert without_options_of_django(given) == ["tasks", "list", "--json"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A small project, whose folder is not the one in which its commands run."""
    inner = tmp_path / "inner"
    (inner / "shop").mkdir(parents=True)
    for name, text in {
        "settings.py": SETTINGS.replace('"db.sqlite3"', repr(str(tmp_path / "db.sqlite3"))),
        "manage.py": MANAGE,
        "shop/__init__.py": "",
        "shop/tasks.py": TASKS,
    }.items():
        (inner / name).write_text(text)
    return Project(tmp_path, f"sqlite:///{tmp_path}/db.sqlite3")


def test_a_worker_starts_again_when_the_code_changes(project: Project) -> None:
    project.run(sys.executable, "inner/manage.py", "migrate", "--verbosity", "0")
    with project, dibs.Dibs(project.store, migrate=False) as client:
        project.start(sys.executable, "inner/manage.py", "dibs", "worker", "--reload")
        assert client.enqueue("tell").wait(30).result == "first"
        until(lambda: changed(project, client) == "second", 60)


def changed(project: Project, client: dibs.Dibs) -> Any:
    """The result of the task after a change of its code, which is written again for a worker that is about to start."""
    path = project.folder / "inner" / "shop" / "tasks.py"
    path.write_text(TASKS.replace("first", "second") + "# \n" * (path.read_text().count("#") + 1))
    let_pass(0.5)
    return client.enqueue("tell").wait(30).result


IN_CHILD = """
from django.contrib.contenttypes.models import ContentType
from dibs.django import app

@app.lifespan
def lifespan():
    yield ContentType._meta.label

@app.task(lane="process")
def tell(ctx) -> str:
    return ctx.resources
"""


def test_a_child_process_sets_up_django_before_the_lifespan(project: Project) -> None:
    (project.folder / "inner" / "shop" / "tasks.py").write_text(IN_CHILD)
    project.run(sys.executable, "inner/manage.py", "migrate", "--verbosity", "0")
    with dibs.Dibs(project.store, migrate=False) as client:
        task = client.enqueue("tell")
        project.run(sys.executable, "inner/manage.py", "dibs", "worker", "--burst")
        done = client.wait(task.id, 1)
    assert done.result == "contenttypes.ContentType", done.error


def test_a_worker_and_a_server_do_not_make_tables(project: Project) -> None:
    for command in ("worker", "server"):
        printed = project.run(sys.executable, "inner/manage.py", "dibs", command, code=3)
        assert "manage.py migrate" in printed


def test_mistakes_in_the_settings_have_an_error_with_advice_and_no_traceback(project: Project) -> None:
    settings, tasks = project.folder / "inner" / "settings.py", project.folder / "inner" / "shop" / "tasks.py"
    tasks.write_text("")
    told = project.run(sys.executable, "inner/manage.py", "dibs", "worker", code=2)
    assert "no handlers" in told
    assert "tasks.py of an app that INSTALLED_APPS has" in told
    options = '{"BACKEND": "dibs.django.DibsBackend", "OPTIONS": {"database": "nowhere"}}'
    settings.write_text(settings.read_text() + f'TASKS = {{"default": {options}}}\n')
    for command in (["worker"], ["tasks", "list"]):
        told = project.run(sys.executable, "inner/manage.py", "dibs", *command, code=2)
        assert "DATABASES has no alias 'nowhere'" in told
        assert "Traceback" not in told


def test_a_project_without_the_app_is_told_to_install_it(project: Project) -> None:
    settings = project.folder / "inner" / "settings.py"
    settings.write_text(settings.read_text().replace('"dibs.django", ', ""))
    program = "import django; django.setup(); from dibs.django import app; app.enqueue('mail')"
    environment = {"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": "inner"}
    project.environment.update(environment)
    assert 'Add "dibs.django" to INSTALLED_APPS' in project.run(sys.executable, "-c", program, code=1)


def test_help_names_the_command(project: Project) -> None:
    for arguments in (["dibs", "--help"], ["help", "dibs"]):
        assert "Usage: manage.py dibs" in project.run(sys.executable, "inner/manage.py", *arguments)
    wrong = project.run(sys.executable, "inner/manage.py", "dibs", "tasks", "lost", code=2)
    assert "No such command" in wrong
