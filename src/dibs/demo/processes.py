"""The processes of the demo: a server and some workers. Who dies is replaced; none outlives the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dibs.supervisor import LIFELINE

PATIENCE = 8.0
"""Seconds after which whoever was asked to stop is stopped."""

REST = 2.0
"""Seconds until the place of one that died is taken: long enough to see that it is empty."""


class Crew:
    """Processes by their names, all with the same environment."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.log = folder / "demo.log"
        self._environment = {**os.environ, **environment}
        self._members: dict[str, Member] = {}
        # A pipe whose other end is ours and never closed: they notice by it that we are gone, however we went.
        self._lifeline = {} if sys.platform == "win32" else {LIFELINE: os.pipe()[0]}

    def add(self, name: str, command: Sequence[str], **handed: int) -> None:
        """Start one of them: `dibs COMMAND`. `handed`: open files, named by environment variables."""
        member = Member([sys.executable, "-m", "dibs", *command], {**self._lifeline, **handed})
        member.start(self._environment, self.log)
        self._members[name] = member

    def kill(self, name: str) -> None:
        """Kill -9: no goodbye, no clean-up."""
        self._members[name].process.kill()

    def is_up(self, name: str) -> bool:
        """True while it runs."""
        return self._members[name].process.poll() is None

    def tend(self) -> None:
        """Start those again that have ended."""
        for member in self._members.values():
            if member.is_due():
                member.start(self._environment, self.log)

    def stop(self) -> None:
        """Let them finish what they have begun, for a while."""
        for member in self._members.values():
            member.process.terminate()
        end = time.monotonic() + PATIENCE
        for member in self._members.values():
            member.wait(max(0.1, end - time.monotonic()))

    def stop_now(self) -> None:
        """Somebody is in a hurry. Nothing is lost by it: that is what leases are for."""
        for member in self._members.values():
            member.process.kill()


class Member:
    """A process, and how to start it again."""

    def __init__(self, command: list[str], handed: Mapping[str, int]) -> None:
        self._command = command
        self._handed = handed
        self._ended_at: float | None = None
        self.process: subprocess.Popen[bytes]

    def start(self, environment: Mapping[str, str], log: Path) -> None:
        """Out of the reach of the terminal's Ctrl-C: it hears of that from us."""
        named = {name: str(number) for name, number in self._handed.items()}
        apart: dict[str, Any] = {"start_new_session": True, "pass_fds": list(self._handed.values())}
        if sys.platform == "win32":
            apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        self._ended_at = None
        with log.open("ab") as said:
            self.process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                self._command, stdout=said, stderr=said, env={**environment, **named}, **apart
            )

    def is_due(self) -> bool:
        """True if it ended, and a while ago."""
        if self.process.poll() is None:
            return False
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        return now - self._ended_at >= REST

    def wait(self, patience: float) -> None:
        """Until it has ended; it has to, in the end."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
