"""The tables, goals and plot of `bench.limits`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.tables import Book, Chapter, Goal, Line, Report, times

ENGINES = ("SQLite", "PostgreSQL")
PLOT = "limits.png"
FLAT = 2.0
"""How many times the cost of a claim from the only group a claim may cost past any number of full groups."""


def _loop_goals(report: Report) -> Iterator[Goal]:
    """Plain SQL has no other feature of a queue, and passes permits on to tasks that wait."""
    for line in report.lines:
        if line.kind == "loops" and line.queue == "dibs":
            sides = [_cpu(report, line, queue) for queue in ("dibs", "plain SQL")]
            what = f"{line.scenario}, {line.engine}, {line.processes} processes: CPU time"
            yield Goal(what, "≤ 2 times plain SQL", sides[0], times(sides[1], 2.0), most=True)


def _cpu(report: Report, line: Line, queue: str) -> float | None:
    """CPU time of the clients and of the database."""
    of = {"scenario": line.scenario, "processes": line.processes}
    clients = report.find("loops", line.engine, queue, figure="cpu", **of)
    database = report.find("loops", line.engine, queue, figure="database_cpu", **of)
    return None if clients is None else clients + (database or 0.0)


def _drain_goals(report: Report) -> Iterator[Goal]:
    for line in report.lines:
        if line.kind == "drains" and line.queue != "dibs":
            ours = report.find("drains", line.engine, "dibs", scenario=line.scenario, processes=line.processes)
            what = f"{line.scenario}, {line.engine}, {line.processes} processes"
            yield Goal(what, f"≥ {line.queue}", ours, line.median("per_second"))


def _group_goals(report: Report) -> Iterator[Goal]:
    for line in report.lines:
        if line.kind == "groups":
            what = f"claim of one, {line.scenario}, {line.engine}, {line.processes:,} groups"
            yield Goal(what, "≤ 2 times one group, CPU time", line.median("cpu_times"), FLAT, most=True)


def _open_goals(report: Report) -> Iterator[Goal]:
    for name in ("enqueue", "cycle"):
        found = report.find("open", "PostgreSQL", "dibs", figure=name)
        yield Goal(f"{name}, PostgreSQL", "≤ 50 ms", found, 50.0, most=True)


LIMITS = Book(
    {
        "loops": Chapter(
            "Claim and complete, ten at a time",
            {"per_second": "tasks/s", "cpu": "client CPU, µs a task", "database_cpu": "database CPU, µs a task"},
            _loop_goals,
        ),
        "drains": Chapter(
            "Worker processes of several queues",
            {"per_second": "tasks/s", "cpu": "workers' CPU, s for 1,000", "database_cpu": "database CPU, s for 1,000"},
            _drain_goals,
        ),
        "groups": Chapter(
            "A claim of one against the number of groups",
            {"ms": "ms", "times": "times one group", "cpu": "CPU ms", "cpu_times": "times one group"},
            _group_goals,
            "groups",
        ),
        "open": Chapter(
            "While a transaction that enqueued and finished tasks of the limit is open (1,000 ms: waited in vain)",
            {
                "enqueue_before": "enqueue before, ms",
                "enqueue": "enqueue, ms",
                "cycle_before": "finish and claim before, ms",
                "cycle": "finish and claim, ms",
            },
            _open_goals,
        ),
    },
    side="queue",
    count="processes",
)


def draw(report: Report, file: Path) -> str:
    """A line for each engine and kind of crowd. Returns the Markdown that shows the plot."""
    from bench.plots import DPI, plt  # noqa: PLC0415 - matplotlib is installed for `make bench` only

    if not any(line.kind == "groups" for line in report.lines):
        return ""
    canvas, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    for engine, axis in zip(ENGINES, axes, strict=True):
        _panel(axis, report, engine)
    axes[0].set_ylabel("CPU ms, client and server", fontsize=9)
    canvas.suptitle("CPU time of a claim of one task against the number of groups with a limit", fontsize=11)
    canvas.tight_layout()
    canvas.savefig(file, dpi=DPI, bbox_inches="tight", facecolor="white")
    plt.close(canvas)
    return f"![CPU time of a claim of one task against the number of groups with a limit]({file.name})"


def _panel(axis: Any, report: Report, engine: str) -> None:
    from bench.plots import DIBS, OTHER  # noqa: PLC0415

    for title, colour in (("all groups full but one", DIBS), ("all groups with room", OTHER)):
        found = [
            (line.processes, cost)
            for line in report.lines
            if (line.kind, line.scenario, line.engine) == ("groups", title, engine) and (cost := line.median("cpu"))
        ]
        axis.plot(*zip(*found, strict=True), marker="o", color=colour, label=title)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_title(engine, loc="left", fontsize=10, fontweight="bold")
    axis.set_xlabel("groups", fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
