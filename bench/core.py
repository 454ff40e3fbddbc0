"""dibs beside the raw driver doing the same SQL, on SQLite and PostgreSQL: `python bench/core.py --help`.

Every run has a fresh database; dibs and the raw driver take turns, so that other load on the machine affects
both alike. A run with an error, or with a missing task or history entry, ends the program.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if __name__ == "__main__":  # run as a script, from anywhere; in place of this folder, whose http.py is not Python's
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.databases import ENGINES, Engine
from bench.job_processes import JobProcesses
from bench.report import Measured, Report, Result, summary, tables, write_json
from bench.scenarios import MANY, Scenario, scenarios
from bench.work import Done, Job

T = TypeVar("T")
Run = list[Done]
"""The results of the processes of one run."""


def main() -> None:
    """Measure everything that was asked for, show it, and keep it."""
    arguments = _arguments()
    console = Console(width=max(Console().width, 100))
    report = measure(arguments, console)
    console.print(*tables(report), summary(report), sep="\n")
    if arguments.json:
        write_json(report, arguments.json)


def measure(arguments: argparse.Namespace, console: Console) -> Report:
    """Run all scenarios on all engines."""
    began, load = time.monotonic(), os.getloadavg()[0]
    engines = [ENGINES[name]() for name in arguments.engine or ENGINES]
    todo = [(engine, scenario) for engine in engines for scenario in scenarios(quick=arguments.quick)]
    with contextlib.ExitStack() as stack, JobProcesses(MANY) as job_processes:
        for engine in engines:
            stack.callback(engine.close)
        results = [
            _measure_one(job_processes, engine, scenario, arguments.rounds)
            for engine, scenario in progress(todo, _title, console)
        ]
    return Report(
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        seconds=time.monotonic() - began,
        rounds=arguments.rounds,
        quick=arguments.quick,
        python=platform.python_version(),
        engines={engine.name: engine.version for engine in engines},
        cpus=os.cpu_count() or 0,
        load=load,
        results=results,
    )


def _measure_one(job_processes: JobProcesses, engine: Engine, scenario: Scenario, rounds: int) -> Result:
    runs: dict[str, list[Run]] = {"dibs": [], "raw": []} if scenario.has_raw else {"dibs": []}
    for _ in range(rounds):
        for side, done in runs.items():
            done.append(run_once(job_processes, engine, scenario, side))
    return Result(
        engine=engine.name,
        scenario=scenario.name,
        processes=scenario.processes,
        tasks=scenario.tasks,
        dibs=measured(runs["dibs"]),
        raw=measured(runs["raw"]) if scenario.has_raw else None,
    )


def run_once(job_processes: JobProcesses, engine: Engine, scenario: Scenario, side: str) -> Run:
    """Run one side once, on a new database."""
    with engine.fresh(scenario) as url:
        done = job_processes.run([Job(url, side, scenario, seat) for seat in range(scenario.processes)])
        engine.check(url, scenario)
    if sum(each.tasks + each.warmed_up for each in done) != scenario.total:
        raise RuntimeError(f"The processes did not count {scenario.total} tasks: {done}")
    return done


def measured(runs: list[Run]) -> Measured:
    """The figures of the runs."""
    slowest = [done.worst * 1000 for run in runs for done in run if done.worst is not None]
    return Measured(
        per_second=[_tasks(run) / _seconds(run) for run in runs],
        cpu=[sum(done.time.cpu for done in run) * 1e6 / _tasks(run) for run in runs],
        worst_claim=max(slowest, default=None),
    )


def _tasks(run: Run) -> int:
    return sum(done.tasks for done in run)


def _seconds(run: Run) -> float:
    """From the first start to the last end."""
    return max(done.time.ended for done in run) - min(done.time.started for done in run)


def progress(todo: list[T], title: Callable[[T], str], console: Console) -> Iterator[T]:
    """One after the other, with a bar in a terminal, and line by line elsewhere."""
    if not console.is_terminal:
        for number, each in enumerate(todo, 1):
            print(f"{number:>2}/{len(todo)} {title(each)}", flush=True)
            yield each
        return
    columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=len(todo))
        for each in todo:
            bars.update(bar, description=title(each))
            yield each
            bars.advance(bar)


def _title(run: tuple[Engine, Scenario]) -> str:
    engine, scenario = run
    return f"{engine.name}, {scenario.name}, {scenario.processes} process{'es' if scenario.processes > 1 else ''}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure dibs beside the raw database drivers doing the same SQL.")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this one (may be repeated)")
    parser.add_argument("--rounds", type=int, help="how often each side is measured (3; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="fewer tasks: less than a minute, and noisier")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    return arguments


if __name__ == "__main__":
    main()
