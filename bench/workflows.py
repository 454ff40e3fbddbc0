"""Workflows on SQLite and PostgreSQL: advancing, storing, draining, finalizing; and their cost for plain tasks.

`python -m bench.workflows --help`. Every run has a fresh database; sides take turns. After every run the database is
checked; a failed run is shown as failed, and the program then exits with an error.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from bench.contest import Contestant, Meeting, conclude
from bench.databases import ENGINES, Engine
from bench.tables import Report
from bench.workflow_report import WORKFLOWS
from bench.workflow_scenarios import Sizes, contests

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "workflows.md"
LIBRARIES = ("psycopg", "msgspec")


def main() -> None:
    """Measure everything that was asked for, show it, and keep it."""
    arguments = _arguments()
    console = Console(width=max(Console().width, 140))
    report = measure(arguments, console)
    conclude(report, WORKFLOWS, console, arguments.json, DOCUMENT if arguments.markdown else None)


def measure(arguments: argparse.Namespace, console: Console) -> Report:
    """Run all contests on all engines."""
    sizes = Sizes.quick() if arguments.quick else Sizes()
    size = f"{sizes.workflows} workflows to finalize, {sizes.tasks:,} tasks to drain"
    meeting = Meeting("bench.workflows", arguments.repeat, arguments.quick, size, console)
    engines = [ENGINES[name]() for name in arguments.engine or ENGINES]
    with contextlib.ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.close)
        return meeting.hold(_all_contests(arguments, engines, sizes), engines, LIBRARIES)


def _all_contests(arguments: argparse.Namespace, engines: list[Engine], sizes: Sizes) -> Iterator[list[Contestant]]:
    for engine in engines:
        for contest in contests(engine, sizes, arguments.before):
            if contest[0].kind in arguments.only:
                yield contest


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure workflows, and their cost for plain tasks.")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this one (may be repeated)")
    parser.add_argument(
        "--only", action="append", choices=list(WORKFLOWS.chapters), help="only this kind (may be repeated)"
    )
    parser.add_argument("--repeat", type=int, help="how often each side is measured (5; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a small version: about a minute, and noisier")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="a checkout of dibs to compare plain tasks with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--markdown", action="store_true", help="put the tables into docs/benchmarks/workflows.md")
    arguments = parser.parse_args()
    arguments.only = arguments.only or list(WORKFLOWS.chapters)
    arguments.repeat = arguments.repeat or (1 if arguments.quick else 5)
    if arguments.repeat < 1:
        parser.error("--repeat must be at least 1")
    if arguments.before and not (arguments.before / "src" / "dibs").is_dir():
        parser.error(f"{arguments.before} is not a checkout of dibs")
    return arguments


if __name__ == "__main__":
    main()
