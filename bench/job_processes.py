"""Processes that wait for jobs: started once, since starting ten Pythons takes longer than most measurements."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from bench.queues.producing import Done
from bench.work import work

PATIENCE = 300.0
"""Seconds until a run counts as hung."""


class ProcessFailed(Exception):
    """A job process raised, died or hung; the message holds its traceback."""


class JobProcesses:
    """`size` processes that do jobs with `work`. The first ones take part in a run that needs fewer, by `parties`,
    which is set in advance."""

    def __init__(self, size: int, parties: Iterable[int] = (1,), work: Callable[..., Done] = work) -> None:
        context = multiprocessing.get_context("spawn")
        self._barriers = {count: context.Barrier(count) for count in {size, *parties}}
        self._pipes: list[Connection[Any, Any]] = []
        self._processes = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self._barriers, work), daemon=True)
            process.start()
            theirs.close()  # so that the end of the process is the end of the pipe
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, jobs: Sequence[Any]) -> list[Done]:
        """Do the jobs at the same time, one a process; a failure of any of them is raised."""
        working = self._pipes[: len(jobs)]
        for pipe, job in zip(working, jobs, strict=True):
            pipe.send(job)
        answers: list[Done] = []
        while len(answers) < len(jobs):
            ready = wait(working, PATIENCE)
            if not ready:
                raise ProcessFailed(f"No answer for {PATIENCE:.0f} seconds.")
            answers += [self._receive(pipe) for pipe in self._pipes if pipe in ready]
            working = [pipe for pipe in working if pipe not in ready]
        return answers

    def _receive(self, pipe: Connection[Any, Any]) -> Done:
        try:
            answer = pipe.recv()
        except (EOFError, ConnectionResetError):
            process = self._processes[self._pipes.index(pipe)]
            process.join(timeout=5)
            raise ProcessFailed(f"A process died with exit code {process.exitcode}.") from None
        if isinstance(answer, Done):
            return answer
        raise ProcessFailed(f"A process failed:\n{answer}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()


def _serve(pipe: Connection[Any, Any], barriers: dict[int, threading.Barrier], work: Callable[..., Done]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the processes
    while True:
        try:
            job = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        barrier = barriers[job.scenario.processes]
        try:
            pipe.send(work(job, lambda barrier=barrier: barrier.wait(PATIENCE)))
        except threading.BrokenBarrierError:
            continue  # another process failed, and reports its error
        except Exception:  # the parent raises it
            pipe.send(traceback.format_exc())
            barrier.abort()
