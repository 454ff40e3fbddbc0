"""Workers in separate processes (see work.py), to be signalled, frozen and killed."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dibs
from dibs import WorkerState
from tests.helpers.freezing import freeze, thaw
from tests.helpers.processes import ROOT
from tests.helpers.starting import start
from tests.helpers.waiting import until

_numbers = itertools.count(1)


class WorkerProcess:
    """A worker process."""

    def __init__(self, url: str, *, program: str = "tests.helpers.work", **options: Any) -> None:
        self.name = str(options.setdefault("worker_id", f"worker-process-{next(_numbers)}"))
        self.url = url
        self.killed_at: float | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        with Path(os.devnull).open("rb") as nothing:
            self.process = start(program, url, json.dumps(options), stdin=nothing, stderr=self._log, cwd=ROOT)

    @property
    def log(self) -> str:
        """What it has logged so far."""
        self._log.seek(0)
        return self._log.read().decode()

    def wait_until_ready(self, app: dibs.Dibs) -> None:
        """Wait until the store knows it."""
        until(lambda: self._is_active(app), 30)

    def kill(self) -> None:
        """kill -9, and remember when."""
        self.process.kill()
        self.process.wait()
        self.killed_at = time.time()

    def freeze(self) -> None:
        """Freeze it at any point outside of a write transaction, which would block all other processes."""
        freeze(self.process.pid, outside_transactions_of=self.url)

    def thaw(self) -> None:
        """Let the process continue."""
        thaw(self.process.pid)

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.terminate()

    def exit_code(self, timeout: float = 30) -> int:
        """Wait until it has ended."""
        return self.process.wait(timeout)

    def close(self) -> None:
        """Kill the process if it still runs, and print its log for a test that failed."""
        self.process.kill()
        self.process.wait()
        print(f"{self.name}: exit code {self.process.returncode}", *self.log.splitlines(), sep="\n    ")
        self._log.close()

    def _is_active(self, app: dibs.Dibs) -> bool:
        assert self.process.poll() is None, self.log
        return any(worker.id == self.name and worker.state is WorkerState.ACTIVE for worker in app.workers())


class WorkerProcesses:
    """The worker processes of a test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.all: list[WorkerProcess] = []

    def start(self, **options: Any) -> WorkerProcess:
        """One more."""
        self.all.append(WorkerProcess(self.url, **options))
        return self.all[-1]


@contextmanager
def worker_processes(url: str) -> Iterator[WorkerProcesses]:
    """Worker processes that do not outlive the block."""
    processes = WorkerProcesses(url)
    try:
        yield processes
    finally:
        for worker in processes.all:
            worker.close()
