"""dibs' worker beside other queues and the raw driver, on SQLite and PostgreSQL: `python -m bench.worker --help`.

Every run has a fresh database; all sides take turns, so that whatever else the machine does disturbs them alike. After
every run the books are checked: nothing lost, nothing twice. A run that fails is shown as failed, and the program then
ends with an error.
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

from bench.contest import Contestant, Meeting, conclude
from bench.databases import ENGINES, Engine
from bench.queues.contests import Sizes, contests
from bench.queues.peers import PEERS
from bench.queues.systems import PeerSystem
from bench.tables import Report
from bench.worker_report import WORKER

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "worker.md"


def main() -> None:
    """Measure everything that was asked for, show it, and keep it."""
    arguments = _arguments()
    console = Console(width=max(Console().width, 120))
    report = measure(arguments, console)
    conclude(report, WORKER, console, arguments.json, DOCUMENT if arguments.markdown else None)


def measure(arguments: argparse.Namespace, console: Console) -> Report:
    """Run all contests on all engines."""
    sizes = Sizes.quick(arguments.tasks) if arguments.quick else Sizes(arguments.tasks)
    meeting = Meeting("bench.worker", arguments.repeat, arguments.quick, f"{sizes.tasks:,} tasks", console)
    engines = [ENGINES[name]() for name in arguments.engine or ENGINES]
    with contextlib.ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.close)
        return meeting.hold(_all_contests(arguments, engines, sizes, console), engines, ("psycopg",))


def _all_contests(
    arguments: argparse.Namespace, engines: list[Engine], sizes: Sizes, console: Console
) -> Iterator[list[Contestant]]:
    for engine in engines:
        peers = [PeerSystem(peer) for peer in PEERS if peer.engine == engine.name]
        for contest in contests(engine, sizes, peers):
            if contest[0].kind in arguments.only:
                yield contest


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure dibs' worker beside other queues and the raw drivers.")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this one (may be repeated)")
    parser.add_argument(
        "--only", action="append", choices=list(WORKER.chapters), help="only this kind (may be repeated)"
    )
    parser.add_argument("--tasks", type=int, help="tasks a run (20,000; quick: 1,000)")
    parser.add_argument("--repeat", type=int, help="how often each side is measured (3; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a small version: about a minute, and noisier")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--markdown", action="store_true", help="put the tables into docs/benchmarks/worker.md")
    arguments = parser.parse_args()
    arguments.only = arguments.only or list(WORKER.chapters)
    arguments.repeat = arguments.repeat or (1 if arguments.quick else 3)
    arguments.tasks = arguments.tasks or (1_000 if arguments.quick else 20_000)
    if arguments.repeat < 1 or arguments.tasks < 100:
        parser.error("--repeat must be at least 1, and --tasks at least 100")
    return arguments


if __name__ == "__main__":
    main()
