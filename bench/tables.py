"""What was measured, line by line, beside the goals: as tables in a terminal, and for the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec
from rich.box import SIMPLE
from rich.table import Table

from bench.report import BEGIN, END

NONE = "-"


class Line(msgspec.Struct, frozen=True):
    """One side in one scenario: each figure round by round, and the failures, one by one."""

    kind: str
    scenario: str
    engine: str
    queue: str
    processes: int
    setting: str
    figures: dict[str, list[float]]
    failures: list[str]

    def median(self, figure: str) -> float | None:
        """The middle of the rounds. None where a round failed: the rest would flatter."""
        values = self.figures.get(figure)
        return median(values) if values and not self.failures else None


class Report(msgspec.Struct, frozen=True):
    """A whole run."""

    date: str
    seconds: float
    repeat: int
    size: str
    quick: bool
    machine: str
    versions: dict[str, str]
    command: str
    load: float
    lines: list[Line]
    absent: dict[str, str] = {}

    def all(self, kind: str, engine: str, queue: str, **other: object) -> list[float]:
        """The medians of `figure` (else: of how many per second) on the lines that are like that."""
        figure = str(other.pop("figure", "per_second"))
        lines = [line for line in self.lines if (line.kind, line.engine, line.queue) == (kind, engine, queue)]
        alike = [line for line in lines if all(getattr(line, name) == value for name, value in other.items())]
        return [value for line in alike if (value := line.median(figure)) is not None]

    def find(self, kind: str, engine: str, queue: str, **other: object) -> float | None:
        """The first of them."""
        return next(iter(self.all(kind, engine, queue, **other)), None)

    @property
    def failures(self) -> list[str]:
        """Everything that went wrong."""
        return [
            f"{line.scenario}, {line.engine}, {line.queue} {line.setting}, {line.processes} at once: {failure}"
            for line in self.lines
            for failure in line.failures
        ]

    @property
    def made_with(self) -> str:
        """When, on what and with what."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        kind = "quick run" if self.quick else "run"
        return (
            f"A {kind} of {self.seconds:.0f} seconds on {self.date}, {self.machine}, load {self.load:.1f} before "
            f"it; {versions}; {self.size}, medians of {self.repeat} (from the lowest to the highest)."
            + "".join(f" Not measured: {name}, {reason}." for name, reason in self.absent.items())
        )


class Goal(msgspec.Struct, frozen=True):
    """A figure of dibs, and what it should reach: at least, or (`most`) at most."""

    what: str
    wanted: str
    found: float | None
    limit: float | None
    most: bool = False

    @property
    def met(self) -> bool | None:
        """None where it was not measured."""
        if self.found is None or self.limit is None:
            return None
        return self.found <= self.limit if self.most else self.found >= self.limit


def times(value: float | None, factor: float) -> float | None:
    """This multiple of the value; None without a value."""
    return None if value is None else value * factor


@dataclass(frozen=True, slots=True)
class Chapter:
    """A table: its title, a heading for each figure, and the goals of what it shows."""

    title: str
    figures: dict[str, str]
    goals: Callable[[Report], Iterator[Goal]]
    count: str | None = None
    """What is counted for each side, if it differs from the default."""


@dataclass(frozen=True, slots=True)
class Book:
    """The tables of a benchmark by the kind of their lines, and what it calls the sides and what it counts of them."""

    chapters: dict[str, Chapter]
    side: str
    count: str

    def tables(self, report: Report) -> Iterator[Table]:
        """For a terminal: a table for each kind of measurement, and one for the goals."""
        for title, rows in self._all_rows(report):
            yield _table(title, rows)

    def markdown(self, report: Report, made_with: str | None = None) -> str:
        """For the documentation: the tables, what they were measured with, and how to do it again."""
        parts = [made_with or f"{report.made_with}\n\n```\n{report.command}\n```"]
        parts += [_markdown_table(title, rows) for title, rows in self._all_rows(report)]
        return "\n\n".join([*parts, *(f"- **{each}**" for each in report.failures)])

    def goals(self, report: Report) -> Iterator[Goal]:
        """The goals of what was measured, with the figures of this run."""
        for kind in self._kinds(report):
            yield from self.chapters[kind].goals(report)

    def _all_rows(self, report: Report) -> Iterator[tuple[str, list[list[str]]]]:
        for kind in self._kinds(report):
            yield self.chapters[kind].title, list(self._rows(report, kind))
        yield "Goals, in this run", list(_goal_rows(self.goals(report)))

    def _kinds(self, report: Report) -> list[str]:
        return [kind for kind in self.chapters if any(line.kind == kind for line in report.lines)]

    def _rows(self, report: Report, kind: str) -> Iterator[list[str]]:
        figures = self.chapters[kind].figures
        yield ["scenario", self.side, self.chapters[kind].count or self.count, *figures.values()]
        for line in report.lines:
            if line.kind == kind:
                who = f"{line.queue}, {line.setting}" if line.setting else line.queue
                cells = [_cell(line, figure) for figure in figures]
                if line.failures:
                    cells[-1] = "FAILED"
                yield [f"{line.scenario}, {line.engine}", who, f"{line.processes:,}", *cells]


def replace(document: Path, text: str) -> None:
    """Put the text between the marks of the document."""
    before, rest = document.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def _table(title: str, rows: list[list[str]]) -> Table:
    table = Table(title=title, box=SIMPLE, title_justify="left")
    for number, heading in enumerate(rows[0]):
        table.add_column(heading, justify="left" if number < 2 else "right")
    for row in rows[1:]:
        table.add_row(*row, style="bold red" if row[-1] in ("missed", "FAILED") else None)
    return table


def _markdown_table(title: str, rows: list[list[str]]) -> str:
    first, *others = rows
    line = "|---|---|" + "--:|" * (len(first) - 2)
    return "\n".join([f"### {title}", "", markdown_row(first), line, *map(markdown_row, others)])


def markdown_row(cells: list[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def _cell(line: Line, figure: str) -> str:
    values = line.figures.get(figure)
    if not values:
        return NONE
    middle, low, high = map(readable, (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _goal_rows(goals: Iterator[Goal]) -> Iterator[list[str]]:
    yield ["figure", "goal", "needed", "found", "share", ""]
    for goal in goals:
        share = NONE if goal.met is None else f"{(goal.found or 0) / (goal.limit or 1):.2f}"
        verdict = {True: "met", False: "missed", None: "not measured"}[goal.met]
        yield [goal.what, goal.wanted, readable(goal.limit), readable(goal.found), share, verdict]


def readable(value: float | None) -> str:
    """The number with its significant digits."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
