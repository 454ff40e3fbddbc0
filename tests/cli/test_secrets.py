"""Planted secrets: no command, log line or command line of a process shows the password in the URL of the store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import dibs
from tests.cli.running import COMMAND, Run, environment
from tests.helpers.waiting import until

SECRET = "hunter2"
PROGRAM = """
import os
import dibs

app = dibs.Dibs("sqlite:///elsewhere.db")

@app.task(max_attempts=1)
def fail() -> None:
    raise ConnectionError("no answer from " + os.environ["DIBS_URL"])

@app.task
def add(a: int, b: int) -> int:
    return a + b
"""
pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)  # a URL with a password

COMMANDS = [
    ["doctor"],
    ["doctor", "--json"],
    ["migrate"],
    ["top"],
    ["top", "--json"],
    ["tasks", "list"],
    ["tasks", "show", "1"],
    ["tasks", "show", "1", "--json"],
    ["tasks", "history", "1", "--json"],
    ["dead", "list"],
    ["dead", "list", "--json"],
    ["queues", "list"],
    ["workers", "--json"],
    ["keys", "list"],
    ["verify"],
]


@pytest.fixture
def secret_url(url: str) -> str:
    """A URL with a password, for which this server does not ask."""
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.partition(':')[0]}:{SECRET}@{place}").geturl()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_no_command_shows_the_password_of_the_store(
    run: Run, secret_url: str, client: dibs.Dibs, program: Path
) -> None:
    client.enqueue("fail", max_attempts=1)
    worked = run("worker", "program", "--burst", "--log-level", "debug", "--url", secret_url, cwd=program)
    assert worked.code == 0
    assert client.get(1).state == "failed"  # type: ignore[union-attr]
    assert SECRET not in worked.out + worked.err
    for command in COMMANDS:
        done = run(*command, url=secret_url)
        assert done.code == 0, done
        assert SECRET not in done.out + done.err, command


@pytest.mark.parametrize(
    "args",
    [
        ["--url", f"mysql://me:{SECRET}@host/db", "tasks", "list"],
        ["--url", f"postgresql://me:{SECRET}%zz@host/db", "tasks", "list", "--json"],
        ["tasks", "list", f"postgresql://me:{SECRET}@host/db"],
        [f"postgresql://me:{SECRET}@host/db", "--json"],
        ["server", "--url", f"http://me:{SECRET}@host"],
        ["worker", f"postgresql://me:{SECRET}@host/db"],
    ],
)
def test_no_error_shows_a_given_password(run: Run, args: list[str]) -> None:
    done = run(*args)
    assert done.code != 0
    assert SECRET not in done.out + done.err


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("command", [["worker", "program"], ["server", "--port", "0"]])
def test_the_processes_of_a_supervisor_have_no_password_on_their_command_lines(
    secret_url: str, client: dibs.Dibs, program: Path, command: list[str]
) -> None:
    with supervised(secret_url, program, command) as process:
        lines = until(lambda: command_lines(process.pid, 2), 30)
        assert all(b"dibs" in line for line in lines)
        assert not [line for line in lines if SECRET.encode() in line]
        if command[0] == "worker":  # they use the store that was named, not the one of the program
            task = client.enqueue("add", {"a": 1, "b": 2})
            assert task.wait(30).result == 3


def test_a_server_shows_no_password_in_its_log(secret_url: str, client: dibs.Dibs, program: Path) -> None:
    client.create_key("test", ["read"])
    with supervised(secret_url, program, ["server", "--port", "0", "--log-level", "debug"], processes=1) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        while b"the store is" not in said.splitlines()[-1]:
            said += process.stderr.readline()
    assert SECRET not in said.decode()


@contextmanager
def supervised(url: str, folder: Path, command: list[str], processes: int = 2) -> Iterator[subprocess.Popen[bytes]]:
    several = ["--processes", str(processes)]
    env = environment()
    with subprocess.Popen(
        [*COMMAND, *command, *several, "--url", url], cwd=folder, env=env, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=30)


def command_lines(parent: int, count: int) -> list[bytes]:
    """The command lines of the children, once there are so many. A child that has been forked shows the command line of
    its parent until the child executes its own program; such a child does not count yet."""
    lines = []
    of_parent = Path(f"/proc/{parent}/cmdline").read_bytes()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"\nPPid:\t{parent}\n" in (folder / "status").read_text():
                lines.append((folder / "cmdline").read_bytes())
        except OSError:  # it has ended
            continue
    lines = [line for line in lines if line != of_parent]
    return lines if len(lines) >= count else []
