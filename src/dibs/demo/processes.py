"""The processes of the demo: a server and workers. One that dies is restarted; all end with the demo."""

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
"""Seconds until a process that died is restarted: long enough to see in the dashboard that it is gone."""


class DemoProcesses:
    """Named processes with a common environment and log file."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.log = folder / "demo.log"
        self._environment = {**os.environ, **environment}
        self._processes: dict[str, DemoProcess] = {}
        # The demo holds the other end of this pipe open: the end of file tells the processes that the demo has ended.
        self._lifeline = {} if sys.platform == "win32" else {LIFELINE: os.pipe()[0]}

    def add(self, name: str, command: Sequence[str], **inherited: int) -> None:
        """Start `dibs COMMAND`. `inherited`: environment variables with the descriptors of inherited files."""
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
        """Restart the processes that ended some time ago."""
        for process in self._processes.values():
            if process.is_due():
                process.start(self._environment, self.log)

    def stop(self) -> None:
        """Ask all processes to stop, and kill the ones that take too long."""
        for process in self._processes.values():
            process.process.terminate()
        end = time.monotonic() + STOP_TIMEOUT
        for process in self._processes.values():
            process.wait(max(0.1, end - time.monotonic()))

    def stop_now(self) -> None:
        """Kill all processes. No task is lost: leases expire and the tasks are recovered."""
        for process in self._processes.values():
            process.process.kill()


class DemoProcess:
    """A process that can be restarted."""

    def __init__(self, command: list[str], inherited: Mapping[str, int]) -> None:
        self._command = command
        self._inherited = inherited
        self._ended_at: float | None = None
        self.process: subprocess.Popen[bytes]

    def start(self, environment: Mapping[str, str], log: Path) -> None:
        """Start the process in its own session: Ctrl-C reaches only the demo, which stops its processes."""
        variables = {name: str(number) for name, number in self._inherited.items()}
        options: dict[str, Any] = {"start_new_session": True, "pass_fds": list(self._inherited.values())}
        if sys.platform == "win32":
            options = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        self._ended_at = None
        with log.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                self._command, stdout=output, stderr=output, env={**environment, **variables}, **options
            )

    def is_due(self) -> bool:
        """Return True if the process ended at least RESTART_DELAY seconds ago."""
        if self.process.poll() is None:
            return False
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        return now - self._ended_at >= RESTART_DELAY

    def wait(self, timeout: float) -> None:
        """Wait for the end of the process; kill it after `timeout` seconds."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
