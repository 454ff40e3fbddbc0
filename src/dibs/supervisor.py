"""A supervisor for several worker or server processes: restarts processes that die, and passes on signals to stop."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

from dibs.exit_codes import WRONG_USAGE
from dibs.observe.sharing import COUNTS_FILE

CHECK_INTERVAL = 0.1
FIRST_RESTART_DELAY, MAX_RESTART_DELAY = 1.0, 30.0
STABLE_AFTER = 60.0
"""Seconds after which a process counts as stable: after its death the restart delay is short again."""

LIFELINE = "DIBS_LIFELINE"
"""The environment variable with a pipe that closes when the supervisor ends. Not set on Windows."""

HealthCheck = Callable[[], tuple[bool, dict[str, Any]]]
RunBeside = Callable[[Path, HealthCheck], AbstractContextManager[object]]
"""Creates a context manager to run beside the processes, from the folder of their metrics and a health check."""

log = logging.getLogger("dibs.supervisor")


def supervise(
    commands: Sequence[list[str]],
    *,
    what: str = "worker",
    burst: bool = False,
    handed: Mapping[str, int] | None = None,
    stopping: Callable[[], object] | None = None,
    beside: RunBeside | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run the commands in parallel until all have ended. Returns the highest exit code.

    `handed`: open files for each process, by environment variable. `stopping` is called once, before the processes are
    asked to stop. `beside`: a context manager around the run. `environment`: more variables for each process.
    """
    lifeline = {} if sys.platform == "win32" else {LIFELINE: os.pipe()[0]}  # the supervisor never closes the other end
    more = environment or {}
    with tempfile.TemporaryDirectory(prefix="dibs-counts-", ignore_cleanup_errors=True) as folder:
        children = [
            SupervisedProcess(
                number,
                command,
                what,
                {**lifeline, **(handed or {})},
                {COUNTS_FILE: str(Path(folder, f"{number}.json")), **more},
            )
            for number, command in enumerate(commands, 1)
        ]
        supervisor = Supervisor(children, burst, stopping)
        meanwhile = contextlib.nullcontext() if beside is None else beside(Path(folder), supervisor.health)
        with supervisor.recording_signals(), meanwhile:
            return supervisor.run()


def end_with_the_supervisor() -> None:
    """Stop this process, as after SIGTERM, when the supervisor ends for any reason.

    Without a supervisor nothing would restart or stop the process, and a new supervisor would start others beside it.
    """
    if (lifeline := os.environ.pop(LIFELINE, None)) is None:
        return
    os.set_inheritable(int(lifeline), False)
    threading.Thread(target=_stop_after_supervisor, args=[int(lifeline)], name="dibs-lifeline", daemon=True).start()


def _stop_after_supervisor(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns when the supervisor ends: nothing is ever written
    log.error("the supervisor has ended; this process stops", extra={"event": "supervisor.lost"})
    os.kill(os.getpid(), signal.SIGTERM)


class SupervisedProcess:
    """A process, its restart delay and its final exit code."""

    def __init__(
        self, number: int, command: list[str], what: str, handed: Mapping[str, int], named: Mapping[str, str]
    ) -> None:
        self.name = f"{what} process {number}"
        self._handed = handed
        self._named = named
        self.process: subprocess.Popen[bytes] | None = None
        self.code: int | None = None  # set once the process will not be restarted
        self._command = command
        self._started_at = 0.0
        self._pause = FIRST_RESTART_DELAY
        self._again_at = 0.0

    def start(self) -> None:
        """Start the process in a session of its own: the supervisor passes Ctrl-C on, so the process receives it
        once."""
        named = {**self._named, **{name: str(number) for name, number in self._handed.items()}}
        apart: dict[str, Any] = {"start_new_session": True, "pass_fds": list(self._handed.values())}
        if sys.platform == "win32":
            apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        env = {**os.environ, **named}
        self.process = subprocess.Popen(self._command, env=env, **apart)  # noqa: S603 - our own command, no shell
        self._started_at = time.monotonic()
        about = {"event": "process.started", "child": self.name, "pid": self.process.pid}
        log.info("%s started (pid %d)", self.name, self.process.pid, extra=about)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        if self.process is None or self.process.poll() is not None:
            return
        if sys.platform == "win32":
            self.process.send_signal(signal.CTRL_BREAK_EVENT)
        else:
            self.process.send_signal(number)

    def schedule_restart(self) -> float:
        """Schedule the restart after a death. Returns the seconds until then, longer each time."""
        self.process = None
        if time.monotonic() - self._started_at > STABLE_AFTER:
            self._pause = FIRST_RESTART_DELAY
        pause, self._pause = self._pause, min(self._pause * 2, MAX_RESTART_DELAY)
        self._again_at = time.monotonic() + pause
        return pause

    @property
    def restart_due(self) -> bool:
        """True when the process may be restarted."""
        return time.monotonic() >= self._again_at


class Supervisor:
    """Restarts processes and passes on signals until the last process has ended."""

    def __init__(self, children: list[SupervisedProcess], burst: bool, stopping: Callable[[], object] | None) -> None:
        self._children = children
        self._burst = burst
        self._stopping = stopping
        self._received: list[signal.Signals] = []  # received, not yet passed on
        self._sent: set[int] = set()

    def run(self) -> int:
        """Run until all processes have ended. Returns the highest exit code."""
        while living := [child for child in self._children if child.code is None]:
            self._pass_on()
            for child in living:
                self._check(child)
            time.sleep(CHECK_INTERVAL)
        return max(child.code or 0 for child in self._children)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether any process runs, and the number of running processes."""
        processes = [child.process for child in self._children]
        running = sum(process is not None and process.poll() is None for process in processes)
        return running > 0, {"processes": len(self._children), "running": running}

    @contextlib.contextmanager
    def recording_signals(self) -> Iterator[None]:
        """Record SIGTERM, SIGINT and SIGHUP during the block, instead of ending."""
        names = [name for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
        before = {name: signal.signal(getattr(signal, name), self._record) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def _record(self, number: int, _: FrameType | None) -> None:
        # also for Ctrl-C: a process that is still importing would print a traceback
        self._received.append(signal.SIGTERM)

    def _pass_on(self) -> None:
        while self._received:
            number = self._received.pop(0)
            if self._stopping is not None and not self._sent:
                self._stopping()
            self._sent.add(number)
            for child in self._children:
                child.send(number)

    def _check(self, child: SupervisedProcess) -> None:
        if child.process is None:
            self._start(child)
        elif (code := child.process.poll()) is not None:
            self._ended(child, code)

    def _start(self, child: SupervisedProcess) -> None:
        if self._sent:
            child.code = 0  # it was waiting for its restart
        elif child.restart_due:
            child.start()

    def _ended(self, child: SupervisedProcess, code: int) -> None:
        if self._sent or (self._burst and code == 0):
            child.code = self._final_code(code)
        elif code == WRONG_USAGE:  # a restart would fail in the same way, and so would the other processes
            child.code = code
            self._received.append(signal.SIGTERM)
        else:
            about = {"event": "process.died", "child": child.name, "exit_code": code}
            log.error(
                "%s died with exit code %d; again in %g s", child.name, code, child.schedule_restart(), extra=about
            )

    def _final_code(self, code: int) -> int:
        if -code in self._sent:
            return 0  # the signal came before the process handled signals: it held no task yet
        return 128 - code if code < 0 else code
