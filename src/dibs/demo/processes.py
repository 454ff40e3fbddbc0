"""The processes of the demo: a server and workers. A process that dies is restarted; all processes end with the demo.

The loop in `dibs.cli.demo` calls `restart_ended`. Every process must get the lifeline, a pipe: the end of the pipe is
the only sign of a demo that was killed, and without it the processes of a killed demo would run on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dibs.supervisor import LIFELINE

STOP_TIMEOUT = 8.0
"""Seconds between the request to stop and the kill of a process."""

RESTART_DELAY = 2.0
"""Seconds until a dead process is restarted: long enough for its absence to be visible in the dashboard."""


class DemoProcesses:
    """Named processes with a common environment and log file."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.log = folder / "demo.log"
        self._environment = {**os.environ, **environment}
        self._processes: dict[str, DemoProcess] = {}
        # The processes inherit the read end of a pipe. The demo never closes the write end; when the demo ends, even by
        # SIGKILL, the kernel closes the write end, and the processes read the end of the file and stop.
        self._lifeline = {} if sys.platform == "win32" else {LIFELINE: os.pipe()[0]}

    def add(self, name: str, command: Sequence[str], **inherited: int) -> None:
        """Start `dibs COMMAND` under this name. `inherited`: the file descriptors that the process inherits. Each
        number is passed in the environment variable of that name."""
        process = DemoProcess([sys.executable, "-m", "dibs", *command], {**self._lifeline, **inherited})
        process.start(self._environment, self.log)
        self._processes[name] = process

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL."""
        self._processes[name].process.kill()

    def is_up(self, name: str) -> bool:
        """Return True while the process runs."""
        return self._processes[name].process.poll() is None

    def restart_ended(self) -> None:
        """Restart the processes that ended at least RESTART_DELAY seconds ago."""
        for process in self._processes.values():
            if process.is_restart_due():
                process.start(self._environment, self.log)

    def stop(self) -> None:
        """Ask all processes to stop, and kill the processes that still run after STOP_TIMEOUT seconds."""
        for process in self._processes.values():
            process.process.terminate()
        end = time.monotonic() + STOP_TIMEOUT
        for process in self._processes.values():
            process.wait(max(0.1, end - time.monotonic()))

    def stop_now(self) -> None:
        """Kill all processes. No task is lost: the tasks are recovered when their leases run out."""
        for process in self._processes.values():
            process.process.kill()


class DemoProcess:
    """A command of the demo and the process that runs the command now."""

    def __init__(self, command: list[str], inherited: Mapping[str, int]) -> None:
        self._command = command
        self._inherited = inherited
        self._end_seen_at: float | None = None
        self.process: subprocess.Popen[bytes]

    def start(self, environment: Mapping[str, str], log: Path) -> None:
        """Start the process, in a new session: Ctrl-C then reaches only the demo, and the demo stops its processes."""
        variables = {name: str(number) for name, number in self._inherited.items()}
        options: dict[str, Any] = {"start_new_session": True, "pass_fds": list(self._inherited.values())}
        if sys.platform == "win32":
            options = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        self._end_seen_at = None
        with log.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                self._command, stdout=output, stderr=output, env={**environment, **variables}, **options
            )

    def is_restart_due(self) -> bool:
        """Return True if an earlier call saw, at least RESTART_DELAY seconds ago, that the process has ended."""
        if self.process.poll() is None:
            return False
        now = time.monotonic()
        self._end_seen_at = self._end_seen_at or now
        return now - self._end_seen_at >= RESTART_DELAY

    def wait(self, timeout: float) -> None:
        """Wait for the end of the process; kill the process after `timeout` seconds."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
