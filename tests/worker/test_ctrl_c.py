"""Ctrl-C in a script that uses dibs: KeyboardInterrupt reaches the script, with a traceback about the script."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.server.config import ServerConfig
from dibs.server.run import serving
from dibs.store.open import open_store
from tests.helpers.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")

SYNC = """
import sys
import dibs

app = dibs.Dibs(sys.argv[1])
scale = app.task(name="scale")(lambda number: number)
task = app.enqueue("resize")
print("ready", flush=True)
{call}
"""
ASYNC = """
import asyncio, sys
import dibs

app = dibs.AsyncDibs(sys.argv[1])
scale = app.task(name="scale")(lambda number: number)

async def main():
    task = await app.enqueue("resize")
    print("ready", flush=True)
    {call}

asyncio.run(main())
"""
CALLS = {
    "wait": (SYNC, "task.wait()"),
    "claim": (SYNC, "app.claim('w', types=['none'], wait=60)"),
    "poll": (SYNC, "dibs.TaskPoller(app, 'w', dibs.PollerConfig(types=['none'])).poll_loop(print)"),
    "await wait": (ASYNC, "await task.wait()"),
    "wait for many": (SYNC, "scale.map([1, 2]).wait(progress=True)"),
    "wait for a workflow": (SYNC, "app.start_workflow(dibs.NewWorkflow(name='w', finalizer=scale.new(1))).result()"),
    "await many": (ASYNC, "await (await scale.map([1, 2])).results()"),
    "await claim": (ASYNC, "await app.claim('w', types=['none'], wait=60)"),
}


@pytest.fixture(params=["sqlite", "postgres", "http"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def any_url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A store of each kind; over HTTP without keys."""
    with ExitStack() as ends:
        if kind == "postgres":
            databases = request.getfixturevalue("postgres_databases")
            database = databases.lend()
            ends.callback(databases.take_back, database)
            yield database
            return
        url = f"sqlite:///{tmp_path}/dibs.db"
        if kind == "http":
            store: Any = open_store(url)
            url = ends.enter_context(serving(store, ServerConfig(port=0, keys=False)))
        yield url


@pytest.mark.parametrize("call", CALLS)
def test_the_traceback_of_ctrl_c_shows_the_line_of_the_script_and_no_line_of_the_library(
    any_url: str, call: str, tmp_path: Path
) -> None:
    template, code = CALLS[call]
    script = tmp_path / "script.py"
    script.write_text(template.format(call=code))
    command = [sys.executable, str(script), any_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        interrupt_once_it_waits(process)
        _, said = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT, said  # not swallowed: the shell sees that it was interrupted
    ending = said[said.rindex("\nKeyboardInterrupt\n") :].split("\n")[2:-1]
    assert len(ending) == ("claim" not in call and call != "poll"), said
    assert all(re.fullmatch("The wait has ended; .* on\\.", line) for line in ending), said
    assert said.count("The wait has ended") == len(ending), said
    assert "\x1b" not in said, "control codes in a pipe"
    assert code in said
    frames = [line for line in said.splitlines() if line.lstrip().startswith('File "')]
    assert [line for line in frames if "script.py" not in line and "asyncio" not in line] == [], said


MAP_SYNC = """
import sys, time
import dibs

app = dibs.Dibs(sys.argv[1])
scale = app.task(name="scale")(lambda number: number)

def numbers():
    yield from range(1500)
    print("ready", flush=True)
    time.sleep(60)

scale.map(numbers())
"""
MAP_ASYNC = """
import asyncio, sys
import dibs

app = dibs.AsyncDibs(sys.argv[1])
scale = app.task(name="scale")(lambda number: number)

async def numbers():
    for number in range(1500):
        yield number
    print("ready", flush=True)
    await asyncio.sleep(60)

async def main():
    await scale.map(numbers())

asyncio.run(main())
"""


@pytest.mark.parametrize("script", [MAP_SYNC, MAP_ASYNC], ids=["map", "await map"])
def test_ctrl_c_while_tasks_are_enqueued_shows_the_lines_of_the_script_and_names_the_stored_tasks(
    script: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/dibs.db"
    path = tmp_path / "script.py"
    path.write_text(script)
    command = [sys.executable, str(path), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        interrupt_once_it_waits(process)
        _, said = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT, said
    assert said.count("1,000 tasks (1 to 1000) are stored. Stored tasks go on,") == 1, said
    assert said.splitlines()[-1].startswith("1,000 tasks"), said
    lines = [line for line in said.splitlines() if line.lstrip().startswith('File "')]
    assert [line for line in lines if "script.py" not in line and "asyncio" not in line] == [], said
    assert "scale.map(numbers())" in said
    assert re.search(r"script.py.*in numbers", said), "the traceback lost the line at which the script was"
    with dibs.Dibs(url) as app:
        assert app.stats().depth == {"pending": 1000}


def interrupt_once_it_waits(process: subprocess.Popen[str]) -> None:
    """Send SIGINT once the main thread has slept for a tenth of a second: then it is inside of the call."""
    before, since = "", time.monotonic()

    def sleeps() -> bool:
        nonlocal before, since
        now = main_thread(process.pid)
        if now != before or "S (sleeping)" not in now:
            before, since = now, time.monotonic()
        return time.monotonic() - since > 0.1

    until(sleeps, 60)
    process.send_signal(signal.SIGINT)


def main_thread(pid: int) -> str:
    """The state of the main thread, and how often it has fallen asleep (man 5 proc)."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():  # not Linux: wherever the script is by then, it is inside of the call
        return "S (sleeping)"
    return "".join(line for line in status.read_text().splitlines() if re.match("State|voluntary", line))


HOOKED = """
import sys
import dibs

sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, error.__notes__, file=sys.stderr)
app = dibs.Dibs(sys.argv[1])
task = app.enqueue("resize")
print("ready", flush=True)
task.wait()
"""


def test_an_excepthook_of_the_program_is_called(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(HOOKED)
    command = [sys.executable, str(path), f"sqlite:///{tmp_path}/dibs.db"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        interrupt_once_it_waits(process)
        _, said = process.communicate(timeout=30)
    assert said == "hooked KeyboardInterrupt ['The wait has ended; task 1 goes on.']\n"


class Stopped(KeyboardInterrupt):
    """What a program's own handler of SIGINT raises."""


@pytest.fixture
def own_handler() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped("by hand")

    before = signal.signal(signal.SIGINT, stop)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("own_handler")
def test_an_exception_raised_by_a_signal_handler_reaches_the_program(tmp_path: Path) -> None:
    with dibs.Dibs(f"sqlite:///{tmp_path}/dibs.db") as app:
        task = app.enqueue("resize")
        timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        with pytest.raises(Stopped, match="by hand") as raised:
            task.wait(30)
        timer.join()
        names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
        assert names[1:] == ["wait", "wait", "_follow"]
        assert app.claim("w").task.id == task.id  # type: ignore[union-attr]
