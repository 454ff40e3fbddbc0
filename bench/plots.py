"""Plots of the results, for the documentation: dibs in colour, the others in grey."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from bench.tables import Line, Report

DIBS, RAW, OTHER = "#0b7a75", "#d9a441", "#9aa5b1"
COLOURS = {"dibs": DIBS, "raw SQL": RAW}
DPI = 120

Choice = Callable[[Line], bool]


def draw(report: Report, folder: Path) -> str:
    """All plots of what was measured, as files; the Markdown that shows them."""
    shown = []
    for name, plot in _PLOTS.items():
        if (figure := plot(report)) is not None:
            figure.savefig(folder / f"{name}.png", dpi=DPI, bbox_inches="tight", facecolor="white")
            shown.append(f"![{figure.get_suptitle()}]({name}.png)")
            plt.close(figure)
    return "\n\n".join(shown)


def _drains(report: Report) -> Any:
    title = "Empty tasks drained per second, until the last is durably done (best of 1 and 2 worker processes)"
    return _bars(report, ("drain", "per_second", "tasks/s"), title, _any)


def _costs(report: Report) -> Any:
    title = "CPU seconds for 1,000 empty tasks: workers and database together (1 worker process; less is better)"
    return _bars(report, ("drain", "cpu", "CPU s"), title, _has_all_costs, least=True)


def _has_all_costs(line: Line) -> bool:
    """With one process; and not the raw driver, whose database's share is not measured."""
    return line.processes == 1 and line.queue != "raw SQL"


def _single(report: Report) -> Any:
    title = "Tasks enqueued per second, one by one, each durable before the next (Redis: as its settings say)"
    return _bars(report, ("enqueue", "per_second", "tasks/s"), title, lambda line: "one by one" in line.scenario)


def _bulk(report: Report) -> Any:
    title = "Tasks enqueued per second, 1,000 a call, where a queue can do that"
    return _bars(report, ("enqueue", "per_second", "tasks/s"), title, lambda line: "a call" in line.scenario)


def _mixes(report: Report) -> Any:
    title = (
        "Tasks of a realistic mix per second, enqueued and run until all are durably done (best of 1 and 2 processes)"
    )
    return _bars(report, ("mix", "per_second", "tasks/s"), title, _any)


def _pick_ups(report: Report) -> Any:
    title = "From enqueue in one process to the handler in another, idle one: p95 (logarithmic; less is better)"
    return _bars(report, ("pick-up", "p95", "ms"), title, _any, least=True, log=True)


def _any(_: Line) -> bool:
    return True


def _bars(
    report: Report, what: tuple[str, str, str], title: str, choose: Choice, *, least: bool = False, log: bool = False
) -> Any:
    """A panel for each engine; of each queue its best line. `what`: the kind of lines, the figure, its unit."""
    kind, figure, unit = what
    panels = dict(_panels(report, kind, figure, choose, least=least))
    if not panels:
        return None
    heights = [len(bars) + 1 for bars in panels.values()]
    canvas, axes = plt.subplots(
        len(panels), 1, figsize=(9, 0.34 * sum(heights) + 1.2), height_ratios=heights, squeeze=False
    )
    for (engine, bars), axis in zip(panels.items(), axes[:, 0], strict=True):
        _panel(axis, engine, bars, unit, log=log)
    canvas.suptitle(title, fontsize=11)
    canvas.tight_layout()
    return canvas


def _panels(
    report: Report, kind: str, figure: str, choose: Choice, *, least: bool
) -> Iterator[tuple[str, list[tuple[Line, float]]]]:
    for engine in dict.fromkeys(line.engine for line in report.lines if line.kind == kind):
        best: dict[str, tuple[Line, float]] = {}
        for line in report.lines:
            value = _value(line, figure)
            durable = "not durable" not in line.setting
            if (line.kind, line.engine) == (kind, engine) and durable and choose(line) and value is not None:
                held = best.get(line.queue)
                if held is None or (value < held[1] if least else value > held[1]):
                    best[line.queue] = line, value
        if best:
            yield engine, sorted(best.values(), key=lambda each: each[1], reverse=not least)


def _value(line: Line, figure: str) -> float | None:
    value = line.median(figure)
    if line.kind == "drain" and figure == "cpu" and value is not None:
        return value + (line.median("database_cpu") or 0.0)
    return value


def _panel(axis: Any, engine: str, bars: list[tuple[Line, float]], unit: str, *, log: bool) -> None:
    names = [_name(line) for line, _ in bars]
    values = [value for _, value in bars]
    colours = [COLOURS.get(line.queue, OTHER) for line, _ in bars]
    drawn = axis.barh(names, values, color=colours, log=log)
    axis.bar_label(drawn, [_short(value) for value in values], padding=3, fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_title(engine, loc="left", fontsize=10, fontweight="bold")
    axis.set_xlabel(unit, fontsize=8)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    for label, (line, _) in zip(axis.get_yticklabels(), bars, strict=True):
        label.set_fontweight("bold" if line.queue == "dibs" else "normal")


def _name(line: Line) -> str:
    setting = f", {line.setting}" if line.setting else ""
    processes = f" x {line.processes}" if line.kind in ("drain", "mix") else ""
    return f"{line.queue}{setting}{processes}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _growth(report: Report) -> Any:
    lines = [line for line in report.lines if line.kind == "growth"]
    title = "One claim as the store grows (as many finished tasks as pending ones), every order"
    return _curves(
        lines, title, "pending tasks, and as many finished", [("p50", "ms, p50"), ("filtered_p50", "ms, filtered")]
    )


def _contention(report: Report) -> Any:
    lines = [line for line in report.lines if line.kind == "contention"]
    title = "Workers at one store, each claiming and completing ten tasks at a time"
    return _curves(lines, title, "worker processes", [("per_second", "tasks/s"), ("worst", "worst claim, ms")], base=2)


def _curves(lines: list[Line], title: str, what: str, figures: list[tuple[str, str]], base: int = 10) -> Any:
    """A row for each engine, a column for each figure, a curve for each scenario."""
    engines = list(dict.fromkeys(line.engine for line in lines))
    if not engines:
        return None
    canvas, axes = plt.subplots(len(engines), len(figures), figsize=(9.5, 3.1 * len(engines)), squeeze=False)
    for row, engine in zip(axes, engines, strict=True):
        for axis, (figure, label) in zip(row, figures, strict=True):
            _curve(axis, [line for line in lines if line.engine == engine], figure)
            axis.set_xscale("log", base=base)
            _whole_ticks(axis, sorted({line.processes for line in lines}))
            axis.set_ylim(bottom=0)
            axis.set_title(f"{engine}: {label}", loc="left", fontsize=10, fontweight="bold")
            axis.set_xlabel(what, fontsize=8)
            axis.tick_params(labelsize=8)
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(alpha=0.3)
    if len({line.scenario for line in lines}) > 1:
        axes[0][-1].legend(fontsize=7, ncol=2)
    canvas.suptitle(title, fontsize=11)
    canvas.tight_layout()
    return canvas


def _curve(axis: Any, lines: list[Line], figure: str) -> None:
    scenarios = list(dict.fromkeys(line.scenario for line in lines))
    for scenario in scenarios:
        points = [
            (line.processes, value) for line in lines if line.scenario == scenario and (value := line.median(figure))
        ]
        colour = {"color": DIBS} if len(scenarios) == 1 else {}
        axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=scenario, **colour)


def _whole_ticks(axis: Any, numbers: list[int]) -> None:
    axis.set_xticks(numbers, [f"{number:,}" for number in numbers])
    axis.minorticks_off()


_PLOTS: dict[str, Callable[[Report], Any]] = {
    "drain": _drains,
    "enqueue": _single,
    "enqueue-bulk": _bulk,
    "mix": _mixes,
    "pick-up": _pick_ups,
    "cpu": _costs,
    "growth": _growth,
    "contention": _contention,
}
