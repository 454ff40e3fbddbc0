"""The results of `bench.claims`: the worst of each shape, every cell, and a plot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.tables import Line, Report, markdown_row, readable
from dibs import Order

COUNTS = (1, 100)
GOALS = {1: 2.0, 100: 1.5}
"""How many times the cost of the base a claim of so many tasks may cost."""

PLOT = "claims.png"
UNITS = {"ms": "milliseconds of the call", "cpu": "milliseconds of CPU time, caller and server"}


class Ratio(NamedTuple):
    """A cell: what a claim costs, and how many times the base."""

    line: Line
    count: int
    value: float
    times: float

    @property
    def is_above(self) -> bool:
        """True if the cell misses the goal, as precisely as it is shown."""
        return round(self.times, 2) > GOALS[self.count]


def ratio(line: Line, count: int, unit: str) -> Ratio | None:
    """None where the cell was not measured or failed."""
    value, base = line.median(f"shape_{count}_{unit}"), line.median(f"base_{count}_{unit}")
    return None if value is None or not base else Ratio(line, count, value, value / base)


def markdown(report: Report) -> str:
    """For the documentation: the worst of each shape, pauses, then every cell."""
    plot = f"![What a claim costs, as a multiple of a claim from one queue of one type]({PLOT})"
    parts = [f"{report.made_with}\n\n```\n{report.command}\n```", plot if _cells(report) else ""]
    return "\n\n".join(part for part in (*parts, *summaries(report), *_details(report)) if part)


def summaries(report: Report) -> Iterator[str]:
    """The worst cell of each shape and filter, and what pauses cost."""
    for engine in _engines(report, "claims"):
        yield f"### {engine}: the worst order of each shape and filter\n\n" + "\n".join(_worst_rows(report, engine))
    if _cells(report):
        yield _verdict(report)
    if rows := list(_pause_rows(report)):
        yield "### Pause and resume of a large queue\n\n" + "\n".join(rows)


def _worst_rows(report: Report, engine: str) -> Iterator[str]:
    yield markdown_row(
        ["shape", "pending", "filter", "claim of 1: ms", "times the base", "CPU ms", "times",
         "of 100: ms", "times the base", "CPU ms", "times"]
    )  # fmt: skip
    yield "|---|--:|---|" + "--:|" * 8
    lines = [line for line in _cells(report) if line.engine == engine]
    for shape, pending, filter_name in dict.fromkeys((line.scenario, line.processes, line.queue) for line in lines):
        orders = [
            line for line in lines if (line.scenario, line.processes, line.queue) == (shape, pending, filter_name)
        ]
        cells = [cell for count in COUNTS for unit in UNITS for cell in _worst_cells(orders, count, unit)]
        yield markdown_row([shape, f"{pending:,}", filter_name, *cells])


def _worst_cells(orders: list[Line], count: int, unit: str) -> list[str]:
    found = [each for line in orders if (each := ratio(line, count, unit))]
    if not found:
        return ["-", "-"]
    worst = max(found, key=lambda each: each.times)
    return [readable(worst.value), f"{_marked(worst)} ({worst.line.setting})"]


def _verdict(report: Report) -> str:
    texts = []
    for count in COUNTS:
        for unit, what in (("ms", "time"), ("cpu", "CPU time")):
            found = [each for line in _cells(report) if (each := ratio(line, count, unit))]
            reached = sum(not each.is_above for each in found)
            texts.append(
                f"of {count}: {reached} of {len(found)} cells within {GOALS[count]:g} times the base in {what}"
            )
    return f"Claims {'; '.join(texts)}. A cell above that is bold."


def _details(report: Report) -> Iterator[str]:
    for engine in _engines(report, "claims"):
        for count in COUNTS:
            for unit, title in UNITS.items():
                rows = "\n".join(_detail_rows(report, engine, count, unit))
                yield f"### {engine}: a claim of {count}, {title} (times the base)\n\n{rows}"


def _detail_rows(report: Report, engine: str, count: int, unit: str) -> Iterator[str]:
    orders = [str(order) for order in Order]
    cells = {
        (line.scenario, line.processes, line.queue, line.setting): ratio(line, count, unit)
        for line in _cells(report)
        if line.engine == engine
    }
    yield markdown_row(["shape", "pending", "filter", *orders])
    yield "|---|--:|---|" + "--:|" * len(orders)
    for row in dict.fromkeys(key[:3] for key in cells):
        shape, pending, filter_name = row
        yield markdown_row([shape, f"{pending:,}", filter_name, *(_cell(cells.get((*row, order))) for order in orders)])


def _cell(found: Ratio | None) -> str:
    return "-" if found is None else f"{readable(found.value)} ({_marked(found)})"


def _marked(found: Ratio) -> str:
    return f"**{readable(found.times)}**" if found.is_above else readable(found.times)


def _pause_rows(report: Report) -> Iterator[str]:
    lines = [line for line in report.lines if line.kind == "pauses"]
    if not lines:
        return
    yield markdown_row(
        ["engine", "tasks", "verb", "call, s", "until upkeep is done, s", "claims meanwhile", "p50 ms", "p95 ms",
         "worst ms", "before: p50 ms", "p95 ms", "after: p50 ms", "p95 ms"]
    )  # fmt: skip
    yield "|---|--:|---|" + "--:|" * 10
    for line in lines:
        for verb, before in (("pause", "before"), ("resume", "after_pause")):
            names = (
                *(f"{verb}_{name}" for name in ("seconds", "settled", "claims", "p50", "p95", "worst")),
                *(f"{moment}_{name}" for moment in (before, f"after_{verb}") for name in ("p50", "p95")),
            )
            figures = [_figure(line, name) for name in names]
            yield markdown_row([line.engine, f"{line.processes:,}", verb, *figures])


def _figure(line: Line, name: str) -> str:
    value = line.median(name)
    return f"{value:,.0f}" if value is not None and name.endswith("_claims") else readable(value)


def _cells(report: Report) -> list[Line]:
    return [line for line in report.lines if line.kind == "claims"]


def _engines(report: Report, kind: str) -> list[str]:
    return list(dict.fromkeys(line.engine for line in report.lines if line.kind == kind))


# The plot


def draw(report: Report, file: Path) -> None:
    """A row for each shape, a dot for each filter and order; left a claim of one, right of a hundred."""
    from bench.plots import DPI, plt  # noqa: PLC0415 - matplotlib is installed for `make bench` only

    engines = _engines(report, "claims")
    if not engines:
        return
    rows = list(dict.fromkeys(_row(line) for line in _cells(report)))
    canvas, axes = plt.subplots(
        len(engines), len(COUNTS), figsize=(11, (0.32 * len(rows) + 1.2) * len(engines)), squeeze=False, sharey=True
    )
    for engine, line_of_axes in zip(engines, axes, strict=True):
        for count, axis in zip(COUNTS, line_of_axes, strict=True):
            _panel(axis, report, engine, count, rows)
    canvas.suptitle("What a claim costs, as a multiple of a claim from one queue of one type", fontsize=11)
    canvas.tight_layout()
    canvas.savefig(file, dpi=DPI, bbox_inches="tight", facecolor="white")
    plt.close(canvas)


def _panel(axis: Any, report: Report, engine: str, count: int, rows: list[str]) -> None:
    from bench.plots import DIBS, OTHER  # noqa: PLC0415

    found = [each for line in _cells(report) if line.engine == engine and (each := ratio(line, count, "ms"))]
    axis.scatter([each.times for each in found], [rows.index(_row(each.line)) for each in found], s=14, alpha=0.5,
                 color=DIBS, linewidths=0)  # fmt: skip
    axis.axvline(GOALS[count], color="#c0392b", linewidth=1, linestyle="--", label=f"goal: {GOALS[count]:g} times")
    axis.axvline(1, color=OTHER, linewidth=1)
    axis.set_xscale("log")
    axis.set_yticks(range(len(rows)), rows)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_title(f"{engine}: claim of {count}", loc="left", fontsize=10, fontweight="bold")
    axis.set_xlabel("times the base (each dot: a filter and an order)", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3, axis="x")
    axis.legend(fontsize=7, loc="lower right")


def _row(line: Line) -> str:
    return f"{line.scenario} ({line.processes:,} pending)"
