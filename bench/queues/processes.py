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

from bench.queues.board import Board

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
"""Seconds until a worker that does not come up, or does not stop, counts as hung."""


@dataclass(frozen=True, slots=True)
class Door:
    """How workers get to their queue: a URL, what else their environment must hold, and processes on the way there."""

    url: str
    environ: dict[str, str] = field(default_factory=dict)
    processes: list[psutil.Process] = field(default_factory=list)


class Workers:
    """So many processes of one queue, each with the same setting."""

    def __init__(self, program: str, door: Door, setting: str, board: Board, stop_with: signal.Signals) -> None:
        self.door = door
        self._stop_with = stop_with
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the workers
        place = [door.url, str(board.path), str(board.tasks), str(board.seats)]
        command = [sys.executable, "-m", "bench.queues.program", program, *place]
        self._processes = [
            subprocess.Popen(  # noqa: S603 - ourselves
                [*command, str(seat), setting],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=ROOT,
                env=os.environ | door.environ,
            )
            for seat in range(board.seats)
        ]

    def __len__(self) -> int:
        return len(self._processes)

    def wait_until_ready(self) -> None:
        """Wait until each has said that it is."""
        for process in self._processes:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            if not ready or process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"A worker did not come up. {self._said()}")

    def start_together(self) -> None:
        """Let them go on."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()

    def must_live(self) -> None:
        """Raise if one has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"A worker ended with exit code {process.returncode}. {self._said()}")

    def stop(self) -> None:
        """Ask them to stop; raise unless all do so, and call it a success."""
        self.must_live()
        for process in self._processes:
            process.send_signal(self._stop_with)
        codes = [process.wait(PATIENCE) for process in self._processes]
        if any(codes):
            raise RuntimeError(f"The workers stopped with the exit codes {codes}. {self._said()}")

    @property
    def found(self) -> list[psutil.Process]:
        """The processes, to be measured."""
        return [psutil.Process(process.pid) for process in self._processes]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._errors.close()

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2000:]


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """User and system time of these processes, and of children of theirs that have ended."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # its time is then its parent's, who is asked as well
            total += sum(process.cpu_times()[:4])
    return total


def megabytes(process: psutil.Process) -> tuple[float, float]:
    """Memory: what is resident, and this process's share of it where pages are shared (0: the system does not tell)."""
    memory = process.memory_full_info()
    return memory.rss / 1e6, getattr(memory, "pss", 0) / 1e6
