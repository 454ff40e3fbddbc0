"""The tables and goals of the workflows' benchmark."""

from __future__ import annotations

from collections.abc import Iterator

from bench.tables import Book, Chapter, Goal, Report, times

ENGINES = ("SQLite", "PostgreSQL")
SHAPES = ("chain", "fan", "diamonds")
SMALL, LARGE = 100, 10_000
FLAT = 1.5
"""How much more a step of the large graph may cost than one of the small graph, that has a hundredth of its steps."""


def _advance_goals(report: Report) -> Iterator[Goal]:
    for engine in ENGINES:
        for shape in SHAPES:
            for figure, what in (("ms", "time"), ("work", "work")):
                small, large = (
                    report.find("advance", engine, "steps", scenario=shape, processes=size, figure=figure)
                    for size in (SMALL, LARGE)
                )
                name = f"{what} of a finish, {shape} of {LARGE:,}, {engine}"
                yield Goal(name, f"≤ {FLAT:g} times that of {SMALL}", large, times(small, FLAT), most=True)


def _finalize_goals(report: Report) -> Iterator[Goal]:
    for engine in ENGINES:
        latency = report.find("finalize", engine, "processors", figure="p95")
        first = report.find("finalize", engine, "processors", figure="first")
        yield Goal(f"finalization claim p95, {engine}", "< 100 ms", latency, 100.0, most=True)
        yield Goal(f"first claims that succeed, {engine}", "> 95 %", first, 95.0)


def _plain_goals(report: Report) -> Iterator[Goal]:
    for engine in ENGINES:
        for what in dict.fromkeys(line.scenario for line in report.lines if line.kind == "plain"):
            before, now = (report.find("plain", engine, side, scenario=what) for side in ("before", "now"))
            yield Goal(f"{what}, {engine}", "≥ 95 % of before", now, times(before, 0.95))


def _no_goals(report: Report) -> Iterator[Goal]:
    yield from ()


WORKFLOWS = Book(
    chapters={
        "advance": Chapter(
            "Advance: finish one step, with as many edges as steps",
            {"ms": "ms a finish", "work": "VM instructions, or pages, a finish"},
            _advance_goals,
        ),
        "store": Chapter("Store: a whole graph in one transaction", {"us": "µs a step", "ms": "ms in all"}, _no_goals),
        "drain": Chapter("Drain: one worker process", {"per_second": "steps/s"}, _no_goals),
        "finalize": Chapter(
            "Finalize: 8 processors, the last steps of 10 workflows at once, wave by wave",
            {
                "p50": "claim p50 ms",
                "p95": "p95 ms",
                "p99": "p99 ms",
                "first": "first claims that succeed, %",
                "per_second": "workflows/s",
            },
            _finalize_goals,
        ),
        "plain": Chapter(
            "Plain tasks, before there were workflows and now",
            {"per_second": "tasks/s", "cpu": "CPU µs a task"},
            _plain_goals,
        ),
    },
    side="side",
    count="size",
)
