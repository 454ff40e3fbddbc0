"""A program of a user in a process of uvicorn."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.waiting import until

RUNNING = re.compile(r"Uvicorn running on (http://[0-9.:]+)")


class UvicornProcess:
    """A process of uvicorn, and what it has written so far."""

    def __init__(self, folder: Path, program: str, options: tuple[str, ...], environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "uvicorn", program, "--port", "0", *options]
        self.output = ""
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def url(self) -> str:
        """Wait for the start; the URL. AssertionError with the output if the process has ended instead."""
        until(lambda: self._has_started() or self.process.poll() is not None)
        found = RUNNING.search(self.output)
        assert found is not None, self.output
        return found[1]

    def _has_started(self) -> bool:
        return "startup complete" in self.output and RUNNING.search(self.output) is not None

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        code = self.process.wait(30)
        self._reading.join()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def close(self) -> None:
        """End the process and its children, if they have not ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.ended()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def uvicorn_process(folder: Path, program: str, *options: str, **environment: str) -> Iterator[UvicornProcess]:
    """Run `uvicorn module:application` in a folder; environment variables by keyword."""
    started = UvicornProcess(folder, program, options, environment)
    try:
        yield started
    finally:
        started.close()
