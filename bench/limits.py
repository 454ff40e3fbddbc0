"""Tasks with limits: dibs beside admission with plain SQL, PGQueuer and DBOS, and what a claim costs with many groups:
`python -m bench.limits --help`.

All sides of a contest take turns on new databases. After every run the store is checked: all tasks completed once, all
permits returned. A failed run is shown as failed, and the program then exits with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

if __name__ == "__main__":  # run as a script, from anywhere; in place of this folder, whose http.py is not Python's
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import results
from bench.contest import Contestant, Meeting
from bench.databases import ENGINES, Engine
from bench.limit_costs import claim_costs, open_transactions
from bench.limit_drains import drains
from bench.limit_loops import LoopProcesses, loops
from bench.limit_report import LIMITS, PLOT, draw
from bench.limit_shapes import shapes
from bench.queues.venvs import version_of
from bench.tables import Report, replace

DOCUMENTS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
PEERS = {"sqlite": ("DBOS",), "postgres": ("PGQueuer", "DBOS")}


def main() -> None:
    """Measure everything that was asked for, show it, and keep it."""
    arguments = _arguments()
    console = Console(width=max(Console().width, 140))
    if not arguments.render:
        _measure_and_show(arguments, console)
    if arguments.markdown or arguments.render:
        render(arguments.json)


def measure(arguments: argparse.Namespace, console: Console) -> Report:
    """Run all contests on all engines."""
    meeting = Meeting("bench.limits", arguments.repeat, arguments.quick, f"{arguments.tasks:,} tasks", console)
    with contextlib.ExitStack() as stack:
        engines = {name: stack.enter_context(contextlib.closing(ENGINES[name]())) for name in arguments.engine}
        loop_processes = stack.enter_context(contextlib.closing(LoopProcesses(tuple(arguments.processes))))
        wanted = [
            contest
            for name, engine in engines.items()
            for contest in _contests(name, engine, loop_processes, arguments)
            if contest[0].kind in arguments.only
        ]
        versions = (
            {}
            if "drains" not in arguments.only
            else {name: version_of(name, name, (3, 11)) for name in ("pgqueuer", "dbos")}
        )
        return meeting.hold(wanted, list(engines.values()), ("psycopg",), versions)


def render(file: Path) -> None:
    """Put the tables and the plot of what is in the file into the documentation."""
    kept = results.read(file)
    joined = kept.joined(LIMITS)
    plot = draw(joined, DOCUMENTS / PLOT)
    replace(DOCUMENTS / "limits.md", LIMITS.markdown(joined, f"{kept.made_with}\n\n{plot}"))


def _contests(
    name: str, engine: Engine, loop_processes: LoopProcesses, arguments: argparse.Namespace
) -> Iterator[list[Contestant]]:
    blocked = 2_000 if arguments.quick else 100_000
    if "loops" in arguments.only:
        yield from loops(engine, loop_processes, shapes(blocked), arguments.tasks)
    if "drains" in arguments.only:
        yield from drains(engine, PEERS[name], arguments.processes, arguments.tasks)
    if "groups" in arguments.only:
        yield from claim_costs(engine, arguments.groups, blocked, quick=arguments.quick)
    if "open" in arguments.only and name == "postgres":
        yield open_transactions(engine)


def _measure_and_show(arguments: argparse.Namespace, console: Console) -> None:
    report = measure(arguments, console)
    console.print(*LIMITS.tables(report), report.made_with, sep="\n")
    for failure in report.failures:
        console.print(f"FAILED: {failure}", style="bold red", markup=False)
    if arguments.json:
        results.write(arguments.json, results.read(arguments.json).with_run(report))
    if report.failures:
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure tasks with limits beside other queues.")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this one (may be repeated)")
    parser.add_argument("--only", action="append", choices=list(LIMITS.chapters), help="only this kind")
    parser.add_argument("--tasks", type=int, help="tasks a run; slow queues get fewer (20,000; quick: 1,000)")
    parser.add_argument("--processes", type=int, nargs="+", help="numbers of processes (1 and 8; quick: 1 and 2)")
    parser.add_argument("--groups", type=int, nargs="+", help="numbers of groups (1 to 100,000; quick: to 1,000)")
    parser.add_argument("--repeat", type=int, help="how often each side is measured (3; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a small version: a minute or two, and noisier")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="put the results into this file, beside what is there"
    )
    parser.add_argument("--markdown", action="store_true", help="also renew the tables and the plot of docs/benchmarks")
    parser.add_argument("--render", action="store_true", help="only renew them, from the file, and measure nothing")
    return _complete(parser, parser.parse_args())


def _complete(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> argparse.Namespace:
    quick = arguments.quick
    arguments.engine = arguments.engine or list(ENGINES)
    arguments.only = arguments.only or list(LIMITS.chapters)
    arguments.tasks = arguments.tasks or (1_000 if quick else 20_000)
    arguments.processes = arguments.processes or ([1, 2] if quick else [1, 8])
    arguments.groups = arguments.groups or [10**power for power in range(4 if quick else 6)]
    arguments.repeat = arguments.repeat or (1 if quick else 3)
    if arguments.markdown or arguments.render:
        arguments.json = arguments.json or DOCUMENTS / "limits.json"
    if quick and arguments.markdown:
        parser.error("a quick run is too noisy for the documentation")
    return arguments


if __name__ == "__main__":
    main()
