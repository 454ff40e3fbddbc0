"""Processes that run dibs, started quickly: `start("dibs", "tasks", "list")` is `python -m dibs tasks list`.

The import of dibs takes longer than most tests, so these processes are forked from one that has imported dibs (see
starter.py). A test that needs a really new process, or pipes, uses subprocess.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import weakref
from functools import cache
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import IO, Any, Self

STARTER = Path(__file__).with_name("starter.py")
OF_PYTHON = ("LANG", "LC_", "PYTHON")
"""What Python itself reads of the environment, when it starts."""

_asking = Lock()


def start(
    module: str,
    *args: str,
    stdin: IO[Any] | int | None = None,
    stdout: IO[Any] | int | None = None,
    stderr: IO[Any] | int | None = None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> Started | subprocess.Popen[bytes]:
    """Run the module with these standard files (numbers are those of files, too) as a process of its own."""
    env = dict(os.environ) if env is None else env
    if sys.platform != "linux" or not _like_ours(env):
        command = [sys.executable, "-m", module, *args]
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env)
    wanted = {"module": module, "args": args, "env": env, "cwd": str((cwd or Path()).absolute())}
    files = [_number(given, usual) for usual, given in enumerate((stdin, stdout, stderr))]
    answers, to_answer = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with to_answer, _asking:
        socket.send_fds(_starter(), [json.dumps(wanted).encode()], [*files, to_answer.fileno()])
    return Started([module, *args], answers.detach())


def _like_ours(env: dict[str, str]) -> bool:
    """True if Python would start with these as it did for us."""
    return all(env.get(name) == os.environ.get(name) for name in {*env, *os.environ} if name.startswith(OF_PYTHON))


def _number(given: IO[Any] | int | None, usual: int) -> int:
    if given is None:
        return usual
    return given if isinstance(given, int) else given.fileno()


@cache
def _starter() -> socket.socket:
    """Where the starter of this process hears; it ends when this process does."""
    ours, its = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, str(STARTER), str(its.fileno())]
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "DIBS_URL", "FORCE_COLOR")}
        pipe = subprocess.PIPE  # as a command has that is run by a script
        starter = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, pass_fds=[its.fileno()])
    atexit.register(starter.communicate)
    atexit.register(ours.close)
    return ours


class Started:
    """A command that the starter started, with the words of Popen."""

    def __init__(self, args: list[str], answers: int) -> None:
        self.args = args
        self.returncode: int | None = None
        self._answers = answers
        self._hearing = Lock()
        weakref.finalize(self, os.close, answers)
        self.pid = self._hear()

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            answered = select.poll()
            answered.register(self._answers, select.POLLIN)
            if not answered.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        with self._hearing:
            if self.returncode is None:
                self.returncode = self._hear()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()

    def _hear(self) -> int:
        if heard := os.read(self._answers, 64):
            return int(heard)
        raise EOFError(f"Nobody waits for {' '.join(self.args)} any more.")
