"""Many workers at one store: how much they get done together, and how long the slowest claim of any of them takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.contest import Contestant, Figures
from bench.core import measured, run_once
from bench.databases import Engine
from bench.job_processes import JobProcesses
from bench.scenarios import Scenario, Verb

WORKERS = (1, 2, 4, 8, 16, 32, 64)
QUICK_WORKERS = (1, 2, 4)
BATCH = 10


class Reserve:
    """Processes for the largest number of workers: started by the first run, and anew after one that failed."""

    def __init__(self, workers: tuple[int, ...]) -> None:
        self.workers = workers
        self._processes: JobProcesses | None = None

    def run(self, engine: Engine, scenario: Scenario) -> Figures:
        """Run as many processes as the scenario has, and let them contend."""
        self._processes = self._processes or JobProcesses(max(self.workers), self.workers)
        try:
            found = measured([run_once(self._processes, engine, scenario, "dibs")])
        except Exception:
            self.close()
            raise
        return {"per_second": found.per_second[0], "worst": found.worst_claim or 0.0, "cpu": found.cpu[0] / 1000}

    def close(self) -> None:
        """End the processes."""
        if self._processes:
            self._processes.__exit__(None, None, None)
        self._processes = None


def contentions(engine: Engine, reserve: Reserve, tasks: int) -> Iterator[list[Contestant]]:
    """All numbers of workers take turns; each claims ten tasks, completes them, and claims again."""
    yield [
        Contestant(
            "contention",
            f"claim + complete, {BATCH} at a time",
            engine.name,
            "dibs",
            count,
            "",
            partial(reserve.run, engine, Scenario(Verb.CYCLE, BATCH, count, tasks)),
        )
        for count in reserve.workers
    ]
