"""Worker processes: started, watched and stopped; and what they cost in CPU time and memory."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from bench.queues.run_counts import RunCounts

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
"""Seconds until a worker that does not come up, or does not stop, counts as hung."""

RUNNING = 300.0
"""Seconds until anything else does."""


@dataclass(frozen=True, slots=True)
class Door:
    """How workers get to their queue: a URL, what else their environment must hold, and processes on the way there."""

    url: str
    environ: dict[str, str] = field(default_factory=dict)
    processes: list[psutil.Process] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Program:
    """bench/queues/program.py for one queue: its module, the Python that runs it, and what stops a worker."""

    module: str
    python: str = sys.executable
    stop_with: signal.Signals = signal.SIGTERM

    def command(self, verb: str, *arguments: str) -> list[str]:
        """What starts it."""
        return [self.python, "-m", "bench.queues.program", self.module, verb, *arguments]

    def run(self, verb: str, *arguments: object) -> str:
        """Run it to its end: what it printed."""
        done = subprocess.run(  # noqa: S603 - ourselves
            self.command(verb, *map(str, arguments)), cwd=ROOT, capture_output=True, timeout=RUNNING, check=False
        )
        if done.returncode:
            raise RuntimeError(f"'{verb}' failed: {done.stderr.decode(errors='replace')[-2000:]}")
        return done.stdout.decode()


class Workers:
    """The worker processes of one queue, all with the same setting."""

    def __init__(self, program: Program, door: Door, setting: str, run_counts: RunCounts, verb: str = "work") -> None:
        self.door = door
        self._stop_with = program.stop_with
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the workers
        command = program.command(
            verb, door.url, setting, str(run_counts.path), str(run_counts.tasks), str(run_counts.seats)
        )
        self._processes = [
            subprocess.Popen(  # noqa: S603 - ourselves
                [*command, str(seat)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=ROOT,
                env=os.environ | door.environ,
            )
            for seat in range(run_counts.seats)
        ]

    def __len__(self) -> int:
        return len(self._processes)

    def wait_until_ready(self) -> None:
        """Wait until each has reported that it is ready."""
        for process in self._processes:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            if not ready or process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"A worker did not come up. {self._output()}")

    def start_work(self) -> None:
        """Let them continue."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()

    def must_live(self) -> None:
        """Raise if one has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"A worker ended with exit code {process.returncode}. {self._output()}")

    def stop(self) -> None:
        """Ask them to stop; raise unless all do so, and call it a success."""
        self.must_live()
        for process in self._processes:
            process.send_signal(self._stop_with)
        codes = [process.wait(PATIENCE) for process in self._processes]
        if any(codes):
            raise RuntimeError(f"The workers stopped with the exit codes {codes}. {self._output()}")

    @property
    def found(self) -> list[psutil.Process]:
        """The processes and their children, to be measured."""
        ours = [psutil.Process(process.pid) for process in self._processes]
        return ours + [child for process in ours for child in process.children(recursive=True)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._errors.close()

    def _output(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2000:]


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """User and system time of these processes, and of children of theirs that have ended."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(
            psutil.NoSuchProcess
        ):  # its time is then included in that of its parent, which is read as well
            total += sum(process.cpu_times()[:4])
    return total


def megabytes(processes: Iterable[psutil.Process]) -> tuple[float, float]:
    """Memory: what is resident, and their share of it where pages are shared (0: not known on this system)."""
    memory = [process.memory_full_info() for process in processes]
    return sum(each.rss for each in memory) / 1e6, sum(getattr(each, "pss", 0) for each in memory) / 1e6
