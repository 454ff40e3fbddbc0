"""The code in the documentation runs unchanged."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import postgres
from tests.helpers.each import for_each
from tests.helpers.release_warning import without_caution

ROOT = Path(__file__).parents[2]
WITH_A_SERVER = ("the-http-api.md", "workers-in-any-language.md")
"""Pages that are run by test_http_guide.py."""

WITH_A_FRAMEWORK = ("django.md", "django-outside-tests.md")
"""Pages that are run or checked by the tests of the framework, in tests/frameworks."""

RUN_ELSEWHERE = WITH_A_SERVER + WITH_A_FRAMEWORK
GUIDES = [page for page in sorted((ROOT / "docs" / "guides").glob("*.md")) if page.name not in RUN_ELSEWHERE]
PAGES = [ROOT / "README.md", *GUIDES]
ON_POSTGRES = ("many-machines.md",)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
"""The first line of a block that the reader is to save under this name."""

WORKER = re.compile(r"^dibs worker (\w+:\w+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, env: dict[str, str]) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert blocks, f"{page.name} has no Python"
    code = "\n".join(block for block in blocks if not _saved(block, tmp_path))
    with _worker_of(text, tmp_path, env):
        _run_without_a_word_of_complaint([sys.executable, "-W", "error", "-c", code], tmp_path, env)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    _run_without_a_word_of_complaint([sys.executable, "-W", "error", str(example)], tmp_path, dict(os.environ))


@for_each(
    "page",
    [
        *sorted(ROOT.glob("*.md")),
        *sorted(ROOT.glob("clients/*/*.md")),
        *(page for each in ("docs", "examples", "deploy") for page in sorted((ROOT / each).rglob("*.md"))),
    ],
)
def test_the_links_between_pages_and_files_resolve(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.fixture
def env(page: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The environment of a reader of the page; pages about PostgreSQL find a database in DIBS_URL."""
    kept = {name: value for name, value in os.environ.items() if name != "DIBS_URL"}
    if page.name not in ON_POSTGRES:
        yield kept
        return
    server = request.getfixturevalue("postgres_server")
    database = postgres.empty(server)
    yield {**kept, "DIBS_URL": database}
    postgres.drop(server, database)


def _saved(block: str, folder: Path) -> bool:
    """True for a block that belongs into a file, which is then there."""
    named = FILE.match(block)
    if named:
        (folder / named[1]).write_text(block, encoding="utf-8")
    return named is not None


@contextlib.contextmanager
def _worker_of(text: str, folder: Path, env: dict[str, str]) -> Iterator[None]:
    """Start the worker that the page describes, beside the Python of the page."""
    told = WORKER.search(text)
    if told is None:
        yield
        return
    worker = subprocess.Popen([sys.executable, "-m", "dibs", "worker", told[1]], cwd=folder, env=env)
    try:
        yield
        assert worker.poll() is None, "the worker has ended by itself"
    finally:
        worker.terminate()
        code = worker.wait(timeout=30)
    assert code == 0


def _run_without_a_word_of_complaint(command: list[str], folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, without_caution(done.stderr)) == (0, "")
