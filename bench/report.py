"""What was measured, as JSON, as a table in the terminal, and as a table for the documentation.

`python -m bench.report --markdown core.json` prints the last one; `--into docs/benchmarks/core.md` puts it there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec
from rich.box import SIMPLE
from rich.table import Table

GOAL = 0.70
NONE = "-"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


class Measured(msgspec.Struct, frozen=True):
    """One side of a scenario, round by round: tasks per second, and microseconds of the calling processes' CPU time
    for each task. The slowest claim of all rounds, in milliseconds."""

    per_second: list[float]
    cpu: list[float]
    worst_claim: float | None


class Result(msgspec.Struct, frozen=True):
    """One scenario on one engine, of `tasks` tasks a run."""

    engine: str
    scenario: str
    processes: int
    tasks: int
    dibs: Measured
    raw: Measured | None

    @property
    def ratio(self) -> float | None:
        """The median of dibs as a share of the median of raw, as precisely as it is shown."""
        return round(median(self.dibs.per_second) / median(self.raw.per_second), 2) if self.raw else None


class Report(msgspec.Struct, frozen=True):
    """A whole run."""

    date: str
    seconds: float
    rounds: int
    quick: bool
    python: str
    engines: dict[str, str]
    cpus: int
    load: float
    results: list[Result]


HEADINGS = ("scenario", "procs", "dibs/s", "raw/s", "ratio", "worst claim ms", "raw", "CPU µs a task", "raw")


def tables(report: Report) -> Iterator[Table]:
    """A table for each engine, for a terminal."""
    for engine, version in report.engines.items():
        table = Table(title=f"{engine} {version}, medians of {report.rounds}", box=SIMPLE, title_justify="left")
        for heading in HEADINGS:
            table.add_column(
                heading, justify="left" if heading == "scenario" else "right", no_wrap=heading == "scenario"
            )
        for result in report.results:
            if result.engine == engine:
                table.add_row(*_cells(result, "[bold red]{} <[/]"))
        yield table


def markdown(report: Report) -> str:
    """The tables for the documentation, and what they were measured with."""
    return "\n".join([_made_with(report), *(line for engine in report.engines for line in _lines(report, engine))])


def summary(report: Report) -> str:
    """How many scenarios reach the goal."""
    ratios = [result.ratio for result in report.results if result.ratio is not None]
    reached = sum(ratio >= GOAL for ratio in ratios)
    return f"{reached} of {len(ratios)} scenarios reach {GOAL:.0%} of the raw driver; the lowest is {min(ratios):.0%}."


def write_json(report: Report, path: Path) -> None:
    """The report as a file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def read_json(path: Path) -> Report:
    """The report in a file."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def main() -> None:
    """Render a report for the documentation."""
    parser = argparse.ArgumentParser(description="Render a report of bench/core.py.")
    parser.add_argument("--markdown", type=Path, metavar="FILE.json", required=True, help="the report")
    parser.add_argument("--into", type=Path, metavar="DOC.md", help="replace the table in this document")
    arguments = parser.parse_args()
    text = markdown(read_json(arguments.markdown))
    if arguments.into:
        _replace(arguments.into, text)
    else:
        print(text)


def _made_with(report: Report) -> str:
    engines = ", ".join(f"{name} {version}" for name, version in report.engines.items())
    kind = "quick run" if report.quick else "run"
    return (
        f"A {kind} of {report.seconds:.0f} seconds on {report.date}, {report.cpus} CPUs, load {report.load:.1f} "
        f"before it, Python {report.python}, {engines}; medians of {report.rounds} rounds. {summary(report)}"
    )


def _lines(report: Report, engine: str) -> Iterator[str]:
    yield from ("", f"### {engine}", "")
    yield f"| {' | '.join(HEADINGS)} |"
    yield "|---|" + "--:|" * (len(HEADINGS) - 1)
    for result in report.results:
        if result.engine == engine:
            yield f"| {' | '.join(_cells(result, '**{} <**'))} |"


def _cells(result: Result, low: str) -> list[str]:
    dibs, raw, ratio = result.dibs, result.raw, result.ratio
    return [
        result.scenario,
        str(result.processes),
        f"{median(dibs.per_second):,.0f}",
        f"{median(raw.per_second):,.0f}" if raw else NONE,
        NONE if ratio is None else f"{ratio:.2f}" if ratio >= GOAL else low.format(f"{ratio:.2f}"),
        _number(dibs.worst_claim),
        _number(raw.worst_claim if raw else None),
        _number(median(dibs.cpu)),
        _number(median(raw.cpu) if raw else None),
    ]


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _replace(document: Path, table: str) -> None:
    before, rest = document.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    document.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
