"""dibs' worker beside other queues and the raw driver, on SQLite and PostgreSQL: `python -m bench.worker --help`.

Every run has a fresh database; all sides take turns, so that whatever else the machine does disturbs them alike. After
every run the books are checked: nothing lost, nothing twice. A run that fails is shown as failed, and the program then
ends with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a script, from anywhere

from bench.core import progress
from bench.databases import ENGINES, Engine
from bench.queues.contests import Contestant, Sizes, contests, tune
from bench.worker_report import TITLES, Line, Report, failures, made_with, markdown, replace, tables

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "worker.md"
LIBRARIES = ("huey", "pgqueuer", "asyncpg", "psycopg")


def main() -> None:
    """Measure everything that was asked for, show it, and keep it."""
    arguments = _arguments()
    console = Console(width=max(Console().width, 120))
    report = measure(arguments, console)
    console.print(*tables(report), made_with(report), sep="\n")
    for failure in failures(report):
        console.print(f"FAILED: {failure}", style="bold red", markup=False)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if arguments.markdown:
        replace(DOCUMENT, markdown(report))
    sys.exit(1 if failures(report) else 0)


@dataclass(slots=True)
class Entry:
    """A contestant and what it has achieved so far."""

    contestant: Contestant
    figures: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def run(self) -> None:
        """One more round."""
        try:
            found = self.contestant.run()
        except Exception as error:  # whatever it is, it is shown, and the others go on
            self.failures.append(f"{type(error).__name__}: {error}")
            return
        for figure, value in found.items():
            self.figures.setdefault(figure, []).append(value)

    @property
    def line(self) -> Line:
        """The line of the table."""
        one = self.contestant
        return Line(
            one.kind, one.scenario, one.engine, one.queue, one.processes, one.setting, self.figures, self.failures
        )


def measure(arguments: argparse.Namespace, console: Console) -> Report:
    """Run all contests on all engines."""
    began, load = time.monotonic(), os.getloadavg()[0]
    sizes = Sizes.quick(arguments.tasks) if arguments.quick else Sizes(arguments.tasks)
    engines = [ENGINES[name]() for name in arguments.engine or ENGINES]
    with contextlib.ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.close)
        entries = [[Entry(each) for each in contest] for contest in _all_contests(arguments, engines, sizes, console)]
        for run in progress(list(_turns(entries, arguments.repeat)), _title, console):
            run.run()
            if run.failures:
                console.print(f"FAILED: {_title(run)}: {run.failures[-1]}", style="bold red", markup=False)
    return Report(
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        seconds=time.monotonic() - began,
        repeat=arguments.repeat,
        tasks=sizes.tasks,
        quick=arguments.quick,
        machine=_machine(),
        versions=_versions(engines),
        command=" ".join(["python -m bench.worker", *sys.argv[1:]]),
        load=load,
        lines=[entry.line for contest in entries for entry in contest],
    )


def _all_contests(
    arguments: argparse.Namespace, engines: list[Engine], sizes: Sizes, console: Console
) -> Iterator[list[Contestant]]:
    for engine in engines:
        tuned = {}
        if "drain" in arguments.only and sizes.tuning:
            console.print(f"choosing the best settings of the other queue on {engine.name} ...", style="dim")
            tuned = tune(engine, sizes)
        for contest in contests(engine, sizes, tuned):
            if contest[0].kind in arguments.only:
                yield contest


def _turns(entries: list[list[Entry]], repeat: int) -> Iterator[Entry]:
    """Round by round within each contest."""
    for contest in entries:
        for _ in range(repeat):
            yield from contest


def _title(entry: Entry) -> str:
    one = entry.contestant
    return f"{one.engine}, {one.scenario}, {one.queue} {one.setting} x {one.processes}"


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} CPUs, {memory:.0f} GiB, {platform.system()}"


def _versions(engines: list[Engine]) -> dict[str, str]:
    found = {"Python": platform.python_version()} | {engine.name: engine.version for engine in engines}
    return found | {name: version(name) for name in LIBRARIES}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure dibs' worker beside other queues and the raw drivers.")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this one (may be repeated)")
    parser.add_argument("--only", action="append", choices=list(TITLES), help="only this kind (may be repeated)")
    parser.add_argument("--tasks", type=int, help="tasks a run (20,000; quick: 1,000)")
    parser.add_argument("--repeat", type=int, help="how often each side is measured (3; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a small version: about a minute, and noisier")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--markdown", action="store_true", help="put the tables into docs/benchmarks/worker.md")
    arguments = parser.parse_args()
    arguments.only = arguments.only or list(TITLES)
    arguments.repeat = arguments.repeat or (1 if arguments.quick else 3)
    arguments.tasks = arguments.tasks or (1_000 if arguments.quick else 20_000)
    if arguments.repeat < 1 or arguments.tasks < 100:
        parser.error("--repeat must be at least 1, and --tasks at least 100")
    return arguments


if __name__ == "__main__":
    main()
