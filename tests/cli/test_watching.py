"""`dibs worker` on a terminal and in a log: totals, failures, what a signal does, and reloads after changes of code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import dibs
from tests.cli.running import COMMAND, Run, environment
from tests.helpers.terminal import Terminal
from tests.helpers.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses pseudo-terminals")

PROGRAM = """
import time
from pathlib import Path

import dibs
import helper

app = dibs.Dibs()

@app.task(max_attempts=2)
def fail(text: str) -> None:
    raise OSError(text)

@app.task(max_attempts=3)
async def refuse() -> None:
    raise dibs.Permanent("no such page")

@app.task
def hold(name: str) -> str:
    Path(f"{name}.began").touch()
    while not Path(f"{name}.go").exists():
        time.sleep(0.01)
    return helper.VERSION
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program of two modules. The terminals of the test begin in it."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text('VERSION = "one"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


Start = Callable[..., Terminal]


@pytest.fixture
def start(url: str, program: Path) -> Iterator[Start]:
    """Starts a worker in a terminal, which is closed at the end of the test."""

    def start_worker(*options: str, **env: str) -> Terminal:
        terminal = Terminal("worker", "program", "--url", url, *options, columns=140, rows=40, **env)
        running.enter_context(terminal)
        return terminal

    with ExitStack() as running:
        yield start_worker


def begun(folder: Path, name: str) -> None:
    until((folder / f"{name}.began").exists, 30)


def test_a_terminal_shows_what_the_worker_serves_each_failure_and_totals(
    start: Start, client: dibs.Dibs, program: Path
) -> None:
    failing = client.enqueue("fail", {"text": "disk \x1b[31m full"}, max_attempts=2).id
    refused = client.enqueue("refuse", queue="mail").id
    terminal = start("--queues", "mail=2,default", "--concurrency", "3", "--worker-id", "ada")
    block = terminal.shows(r"stop +Ctrl-C gives running tasks 25 s to end; a second Ctrl-C releases them at once")
    assert "dibs worker ada\n" in block
    assert "app       program\n" in block
    assert "handlers  fail, refuse, hold\n" in block
    assert "queues    mail=2, default\n" in block
    assert "lanes     3 threads, 3 coroutines\n" in block
    screen = terminal.shows(
        rf"attempt 2 of 2: OSError: disk .* full\n +the task is in the dead letter · dibs tasks show {failing}"
    )
    assert rf"failed · task {failing} (fail), attempt 1 of 2: OSError: disk \x1b[31m full" in screen
    assert f" UTC · dibs tasks show {failing}" in screen
    assert f"task {refused} (refuse), attempt 1 of 3: Permanent: no such page" in screen
    assert f"the failure is permanent: the task is in the dead letter · dibs tasks show {refused}" in screen
    assert terminal.colour_of("failed") == "red"
    terminal.interrupt()
    assert terminal.ends() == 0
    assert "stopping · no task is running" in terminal.text
    assert " · 0 completed · 3 failed (1 retried) · 0 running" in terminal.text
    assert "INFO" not in terminal.text


def test_the_first_ctrl_c_says_what_a_second_one_does_and_the_second_releases_at_once(
    start: Start, client: dibs.Dibs, program: Path
) -> None:
    held = client.enqueue("hold", {"name": "a"}).id
    terminal = start("--grace", "600", NO_COLOR="1")
    begun(program, "a")
    terminal.interrupt()
    terminal.shows("stopping · 1 task is running and has 600 s to end; press Ctrl-C again to release it now")
    assert "\x1b[3" not in terminal.raw
    terminal.interrupt()
    assert terminal.ends() == 0
    assert "is released: a second signal ended the grace period" in terminal.text
    task = client.get(held)
    assert task is not None
    assert (task.state.value, task.attempts) == ("pending", 0)


def test_several_processes_print_one_start_one_total_and_one_line_for_each_signal(
    start: Start, client: dibs.Dibs, program: Path
) -> None:
    terminal = start("--processes", "2", "--concurrency", "1", "--grace", "600")
    for name in ("a", "b"):
        client.enqueue("hold", {"name": name})
        begun(program, name)
    assert terminal.shows(r"lanes +1 thread, 1 coroutine, in each process\n +stop ").count("dibs worker") == 1
    terminal.shows("0 completed · 2 running")
    terminal.interrupt()
    terminal.shows("stopping · 2 tasks are running and have 600 s to end; press Ctrl-C again to release them now")
    (program / "a.go").touch()
    until(lambda: client.stats().depth.get("completed") == 1, 30)
    terminal.interrupt()
    assert terminal.ends() == 0
    assert terminal.text.count("stopping · ") == 2
    assert "stopping · the tasks that still run are released" in terminal.text
    assert " · 1 completed · 0 running" in terminal.text
    assert client.stats().depth == {"completed": 1, "pending": 1}


def test_totals_name_what_holds_tasks_up_although_lanes_are_free(start: Start, client: dibs.Dibs) -> None:
    client.pause("default")
    client.enqueue("hold", {"name": "a"})
    terminal = start()
    assert "0.0/s · 0 completed · 0 running · 1 waiting\n" in terminal.shows("held up · queue default is paused")


def test_json_on_a_terminal_has_no_lines_for_people(start: Start, client: dibs.Dibs) -> None:
    client.enqueue("refuse")
    terminal = start("--log-format", "json")
    until(lambda: client.stats().depth == {"failed": 1}, 30)
    terminal.interrupt()
    assert terminal.ends() == 0
    lines = [line for line in terminal.raw.replace("^C", "").splitlines() if line]
    events = [json.loads(line)["event"] for line in lines]
    assert [event for event in events if event != "store.caution"] == [
        "worker.started",
        "task.failed",
        "worker.stop_requested",
        "worker.stopped",
        "worker.summary",
    ]


def test_quiet_prints_only_warnings_and_errors(run: Run, client: dibs.Dibs, program: Path) -> None:
    client.enqueue("refuse")
    done = run("worker", "program", "-q", "--burst", cwd=program)
    assert done.code == 0
    assert {json.loads(line)["event"] for line in done.err.splitlines()} - {"store.caution"} == {"task.failed"}


def test_a_log_has_a_summary_with_stable_fields_if_anything_happened(
    run: Run, client: dibs.Dibs, program: Path
) -> None:
    for options in (("--processes", "2"), ()):
        client.enqueue_many([dibs.NewTask("refuse"), dibs.NewTask("fail", {"text": "no"}, max_attempts=1)])
        (program / "x.go").touch()
        client.enqueue("hold", {"name": "x"})
        entries = [
            json.loads(line) for line in run("worker", "program", "--burst", *options, cwd=program).err.splitlines()
        ]
        [summary] = [entry for entry in entries if entry.get("event") == "worker.summary"]
        shown = {name: summary[name] for name in ("completed", "failed", "retried", "running", "processes")}
        assert shown == {"completed": 1, "failed": 2, "retried": 0, "running": 0, "processes": 2 if options else 1}
        assert {"seconds", "per_second"} <= set(summary)
    entries = [json.loads(line) for line in run("worker", "program", "--burst", cwd=program).err.splitlines()]
    assert "worker.summary" not in {entry.get("event") for entry in entries}


def test_a_reload_waits_for_running_tasks_and_survives_code_that_cannot_be_imported(
    start: Start, client: dibs.Dibs, program: Path
) -> None:
    old = client.enqueue("hold", {"name": "old"}).id
    terminal = start("--reload")
    terminal.shows("reload +when a source file of the program changes")
    begun(program, "old")
    (program / "helper.py").write_text('VERSION = "two, which is longer"\n')
    terminal.shows("helper.py changed: the worker starts again; first, 1 task is running and has 25 s to end")
    (program / "old.go").touch()
    terminal.shows("stopped")
    new = client.enqueue("hold", {"name": "new"}).id
    begun(program, "new")
    (program / "new.go").touch()
    results = [client.wait(task, 30).result for task in (old, new)]
    assert results == ["one", "two, which is longer"]
    (program / "program.py").write_text(f"{PROGRAM}\ndef broken(:\n")
    terminal.shows("SyntaxError: invalid syntax(.|\n)*the worker starts again after the next change")
    (program / "program.py").write_text(f"{PROGRAM}\nimport missing_module\n")
    terminal.shows("No module named 'missing_module'(.|\n)*the worker starts again after the next change")
    (program / "missing_module.py").touch()
    mended = client.enqueue("hold", {"name": "mended"}).id
    begun(program, "mended")
    (program / "helper.py").write_text('VERSION = "three"\n')
    until(lambda: terminal.text.count("helper.py changed: the worker starts again; first, 1 task") == 2)
    terminal.interrupt()
    terminal.shows("stopping · 1 task is running and has 25 s to end; press Ctrl-C again")
    (program / "mended.go").touch()  # the first Ctrl-C has not ended the grace period
    assert terminal.ends() == 0
    assert client.wait(mended, 30).result == "two, which is longer"


def test_every_process_reloads_and_an_error_is_printed_once(url: str, client: dibs.Dibs, program: Path) -> None:
    command = [*COMMAND, "worker", "program", "--url", url, "--reload", "--processes", "2", "--worker-id", "w"]
    log = program / "log"
    with log.open("wb") as file, subprocess.Popen(command, cwd=program, stderr=file, env=environment()) as process:
        try:
            until(lambda: len(active(client)) == 2, 30)
            before = active(client)
            (program / "helper.py").write_text('VERSION = "broken\n')
            until(lambda: b"worker.reload_failed" in log.read_bytes(), 30)
            assert not active(client)
            (program / "helper.py").write_text('VERSION = "mended"\n')
            until(lambda: len(active(client)) == 2, 30)
            assert not active(client) & before
        finally:
            process.terminate()
        assert process.wait(30) == 0
    assert log.read_text().count("SyntaxError: unterminated") == 2  # the traceback and the error


def active(client: dibs.Dibs) -> set[object]:
    """The processes of the active workers."""
    return {each.metadata["pid"] for each in client.workers() if each.state == dibs.WorkerState.ACTIVE}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_burst_that_reloads_is_wrong_usage(run: Run, program: Path) -> None:
    done = run("worker", "program", "--burst", "--reload", cwd=program)
    assert (done.code, done.err.splitlines()[0]) == (2, "error: --reload and --burst exclude each other.")
