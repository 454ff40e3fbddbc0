"""Contests: sides that take turns, round by round, and everything that went well or wrong on the way."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles
from typing import NoReturn

import msgspec
from rich.console import Console

from bench.core import progress
from bench.databases import Engine
from bench.tables import Book, Line, Report, replace

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A side in a scenario; `run` measures it once. `processes`: the count that the table shows."""

    kind: str
    scenario: str
    engine: str
    queue: str
    processes: int
    setting: str
    run: Callable[[], Figures]

    @property
    def title(self) -> str:
        """What the progress bar calls it."""
        return f"{self.engine}, {self.scenario}, {self.queue} {self.setting} x {self.processes}"


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
        except Exception as error:  # any error is shown, and the other sides still run
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


@dataclass(slots=True)
class Meeting:
    """All contests of one run of a benchmark; it begins when it is made."""

    program: str
    repeat: int
    quick: bool
    size: str
    console: Console
    began: float = field(default_factory=time.monotonic)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def hold(
        self,
        contests: Iterable[list[Contestant]],
        engines: list[Engine],
        libraries: tuple[str, ...],
        versions: dict[str, str] | None = None,
    ) -> Report:
        """Run the members of each contest in turns, and print the results."""
        entries = [[Entry(each) for each in contest] for contest in contests]
        for entry in progress(list(_turns(entries, self.repeat)), _title, self.console):
            entry.run()
            if entry.failures:
                self.console.print(f"FAILED: {_title(entry)}: {entry.failures[-1]}", style="bold red", markup=False)
        return Report(
            date=datetime.now(UTC).isoformat(timespec="minutes"),
            seconds=time.monotonic() - self.began,
            repeat=self.repeat,
            size=self.size,
            quick=self.quick,
            machine=_machine(),
            versions=_versions(engines, libraries) | (versions or {}),
            command=" ".join([f"python -m {self.program}", *sys.argv[1:]]),
            load=self.load,
            lines=[entry.line for contest in entries for entry in contest],
        )


def conclude(report: Report, book: Book, console: Console, json: Path | None, document: Path | None) -> NoReturn:
    """Show the report, keep it where that was asked for, and end the program: with an error if anything failed."""
    console.print(*book.tables(report), report.made_with, sep="\n")
    for failure in report.failures:
        console.print(f"FAILED: {failure}", style="bold red", markup=False)
    if json:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if document:
        replace(document, book.markdown(report))
    sys.exit(1 if report.failures else 0)


def percentiles(values: list[float], prefix: str = "") -> Figures:
    """p50, p95 and p99."""
    cuts = quantiles(values, n=100, method="inclusive")
    return {f"{prefix}p{percent}": cuts[percent - 1] for percent in (50, 95, 99)}


def _turns(entries: list[list[Entry]], repeat: int) -> Iterator[Entry]:
    """Round by round within each contest."""
    for contest in entries:
        for _ in range(repeat):
            yield from contest


def _title(entry: Entry) -> str:
    return entry.contestant.title


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} CPUs, {memory:.0f} GiB, {platform.system()}"


def _versions(engines: list[Engine], libraries: tuple[str, ...]) -> dict[str, str]:
    found = {"Python": platform.python_version()} | {engine.name: engine.version for engine in engines}
    return found | {name: version(name) for name in libraries}
