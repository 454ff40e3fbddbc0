"""A supervisor for several worker or server processes: restarts processes that die, and passes on signals to stop."""

from __future__ import annotations

import contextlib
import logging
import math
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
from typing import Any, Protocol

from dibs.exit_codes import WRONG_USAGE
from dibs.observe.sharing import COUNTS_FILE
from dibs.worker.report import REPORT_FILE, report_path

CHECK_INTERVAL = 0.1
FIRST_RESTART_DELAY, MAX_RESTART_DELAY = 1.0, 30.0
STABLE_AFTER = 60.0
"""Seconds after which a process counts as stable: after its death the restart delay is short again."""

LIFELINE = "DIBS_LIFELINE"
"""The environment variable with a pipe that closes when the supervisor ends. Not set on Windows."""

HealthCheck = Callable[[], tuple[bool, dict[str, Any]]]
RunBeside = Callable[[Path, HealthCheck], AbstractContextManager[object]]
"""Creates a context manager to run beside the processes, from the folder of their files and a health check."""

OnSignal = Callable[[int, bool], object]
"""Called with the number of signals to stop so far, and whether the last one was Ctrl-C."""

log = logging.getLogger("dibs.supervisor")


def supervise(
    commands: Sequence[list[str]],
    *,
    what: str = "worker",
    burst: bool = False,
    handed: Mapping[str, int] | None = None,
    stopping: OnSignal | None = None,
    beside: RunBeside | None = None,
    reloading: Callable[[Path], Reloader] | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run the commands in parallel until all have ended. Returns the highest exit code.

    `handed`: open files for each process, by environment variable. `stopping` is called for each signal, before it is
    passed on. `beside`: a context manager around the run. `reloading`: restarts the processes when their code changes.
    `environment`: more variables for each process.
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
                {**_files(Path(folder), number), **more},
            )
            for number, command in enumerate(commands, 1)
        ]
        reloader = None if reloading is None else reloading(Path(folder))
        supervisor = Supervisor(children, burst, stopping, reloader)
        meanwhile = contextlib.nullcontext() if beside is None else beside(Path(folder), supervisor.health)
        with supervisor.recording_signals(), meanwhile:
            return supervisor.run()


def _files(folder: Path, number: int) -> dict[str, str]:
    """The files to which a process writes its counts and its report, by environment variable."""
    return {COUNTS_FILE: str(folder / f"{number}.json"), REPORT_FILE: str(report_path(folder, number))}


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
        self.reloads = False  # True while it stops, to be started again with other code
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

    def reload(self) -> None:
        """Start the process again with the code as it is now, after its running tasks have ended."""
        if self.process is None:
            self._again_at = 0.0
        elif not self.reloads:  # a second signal would end the grace period of its tasks
            self.reloads = True
            self.send(signal.SIGTERM)

    def ended_for_reload(self) -> None:
        """Note the end of the process that was asked to reload: it is started at once."""
        self.process, self.reloads, self._again_at, self._pause = None, False, 0.0, FIRST_RESTART_DELAY

    def wait_for_reload(self) -> None:
        """Note the end of a process that cannot run its code: it is started after the next change."""
        self.process, self._again_at = None, math.inf

    @property
    def restart_due(self) -> bool:
        """True when the process may be restarted."""
        return time.monotonic() >= self._again_at


class Reloader(Protocol):
    """Finds out when processes have to be restarted because their code has changed."""

    def changed(self) -> bool:
        """Whether the code has changed since the last call, which logs the changes."""

    def has_imported(self, pid: int) -> bool:
        """Whether the process has imported its code."""

    def failed(self) -> None:
        """Log that the code cannot be run."""


class Supervisor:
    """Restarts processes and passes on signals until the last process has ended."""

    def __init__(
        self,
        children: list[SupervisedProcess],
        burst: bool,
        stopping: OnSignal | None,
        reloader: Reloader | None = None,
    ) -> None:
        self._children = children
        self._burst = burst
        self._stopping = stopping
        self._reloader = reloader
        self._received: list[int] = []  # received, not yet passed on
        self._signals = 0
        self._sent: set[int] = set()

    def run(self) -> int:
        """Run until all processes have ended. Returns the highest exit code."""
        while living := [child for child in self._children if child.code is None]:
            self._pass_on()
            self._reload_changed()
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
        self._received.append(number)

    def _pass_on(self) -> None:
        while self._received:
            interrupted = self._received.pop(0) == signal.SIGINT
            self._signals += 1
            if self._stopping is not None:
                self._stopping(self._signals, interrupted)
            self._stop_children()

    def _stop_children(self) -> None:
        """Send SIGTERM, also after Ctrl-C: a process that is still importing would print a traceback."""
        self._sent.add(signal.SIGTERM)
        for child in self._children:
            if child.reloads:
                child.reloads = False  # it was already asked to stop: a second signal would end the grace period
            else:
                child.send(signal.SIGTERM)

    def _reload_changed(self) -> None:
        if self._reloader is not None and not self._sent and self._reloader.changed():
            for child in self._children:
                child.reload()

    def _check(self, child: SupervisedProcess) -> None:
        if child.process is None:
            self._start(child)
        elif (code := child.process.poll()) is not None:
            self._ended(child, code)

    def _start(self, child: SupervisedProcess) -> None:
        if self._sent:
            child.code = 0  # it was waiting for its restart
        elif child.restart_due and self._may_import(child):
            child.start()

    def _may_import(self, child: SupervisedProcess) -> bool:
        """With a reloader, the first process imports the code before the others start: an error is printed once."""
        first = self._children[0]
        if self._reloader is None or child is first:
            return True
        return first.process is not None and not first.reloads and self._reloader.has_imported(first.process.pid)

    def _ended(self, child: SupervisedProcess, code: int) -> None:
        if self._sent or (self._burst and code == 0):
            child.code = self._final_code(code)
        elif child.reloads:
            child.ended_for_reload()
        elif code == WRONG_USAGE and self._reloader is not None:
            child.wait_for_reload()
            self._reloader.failed()
        elif code == WRONG_USAGE:  # a restart would fail in the same way, and so would the other processes
            child.code = code
            self._stop_children()
        else:
            about = {"event": "process.died", "child": child.name, "exit_code": code}
            log.error(
                "%s died with exit code %d; again in %g s", child.name, code, child.schedule_restart(), extra=about
            )

    def _final_code(self, code: int) -> int:
        if -code in self._sent:
            return 0  # the signal came before the process handled signals: it held no task yet
        return 128 - code if code < 0 else code
