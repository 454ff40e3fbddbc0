"""What a claim costs with many queues, types and attempts left, behind tasks that are not served, and beside paused
queues: `python -m bench.claims --help`.

Every cell is measured in turns with the base: one queue, one type, one number of attempts left, with the same filter,
order and number of tasks. Claimed tasks are released outside of the measured time, so a database keeps its shape.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console

if __name__ == "__main__":  # run as a script, from anywhere; in place of this folder, whose http.py is not Python's
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.claim_cost import QUICK, Claimer, Rounds, compare
from bench.claim_pauses import pauses
from bench.claim_report import COUNTS, PLOT, draw, markdown, summaries
from bench.claim_shapes import BASE, FILTERS, Options, Shape, Sizes, shapes
from bench.contest import Contestant, Figures, Meeting
from bench.databases import ENGINES, Engine
from bench.tables import Report, replace
from dibs import Order

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "claims.md"
KINDS = ("claims", "pauses")
PENDING, MILLION = 100_000, 1_000_000
Fill = Callable[[str, int], None]
Filters = tuple[Options, Options]
"""The filter of the base, and of the shape."""


def main() -> None:
    """Measure everything that was asked for, show it, and keep it."""
    arguments = _arguments()
    console = Console(width=max(Console().width, 140))
    report = _joined(arguments.render) if arguments.render else measure(arguments, console)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if arguments.markdown:
        draw(report, arguments.markdown.parent / PLOT)
        replace(arguments.markdown, markdown(report))
    for text in (markdown(report),) if arguments.details else summaries(report):
        console.print(text, markup=False, soft_wrap=True)
    for failure in report.failures:
        console.print(f"FAILED: {failure}", style="bold red", markup=False)
    sys.exit(1 if report.failures else 0)


def measure(arguments: argparse.Namespace, console: Console) -> Report:
    """Run everything that the arguments name."""
    size = " and ".join(f"{number:,}" for number in arguments.pending)
    meeting = Meeting("bench.claims", arguments.repeat, arguments.quick, f"{size} pending tasks", console)
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(contextlib.closing(ENGINES[name]())) for name in arguments.engine or ENGINES]
        databases = stack.enter_context(contextlib.closing(Databases()))
        contests = [contest for engine in engines for contest in _contests(engine, databases, arguments)]
        return meeting.hold(contests, engines, ("psycopg",))


def _contests(engine: Engine, databases: Databases, arguments: argparse.Namespace) -> Iterator[list[Contestant]]:
    sizes = Sizes.quick() if arguments.quick else Sizes()
    for pending in arguments.pending if "claims" in arguments.only else ():
        for shape in shapes(sizes):
            if not arguments.shape or any(each in shape.name for each in arguments.shape):
                yield list(_cells(engine, databases, shape, pending, arguments))
    if "pauses" in arguments.only:
        yield list(pauses(engine, 2_000 if arguments.quick else MILLION))


def _cells(
    engine: Engine, databases: Databases, shape: Shape, pending: int, arguments: argparse.Namespace
) -> Iterator[Contestant]:
    rounds = QUICK if arguments.quick else Rounds()
    for order in arguments.order or Order:
        for filter_name in shape.filters:
            if not arguments.filter or filter_name in arguments.filter:
                pair = partial(databases.open, engine, shape, pending)
                run = partial(_cell, pair, (BASE.options(filter_name), shape.options(filter_name)), str(order), rounds)
                yield Contestant("claims", shape.name, engine.name, filter_name, pending, str(order), run)


def _cell(pair: Callable[[], tuple[Claimer, Claimer]], filters: Filters, order: str, rounds: Rounds) -> Figures:
    """A claim of one and of a hundred, and the same of the base."""
    base, shape = pair()
    sides = (base, filters[0]), (shape, filters[1])
    figures: Figures = {}
    for count in COUNTS:
        for side, cost in zip(("base", "shape"), compare(sides, count, order, rounds), strict=True):
            figures |= {f"{side}_{count}_ms": cost.wall, f"{side}_{count}_cpu": cost.cpu}
    return figures


class Databases:
    """The base and the database of the shape that is being measured; each is made when it is first needed."""

    def __init__(self) -> None:
        self._fills: dict[object, Fill] = {}
        self._open: dict[str, tuple[object, Claimer, contextlib.ExitStack]] = {}

    def open(self, engine: Engine, shape: Shape, pending: int) -> tuple[Claimer, Claimer]:
        """Clients of both."""
        return self._one("base", engine, BASE, pending), self._one("shape", engine, shape, pending)

    def _one(self, role: str, engine: Engine, shape: Shape, pending: int) -> Claimer:
        key = engine, shape, pending
        held = self._open.get(role)
        if held is None or held[0] != key:
            self._close(role)
            with contextlib.ExitStack() as stack:
                fill = self._fills.setdefault(shape.spread, shape.spread.fill)
                url = stack.enter_context(engine.filled(pending, fill))
                claimer = stack.enter_context(Claimer(url))
                shape.prepare(claimer.app)
                engine.tidy(url)
                held = self._open[role] = key, claimer, stack.pop_all()
        return held[1]

    def _close(self, role: str) -> None:
        if held := self._open.pop(role, None):
            held[2].close()

    def close(self) -> None:
        """Remove what is open."""
        for role in list(self._open):
            self._close(role)


def _joined(files: list[Path]) -> Report:
    """Several runs as one: shapes and orders may be measured one after the other, and the latest counts."""
    reports = [msgspec.json.decode(file.read_bytes(), type=Report) for file in files]
    latest = {
        (line.engine, line.kind, line.scenario, line.processes, line.queue, line.setting): line
        for report in reports
        for line in report.lines
    }
    return msgspec.structs.replace(
        reports[-1],
        seconds=sum(report.seconds for report in reports),
        versions={name: version for report in reports for name, version in report.versions.items()},
        command="\n".join(report.command for report in reports),
        lines=sorted(latest.values(), key=lambda line: line.engine, reverse=True),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure claims over many queues, types and attempts left.")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this one (may be repeated)")
    parser.add_argument("--only", action="append", choices=KINDS, help="only this kind (may be repeated)")
    parser.add_argument("--shape", action="append", metavar="TEXT", help="only shapes with this in their name")
    parser.add_argument("--filter", action="append", choices=FILTERS, help="only this one (may be repeated)")
    parser.add_argument("--order", action="append", choices=list(map(str, Order)), help="only this one")
    parser.add_argument("--pending", type=int, nargs="+", help=f"pending tasks that match ({PENDING:,}; quick: 2,000)")
    parser.add_argument("--million", action="store_true", help=f"also with {MILLION:,} pending tasks")
    parser.add_argument("--repeat", type=int, default=1, help="how often each cell is measured (1)")
    parser.add_argument("--quick", action="store_true", help="small shapes: a few minutes, for tests")
    parser.add_argument("--details", action="store_true", help="print every cell, not only the worst of each shape")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument(
        "--markdown", type=Path, nargs="?", const=DOCUMENT, metavar="FILE", help="renew table and plot of the page"
    )
    parser.add_argument(
        "--render", type=Path, nargs="+", metavar="FILE", help="measure nothing: take the results from these files"
    )
    arguments = parser.parse_args()
    arguments.only = arguments.only or KINDS
    arguments.pending = (arguments.pending or [2_000 if arguments.quick else PENDING]) + [MILLION] * arguments.million
    return arguments


if __name__ == "__main__":
    main()
