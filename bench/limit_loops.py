"""Processes that claim and complete tasks with limits, ten at a time: dibs beside admission with plain SQL."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench import admission
from bench.contest import Contestant, Figures
from bench.databases import Engine
from bench.job_processes import JobProcesses
from bench.limit_shapes import LIMIT, PLAIN, Shape
from bench.queues.processes import cpu_seconds
from bench.queues.producing import Done, Start, Watch
from bench.scenarios import Scenario, Verb
from bench.sides import DibsSide
from dibs import Dibs

BATCH = 10
PAUSE = 0.001
"""Seconds until a process that found nothing asks again."""

WIDTH = 8


class LoopSide(Protocol):
    """One process's way to claim and to complete."""

    def claim(self) -> list[Any]:
        """Claim a batch."""

    def finish(self, claims: list[Any]) -> None:
        """Complete it."""

    def close(self) -> None:
        """Close the database."""


@dataclass(frozen=True, slots=True)
class LoopJob:
    """A process's share of a run. `counts`: the file in which each process counts what it has completed."""

    url: str
    side: str
    scenario: Scenario
    seat: int
    counts: Path


@dataclass(frozen=True, slots=True)
class DibsLoop:
    """dibs through its verbs `claim_many` and `finish`."""

    name = "dibs"
    shape: Shape

    def fill(self, url: str, tasks: int) -> None:
        """Create the tasks."""
        self.shape.fill(url, tasks)

    def check(self, url: str, tasks: int) -> None:
        """Raise unless all tasks are completed and no permit is lost."""
        with Dibs(url) as app:
            done = app.stats().depth.get("completed", 0)
            verdicts = {each.name: each.verdict for each in app.doctor()}
            used = app.get_limit(LIMIT).used if self.shape.max else 0
        if (done, used, verdicts["limits"]) != (tasks, 0, "ok"):
            raise RuntimeError(f"{done} of {tasks} tasks are completed, {used} permits are taken: {verdicts}")


@dataclass(frozen=True, slots=True)
class AdmissionLoop:
    """Admission with plain SQL."""

    name = "plain SQL"
    shape: Shape

    def fill(self, url: str, tasks: int) -> None:
        """Create the tasks."""
        admission.install(url, self.shape, tasks)

    def check(self, url: str, tasks: int) -> None:
        """Raise unless all tasks are completed and no permit is lost."""
        admission.check(url, self.shape, tasks)


Loop = DibsLoop | AdmissionLoop


class LoopProcesses:
    """Processes for the loops: started by the first run, and anew after one that failed."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self._processes: JobProcesses | None = None

    def run(self, jobs: list[LoopJob]) -> list[Done]:
        """Do the jobs at the same time."""
        self._processes = self._processes or JobProcesses(max(self.sizes), self.sizes, work)
        try:
            return self._processes.run(jobs)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """End the processes."""
        if self._processes:
            self._processes.__exit__(None, None, None)
        self._processes = None


def loops(engine: Engine, loop_processes: LoopProcesses, shapes: list[Shape], tasks: int) -> Iterator[list[Contestant]]:
    """Both sides in turns, each shape with each number of processes."""
    for shape in shapes:
        for processes in loop_processes.sizes:
            scenario = Scenario(Verb.CYCLE, BATCH, processes, tasks)
            sides: list[Loop] = [DibsLoop(shape), AdmissionLoop(shape)]
            yield [
                Contestant(
                    "loops", shape.name, engine.name, side.name, processes, _words(side),
                    partial(run, engine, loop_processes, side, scenario),
                )
                for side in sides
            ]  # fmt: skip


def _words(side: Loop) -> str:
    return "" if side.name == "dibs" or side.shape == PLAIN else "admission"


def run(engine: Engine, loop_processes: LoopProcesses, side: Loop, scenario: Scenario) -> Figures:
    """Let the processes complete all tasks once."""
    total, processes = scenario.total, scenario.processes
    with engine.filled(total, side.fill) as url, tempfile.TemporaryDirectory(prefix="dibs-counts-") as folder:
        counts = Path(folder) / "counts"
        counts.write_bytes(bytes(WIDTH * processes))
        before = cpu_seconds(engine.processes)
        done = loop_processes.run([LoopJob(url, side.name, scenario, seat, counts) for seat in range(processes)])
        database = cpu_seconds(engine.processes) - before
        side.check(url, total)
    timed = sum(each.tasks for each in done)
    seconds = max(each.time.ended for each in done) - min(each.time.started for each in done)
    figures = {"per_second": timed / seconds, "cpu": sum(each.time.cpu for each in done) * 1e6 / timed}
    return figures | ({"database_cpu": database * 1e6 / total} if database else {})


def work(job: LoopJob, start: Start) -> Done:
    """Claim and complete until all tasks are completed, by whichever process."""
    with contextlib.closing(_open(job)) as side, Counts(job) as counts:
        warmed_up = _cycles(side, counts, job.scenario.warm_up)
        start()
        with Watch() as watch:
            tasks = _cycles(side, counts)
    return Done(watch, tasks, warmed_up)


class Counts:
    """What each process has completed, in memory that all of them share."""

    def __init__(self, job: LoopJob) -> None:
        self._seat, self._total = job.seat, job.scenario.total
        with job.counts.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._numbers = memoryview(self._memory).cast("q")

    def add(self, tasks: int) -> None:
        """Count what this process has completed."""
        self._numbers[self._seat] += tasks

    @property
    def are_complete(self) -> bool:
        """True if all tasks are completed."""
        return sum(self._numbers) >= self._total

    def __enter__(self) -> Counts:
        return self

    def __exit__(self, *_: object) -> None:
        self._numbers.release()
        self._memory.close()


def _cycles(side: LoopSide, counts: Counts, cycles: int | None = None) -> int:
    """Tasks of so many cycles that found something; of all cycles until all tasks are completed."""
    tasks, done = 0, 0
    while done != cycles and not counts.are_complete:
        if claims := side.claim():
            side.finish(claims)
            counts.add(len(claims))
            tasks += len(claims)
            done += 1
        else:
            time.sleep(PAUSE)
    return tasks


def _open(job: LoopJob) -> LoopSide:
    worker, batch = f"worker-{job.seat}", job.scenario.batch
    if job.side == DibsLoop.name:
        return DibsSide(job.url, worker, batch)
    return admission.open_side(job.url, worker, batch)
