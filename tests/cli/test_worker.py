"""`dibs worker`: real processes that are started, stopped, killed, and given wrong programs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dibs
from tests.cli.running import COMMAND, Run, environment
from tests.helpers.release_warning import without_caution
from tests.helpers.terminal import Terminal
from tests.helpers.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")

PROGRAM = """
import os, time
import dibs

app = dibs.Dibs("sqlite:///elsewhere.db")
empty = dibs.Dibs()

@app.task
def add(a: int, b: int) -> int:
    return a + b

@app.task
def nap(seconds: float) -> str:
    time.sleep(seconds)
    return os.environ["DIBS_URL"]
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a program, and with some that are wrong."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found\n")
    (tmp_path / "failing.py").write_text("def begin():\n    raise OSError('no\\x1b[31m luck')\n\nbegin()\n")
    return tmp_path


@contextmanager
def working(url: str, folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process that is always stopped at the end."""
    command = [*COMMAND, "worker", "program", "--url", url, *options]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, env=environment()) as process:
        try:
            yield process
        finally:
            process.terminate()


def state(client: dibs.Dibs, task_id: int) -> str:
    task = client.get(task_id)
    assert task is not None
    return task.state.value


def pids(client: dibs.Dibs) -> dict[str, int]:
    """The processes of the workers that are there, by name; of a name used twice, the later one."""
    return {each.id: each.metadata["pid"] for each in client.workers() if each.state == dibs.WorkerState.ACTIVE}


def test_a_burst_runs_the_tasks_of_the_store_in_the_url(run: Run, url: str, client: dibs.Dibs, program: Path) -> None:
    ids = [client.enqueue("add", {"a": n, "b": 1}).id for n in range(20)]
    nap = client.enqueue("nap", {"seconds": 0}).id
    done = run("worker", "program:app", "--burst", "--url", url, cwd=program)
    assert (done.code, done.out) == (0, "")
    results = [task.result for task in map(client.get, ids) if task is not None]
    assert results == list(range(1, 21))
    told = client.get(nap)
    assert told is not None
    assert told.result == url
    assert not (program / "elsewhere.db").exists()


def test_the_log_has_one_line_for_each_entry(run: Run, url: str, client: dibs.Dibs, program: Path) -> None:
    log = run(
        "worker", "program", "--burst", "--log-format", "human", "--worker-id", "w", "--url", url, cwd=program
    ).err
    lines = without_caution(log).splitlines()
    assert lines
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO +dibs\.worker: worker w", line) for line in lines)
    quiet = run("worker", "program", "--burst", "--log-level", "error", "--url", url, "--json", cwd=program)
    assert (quiet.err, quiet.json) == ("", {"success": True, "exit_code": 0})


def test_sigterm_lets_running_tasks_finish(url: str, client: dibs.Dibs, program: Path) -> None:
    task = client.enqueue("nap", {"seconds": 1}).id
    with working(url, program) as process:
        until(lambda: state(client, task) == "claimed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert state(client, task) == "completed"


def test_a_task_that_does_not_finish_within_the_grace_period_is_released_and_not_charged(
    url: str, client: dibs.Dibs, program: Path
) -> None:
    task = client.enqueue("nap", {"seconds": 60}).id
    with working(url, program, "--grace", "0.1") as process:
        until(lambda: state(client, task) == "claimed")
        process.send_signal(signal.SIGTERM)
        until(lambda: state(client, task) == "pending")
        process.kill()  # the thread naps on
    released = client.get(task)
    assert released is not None
    assert released.attempts == 0


def test_a_worker_serves_only_the_given_queues(run: Run, url: str, client: dibs.Dibs, program: Path) -> None:
    a, b, c = (client.enqueue("add", {"a": 1, "b": 1}, queue=queue).id for queue in "abc")
    assert run("worker", "program", "--burst", "--queues", "a, b", "--url", url, cwd=program).code == 0
    assert [state(client, each) for each in (a, b, c)] == ["completed", "completed", "pending"]


def test_queues_with_bounds_are_served_by_every_process_and_shown(
    run: Run, url: str, client: dibs.Dibs, program: Path
) -> None:
    a, b = (client.enqueue("add", {"a": 1, "b": 1}, queue=queue).id for queue in "ab")
    options = ("--burst", "--processes", "2", "--worker-id", "w", "--queues", "a=2, b", "--url", url)
    assert run("worker", "program", *options, cwd=program).code == 0
    assert [state(client, each) for each in (a, b)] == ["completed", "completed"]
    assert [line.split()[2] for line in run("workers", "--url", url).out.splitlines()[1:]] == ["a=2,b", "a=2,b"]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_invalid_bounds_of_queues_are_wrong_usage(run: Run, program: Path) -> None:
    for queues, error in (
        ("mail=two", "error: 'mail=two' does not end with a number."),
        ("mail=", "error: 'mail=' does not end with a number."),
        ("mail=0", "error: The bound of the queue 'mail' must be between 1 and 10,000, not 0."),
        ("mail=1,mail=2", "error: The queue 'mail' is given twice."),
        ("=2", "error: The queue must"),
    ):
        done = run("worker", "program", "--burst", "--queues", queues, cwd=program)
        assert (done.code, done.err[: len(error)]) == (2, error)


def test_two_worker_processes_share_a_burst_under_different_names(
    run: Run, url: str, client: dibs.Dibs, program: Path
) -> None:
    client.enqueue_many([dibs.NewTask("add", {"a": n, "b": 1}) for n in range(50)])
    options = ["--burst", "--processes", "2", "--worker-id", "w", "--url", url]
    done = run("worker", "program", *options, cwd=program)
    assert done.code == 0
    assert client.stats().depth == {"completed": 50}
    assert {worker.id for worker in client.workers()} == {"w-1", "w-2"}


def test_a_worker_process_that_dies_is_started_again_and_all_stop_together(
    url: str, client: dibs.Dibs, program: Path
) -> None:
    with working(url, program, "--processes", "2", "--worker-id", "w") as process:
        until(lambda: len(pids(client)) == 2, 30)
        before = pids(client)
        os.kill(before["w-1"], signal.SIGKILL)
        until(lambda: pids(client)["w-1"] != before["w-1"], 30)
        assert pids(client)["w-2"] == before["w-2"]
        task = client.enqueue("nap", {"seconds": 0.5}).id
        until(lambda: state(client, task) == "claimed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "worker process 1 died with exit code -9; again in 1 s" in process.stderr.read().decode()
    assert state(client, task) == "completed"
    for pid in (*before.values(), process.pid):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_supervisor_that_is_killed_leaves_no_process_behind(url: str, client: dibs.Dibs, program: Path) -> None:
    with working(url, program, "--processes", "2", "--worker-id", "w") as process:
        until(lambda: len(pids(client)) == 2, 30)
        task = client.enqueue("nap", {"seconds": 1}).id
        until(lambda: state(client, task) == "claimed")
        process.kill()
        process.wait(30)
        until(lambda: not pids(client), 30)  # they have reported that they stop
    assert state(client, task) == "completed"


def test_ctrl_c_in_a_terminal_reaches_every_process_once(url: str, client: dibs.Dibs, program: Path) -> None:
    options = ["--processes", "2", "--worker-id", "w", "--url", url]
    with Terminal("worker", "program", *options, columns=120, PYTHONPATH=str(program)) as terminal:
        until(lambda: len(pids(client)) == 2, 30)
        task = client.enqueue("nap", {"seconds": 1}).id
        until(lambda: state(client, task) == "claimed")
        terminal.interrupt()
        assert terminal.ends() == 0
        assert "Traceback" not in terminal.raw
    assert state(client, task) == "completed"  # a second signal would have cut it short


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("missing", "The module 'missing' does not exist."),
        ("missing.deeper:app", "The module 'missing' does not exist."),
        ("program.py", "'program.py' is not a valid module name."),
        ("folder/program", "'folder/program' is not a valid module name."),
        ("program:nothing", "The module 'program' has no 'nothing'."),
        ("program:time", "program:time is a module, not an app."),
        ("program:empty", "program:empty has no handlers."),
        (
            "broken",
            "The module 'broken' cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'.",
        ),
        ("failing", r"The module 'failing' cannot be imported: OSError: no\x1b[31m luck."),
    ],
)
def test_each_mistake_in_the_name_of_the_program_has_its_own_error(
    run: Run, program: Path, name: str, error: str
) -> None:
    done = run("worker", name, cwd=program)
    assert done.code == 2
    assert f"error: {error}" in done.err
    assert "\x1b" not in done.err


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_program_with_an_error_is_not_started_again(run: Run, program: Path) -> None:
    done = run("worker", "missing", "--processes", "2", cwd=program)
    assert (done.code, "error: The module 'missing' does not exist." in done.err) == (2, True)


def test_an_error_inside_the_program_shows_its_place(tmp_path: Path, program: Path) -> None:
    done = subprocess.run([*COMMAND, "worker", "failing"], cwd=program, capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if line.strip(" ~^")]  # Python 3.13 points at the place
    assert told[:5] == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/failing.py", line 4, in <module>',
        "    begin()",
        f'  File "{tmp_path}/failing.py", line 2, in begin',
        r"    raise OSError('no\x1b[31m luck')",
    ]


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize(
    "options",
    [["--log-level", "loud"], ["--lease", "0"], ["--concurrency", "0"], ["--queues", ""], ["--worker-id", "a b"]],
    ids=" ".join,
)
def test_invalid_options_of_the_worker_are_wrong_usage(run: Run, program: Path, options: list[str]) -> None:
    done = run("worker", "program", "--burst", *options, cwd=program)
    assert done.code == 2
    assert done.err.startswith("error: ")


ORDERED = """
import dibs

app = dibs.Dibs()

@app.task
def note(n: int) -> None:
    with open("ran", "a") as file:
        file.write(f"{n} ")
"""


def test_a_worker_claims_in_the_given_order(run: Run, client: dibs.Dibs, tmp_path: Path) -> None:
    (tmp_path / "ordered.py").write_text(ORDERED)
    client.enqueue_many([dibs.NewTask("note", {"n": n}) for n in range(5)])
    options = ("--order", "lifo", "--poll", "0.05", "--concurrency", "1", "--burst")
    assert run("worker", "ordered", *options).code == 0
    assert (tmp_path / "ran").read_text().split() == ["4", "3", "2", "1", "0"]


def test_an_order_or_a_poll_that_a_worker_cannot_use_is_wrong_usage(run: Run, program: Path) -> None:
    for option, value, said in (
        ("--order", "alphabet", "error: There is no order 'alphabet'."),
        ("--poll", "0", "error: poll must be between 0.01 and "),
    ):
        done = run("worker", "program", "--burst", option, value, cwd=program)
        assert (done.code, done.err[: len(said)]) == (2, said)
