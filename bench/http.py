"""dibs over HTTP beside the bare framework, on SQLite and PostgreSQL: `python -m bench.http --help`.

Every run has a fresh database and a fresh server process; the sides take turns. Every answer's status is checked, and
after every run the database: each task in its expected state, claimed once. A failed run is shown as failed, and the
program then exits with an error.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from bench.contest import Contestant, Meeting, conclude
from bench.databases import ENGINES, Engine
from bench.http_report import HTTP
from bench.http_scenarios import Sizes, contests
from bench.tables import Report

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "http.md"
LIBRARIES = ("starlette", "uvicorn", "uvloop", "httptools", "msgspec", "httpx", "psycopg")


def main() -> None:
    """Measure everything that was asked for, show it, and keep it."""
    arguments = _arguments()
    console = Console(width=max(Console().width, 140))
    report = measure(arguments, console)
    conclude(report, HTTP, console, arguments.json, DOCUMENT if arguments.markdown else None)


def measure(arguments: argparse.Namespace, console: Console) -> Report:
    """Run all contests on all engines."""
    sizes = Sizes.quick() if arguments.quick else Sizes()
    size = f"{sizes.requests:,} requests, of a worker {sizes.tasks:,} tasks"
    meeting = Meeting("bench.http", arguments.repeat, arguments.quick, size, console)
    engines = [ENGINES[name]() for name in arguments.engine or ENGINES]
    with contextlib.ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.close)
        return meeting.hold(_all_contests(arguments.only, engines, sizes), engines, LIBRARIES)


def _all_contests(only: list[str], engines: list[Engine], sizes: Sizes) -> Iterator[list[Contestant]]:
    for engine in engines:
        for contest in contests(engine, sizes):
            if contest[0].kind in only:
                yield contest


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure dibs over HTTP beside the bare framework.")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this one (may be repeated)")
    parser.add_argument("--only", action="append", choices=list(HTTP.chapters), help="only this kind (may be repeated)")
    parser.add_argument("--repeat", type=int, help="how often each side is measured (3; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a small version: about a minute, and noisier")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--markdown", action="store_true", help="put the tables into docs/benchmarks/http.md")
    arguments = parser.parse_args()
    arguments.only = arguments.only or list(HTTP.chapters)
    arguments.repeat = arguments.repeat or (1 if arguments.quick else 3)
    if arguments.repeat < 1:
        parser.error("--repeat must be at least 1")
    return arguments


if __name__ == "__main__":
    main()
