"""The guide to Flask: its application, commands and tests, and its WSGI application under a server that forks."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dibs
from tests.environments import ROOT
from tests.helpers.waiting import until

GUIDE = (ROOT / "docs" / "guides" / "flask.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
SETTING = re.compile(r'^dibs_app = "(.*)"$', re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a reader."""
    for name, content in FILE.findall(GUIDE):
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ndibs_app = {SETTING.findall(GUIDE)[0]}\n")
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DIBS_", "FLASK_", "PYTEST_"))}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", **more}


@contextlib.contextmanager
def running(folder: Path, *command: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(**env), stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def post(port: str, path: str) -> str | None:
    """The body of the answer; None while the server does not answer."""
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", b"")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())
    except ConnectionError:
        return None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError):
            return None
        raise


def test_the_commands_of_the_guide_start_an_application_whose_orders_are_shipped(folder: Path) -> None:
    run, worker = (shlex.split(line) for line in SHELL.findall(GUIDE)[0].splitlines())
    port = free_port()
    with running(folder, *run, "--port", port):
        until(lambda: post(port, "/orders/tea"))
        with running(folder, *worker), dibs.Dibs(f"sqlite:///{folder}/instance/shop.db") as client:
            until(lambda: [task.state for task in client.list_tasks(type="ship")] == ["completed"])


def test_the_tests_of_the_guide_pass(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("preload", [["--preload"], []], ids=["preload", "each"])
def test_every_process_of_a_server_that_forks_stores_tasks(folder: Path, empty_url: str, preload: list[str]) -> None:
    port = free_port()
    used_before_the_fork = "import plain\nplain.note.enqueue('before')\nfrom plain import application\n"
    (folder / "served.py").write_text(used_before_the_fork if preload else "from plain import application\n")
    command = ["gunicorn", "--bind", f"127.0.0.1:{port}", "--workers", "3", "--threads", "2", *preload]
    with running(folder, *command, "served:application", DIBS_URL=empty_url):
        until(lambda: post(port, "/first"))
        answers: list[str] = []

        def all_processes_have_answered() -> bool:
            with ThreadPoolExecutor(8) as pool:
                answers.extend(filter(None, pool.map(lambda n: post(port, f"/{n}"), range(30))))
            return len({answer.split()[1] for answer in answers}) == 3

        until(all_processes_have_answered)
        with dibs.Dibs(empty_url) as client:
            stored = {task.id for task in client.tasks(int(answer.split()[0]) for answer in answers)}
        assert stored == {int(answer.split()[0]) for answer in answers}
