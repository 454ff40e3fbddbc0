"""`dibs demo`: one command starts everything, one signal ends everything, and the history has no violation."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dibs
from tests.cli.running import COMMAND, environment, run_dibs
from tests.helpers.terminal import Terminal
from tests.helpers.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and /proc")


class Demo:
    """A demo that has started, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.said = [process.stdout.readline()]

    @property
    def started(self) -> Any:
        return json.loads(self.said[0])

    def children(self) -> list[int]:
        """The child processes of the demo, and their child processes."""
        return descendants(self.process.pid)

    def ends(self, timeout: float = 20) -> int:
        """Its exit code."""
        out, err = self.process.communicate(timeout=timeout)
        self.said += out.splitlines(keepends=True)
        assert err == ""
        return self.process.returncode

    @property
    def ended(self) -> Any:
        return json.loads(self.said[-1])


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[Demo]:
    """`dibs demo --json` with its temporary files in this folder."""
    with subprocess.Popen(
        [*COMMAND, "demo", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=str(folder)),
    ) as process:
        try:
            yield Demo(process)
        finally:
            process.kill()


def descendants(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, listed) for each in (child, *descendants(child))]


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_one_signal_ends_the_demo_and_leaves_no_process_and_no_file(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path, "--port", "0") as running:
        with urllib.request.urlopen(f"{running.started['url']}/health", timeout=10) as answer:
            assert answer.status == 200
        children = running.children()
        assert len(children) >= 4
        running.process.send_signal(number)
        assert running.ends() == 0
        assert [pid for pid in children if is_alive(pid)] == []
    assert running.ended["event"] == "ended"
    assert running.ended["violations"] == []
    assert list(tmp_path.iterdir()) == []


def test_the_processes_of_a_killed_demo_exit(tmp_path: Path) -> None:
    with demo(tmp_path, "--port", "0") as running:
        children = running.children()
        assert len(children) >= 4
        running.process.kill()
        until(lambda: not any(is_alive(pid) for pid in children), 30)


@pytest.mark.timeout(180)
def test_the_demo_has_tasks_workflows_and_failures_and_a_history_without_violation(url: str, tmp_path: Path) -> None:
    with demo(tmp_path, "--port", "0", "--seconds", "14", "--url", url) as running:
        assert running.ends(60) == 0
    assert running.ended["violations"] == []
    assert running.ended["killed"] == 1
    assert {"enqueued", "claimed", "completed", "failed", "recovered"} <= set(running.ended["events"])
    with dibs.Dibs(url) as app:
        assert {each.name for each in app.list_workflows(limit=100)} >= {"film", "album", "order"}
        assert app.get_schedule("clean_up").enabled
        assert not any(queue.paused for queue in app.queues())
        assert [key.live for key in app.keys()] == [False]  # noqa: SIM118


def test_the_link_signs_in_with_the_key_of_this_run(tmp_path: Path) -> None:
    with demo(tmp_path, "--port", "0") as running:
        started = running.started
        assert started["signin_url"] == f"{started['url']}/signin#key={started['key']}"
        request = urllib.request.Request(f"{started['url']}/api/stats", headers={"X-API-Key": started["key"]})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.ends() == 0


def test_a_port_in_use_is_skipped_unless_it_was_requested(tmp_path: Path) -> None:
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # another process has the port, which is just as well
            taken.bind(("127.0.0.1", 8787))
            taken.listen()
        with demo(tmp_path) as running:
            assert not running.started["url"].endswith(":8787")
            running.process.send_signal(signal.SIGTERM)
            assert running.ends() == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run_dibs("demo", "--port", str(taken.getsockname()[1]), TMPDIR=str(tmp_path))
    assert done.code == 1
    assert "in use" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_demo_refuses_the_url_of_a_server() -> None:
    done = run_dibs("demo", "--url", "http://127.0.0.1:9")
    assert done.code == 2
    assert "a server needs a database" in done.err


def test_the_demo_prints_the_address_of_the_dashboard(tmp_path: Path) -> None:
    done = run_dibs("demo", "--port", "0", "--seconds", "0.1", TMPDIR=str(tmp_path))
    assert done.code == 0, done.err
    assert "Dashboard  http://127.0.0.1:" in done.out
    assert "/signin#key=dibs_" in done.out
    assert "no violation" in done.out


def test_the_demo_can_show_top_in_the_terminal(tmp_path: Path) -> None:
    with Terminal("demo", "--top", "--port", "0", TMPDIR=str(tmp_path)) as terminal:
        terminal.shows(r"worker-[abc]")
        terminal.press("q")
        assert terminal.ends() == 0
    assert "no violation" in terminal.raw
    assert list(tmp_path.iterdir()) == []
