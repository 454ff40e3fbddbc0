"""Every step of the guide on Django, in a project that `startproject` makes, on SQLite and PostgreSQL."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import django
import pytest

from tests.environments import ROOT
from tests.frameworks.django.conftest import settings_for
from tests.frameworks.django.running import Project

GUIDE = ROOT / "docs" / "guides" / "django.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.py)(, at the end)?\n")


class Block(NamedTuple):
    kind: str
    text: str


class Database(NamedTuple):
    """A new database: lines of settings that choose it (none for the SQLite file of `startproject`), and its URL."""

    settings: str
    url: str


@pytest.fixture
def database(engine: str, tmp_path: Path, empty_url: str) -> Database:
    if engine == "sqlite":
        return Database("", f"sqlite:///{tmp_path}/db.sqlite3")
    entry = {"ENGINE": "django.db.backends.postgresql", **settings_for(empty_url)}
    return Database(f'\nDATABASES = {{"default": {entry!r}}}\n', empty_url)


def blocks() -> list[Block]:
    return [Block(kind, text) for kind, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8"))]


def written(block: Block, folder: Path, more: str) -> bool:
    """True for a block that belongs into a file, which has it then. `more`: further lines of the settings."""
    named = FILE.match(block.text)
    if block.kind != "python" or named is None:
        return False
    text = block.text
    if django.VERSION < (6,):
        text = text.replace("from django.tasks import", "from django_tasks import")
    path = folder / named[1]
    before = path.read_text() if named[2] else ""
    path.write_text(before + text + (more if named[1].endswith("settings.py") else ""))
    return True


def test_the_steps_of_the_guide_lead_to_a_task_that_a_worker_has_run(database: Database, tmp_path: Path) -> None:
    printed = ""
    with Project(tmp_path, database.url) as project:
        for block in blocks():
            if not written(block, tmp_path, database.settings):
                for command in block.text.splitlines():
                    printed += follow(command, project)
    assert re.search(r"completed +shop.tasks.confirm", printed)
    assert re.search(r"completed +ship", printed)
    assert "Ran 2 tests" in printed
    assert "2 completed" in project.output(1)  # the summary of the worker


def follow(command: str, project: Project) -> str:
    """Run one command of the guide, and return what it prints. Servers and workers run on in the background."""
    match shlex.split(command):
        case ["pip", *_]:
            return ""
        case ["django-admin", *rest]:
            return project.run(sys.executable, "-m", "django", *rest)
        case ["python", "manage.py", "runserver"]:
            project.serve()
        case ["python", "manage.py", "dibs", "worker"]:
            project.work()
        case ["curl", "-d", data, url]:
            project.order(data, url)
        case ["python", *rest]:
            return project.run(sys.executable, *rest)
        case other:
            raise AssertionError(f"the guide has a command that the test does not know: {other}")
    return ""
