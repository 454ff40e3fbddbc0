"""The test suites of Django and of django-tasks-db pass with DibsBackend, except for the tests that do not apply."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.frameworks.outside import download, page
from tests.frameworks.outside.left_out import NOT_IN_EVERY_VERSION, left_out

PROJECT = Path(__file__).with_name("project")
DJANGO = version("django")
HAS_TASKS = int(DJANGO.split(".")[0]) >= 6
"""Before Django 6, Django has no tests of tasks."""


@pytest.fixture
def report(suite: str, empty_url: str, tmp_path: Path) -> Any:
    """What the suite reports in a process of its own, on an empty database."""
    project, report = tmp_path / "project", tmp_path / "report.json"
    shutil.copytree(PROJECT, project)
    _add(suite, project)
    report.write_text(json.dumps(list(left_out(suite))))
    done = subprocess.run(
        [sys.executable, "run.py", suite, str(report)],
        cwd=project,
        env={**os.environ, "DATABASE": json.dumps(_database(empty_url))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return json.loads(report.read_text())


def _add(suite: str, project: Path) -> None:
    """Copy the downloaded tests into the project."""
    if suite == "django":
        shutil.copytree(download.suite(f"django=={DJANGO}", "tests/tasks"), project / "tasks")
    else:
        shutil.copy(download.suite(page.DJANGO_TASKS_DB, "tests") / "tests.py", project / "tests")


def _database(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        options = {"transaction_mode": "IMMEDIATE"}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///"), "OPTIONS": options}
    given = conninfo_to_dict(url)
    known = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    place = {name: str(given.get(keyword) or "") for keyword, name in known.items()}
    return {"ENGINE": "django.db.backends.postgresql", **place}


@pytest.mark.timeout(330)  # the fixture runs a whole suite, for 300 seconds at most
@pytest.mark.parametrize("suite", ["django", "django-tasks-db"] if HAS_TASKS else ["django-tasks-db"])
def test_every_test_of_the_suite_passes_or_is_named_as_not_applicable(suite: str, engine: str, report: Any) -> None:
    found, outcomes, named = set(report["found"]), report["outcomes"], left_out(suite)
    failed = {name: outcome for name, outcome in outcomes.items() if outcome != "passed"}
    assert not failed, "\n".join(f"{name}: {outcome}" for name, outcome in failed.items())
    assert set(outcomes) == found - set(named)
    gone = {name for name in set(named) - found if not name.startswith(NOT_IN_EVERY_VERSION)}
    assert not gone, f"left_out.py names tests that the suite does not have: {gone}"
    row = page.row(suite, DJANGO, len(found), len(outcomes))
    assert row in page.text(), f"docs/guides/django-outside-tests.md lacks this row:\n{row}"


def test_the_page_has_every_test_that_does_not_apply_with_its_reason() -> None:
    assert page.reasons() in page.text(), f"docs/guides/django-outside-tests.md lacks this:\n{page.reasons()}"
