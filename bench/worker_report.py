"""What was measured of the workers, beside the goals: as JSON, as tables in a terminal, and for the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec
from rich.box import SIMPLE
from rich.table import Table

from bench.report import BEGIN, END

NONE = "-"

HEADINGS: dict[str, dict[str, str]] = {
    "drain": {
        "per_second": "tasks/s",
        "cpu": "CPU s per 1,000, workers",
        "database_cpu": "database",
    },
    "enqueue": {"per_second": "tasks/s", "cpu": "CPU s per 1,000, callers"},
    "pick-up": {
        "p50": "p50 ms",
        "p95": "p95 ms",
        "p99": "p99 ms",
        "returned_p50": "p50 ms after enqueue returned",
        "returned_p95": "p95 ms",
        "returned_p99": "p99 ms",
    },
    "idle": {"cpu": "% of a core", "database_cpu": "database, %", "rss": "RSS MB", "pss": "PSS MB"},
}
TITLES = {
    "drain": "Drain: empty tasks, until the last is durably completed",
    "enqueue": "Enqueue: durable tasks",
    "pick-up": "Pick-up: from the call of enqueue in one process to the handler in another, idle one",
    "idle": "Idle: one worker process with nothing to do",
}


class Line(msgspec.Struct, frozen=True):
    """One queue in one scenario: each figure round by round, and the failures, one by one."""

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
    tasks: int
    quick: bool
    machine: str
    versions: dict[str, str]
    command: str
    load: float
    lines: list[Line]


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


def goals(report: Report) -> Iterator[Goal]:
    """The goals of what was measured, with the figures of this run."""
    for kind in _kinds(report):
        yield from _GOALS[kind](report)


def _drain_goals(report: Report) -> Iterator[Goal]:
    for engine, processes, peer, times in (("SQLite", 1, "Huey", 5.0), ("PostgreSQL", 2, "PGQueuer", 1.5)):
        fastest = max(_all(report, "drain", engine, peer), default=None)
        raw = _find(report, "drain", engine, "raw SQL", processes=processes)
        for setting in ("def", "async def"):
            found = _find(report, "drain", engine, "dibs", setting=setting, processes=processes)
            what = f"drain, {engine}, {processes} process{'es' if processes > 1 else ''}, {setting}"
            yield Goal(what, f"≥ {times:g} times the best of {peer}", found, _times(fastest, times))
            yield Goal(what, "≥ 40 % of raw SQL at batch 100", found, _times(raw, 0.4))


def _enqueue_goals(report: Report) -> Iterator[Goal]:
    def found(engine: str, scenario: str, queue: str = "dibs") -> float | None:
        return _find(report, "enqueue", engine, queue, scenario=scenario)

    for engine, peer, times in (("SQLite", "Huey", 1.0), ("PostgreSQL", "PGQueuer", 1.5)):
        one = found(engine, ONE)
        wanted = f"≥ {times:g} times {peer}" if times > 1 else f"≥ {peer}"
        yield Goal(f"{ONE}, {engine}", wanted, one, _times(found(engine, ONE, peer), times))
        many = [rate for name in (THREADS, COROUTINES) if (rate := found(engine, name))]
        yield Goal(f"16 at once, {engine}", "≥ 5 times one by one", max(many, default=None), _times(one, 5.0))
    yield Goal(f"{BULK}, SQLite", "≥ 50,000/s", found("SQLite", BULK), 50_000)
    yield Goal(
        f"{BULK}, PostgreSQL",
        "≥ 1.5 times PGQueuer",
        found("PostgreSQL", BULK),
        _times(found("PostgreSQL", BULK, "PGQueuer"), 1.5),
    )


def _pick_up_goals(report: Report) -> Iterator[Goal]:
    for engine in ("SQLite", "PostgreSQL"):
        for figure, since in (("p95", "the call"), ("returned_p95", "enqueue returned")):
            found = _find(report, "pick-up", engine, "dibs", figure=figure)
            yield Goal(f"pick-up p95 since {since}, {engine}", "≤ 5 ms", found, 5.0, most=True)


def _idle_goals(report: Report) -> Iterator[Goal]:
    for engine in ("SQLite", "PostgreSQL"):
        for figure, wanted, limit in (("cpu", "< 1 % of a core", 1.0), ("rss", "< 60 MB", 60.0)):
            found = _find(report, "idle", engine, "dibs", figure=figure)
            yield Goal(f"idle, {engine}", wanted, found, limit, most=True)


_GOALS = {"drain": _drain_goals, "enqueue": _enqueue_goals, "pick-up": _pick_up_goals, "idle": _idle_goals}

ONE, THREADS, COROUTINES = "enqueue one by one", "enqueue, 16 threads", "enqueue, 16 coroutines"
BULK = "enqueue 1,000 a call"


def _all(report: Report, kind: str, engine: str, queue: str, **other: object) -> list[float]:
    figure = str(other.pop("figure", "per_second"))
    lines = [line for line in report.lines if (line.kind, line.engine, line.queue) == (kind, engine, queue)]
    alike = [line for line in lines if all(getattr(line, name) == value for name, value in other.items())]
    return [value for line in alike if (value := line.median(figure)) is not None]


def _find(report: Report, kind: str, engine: str, queue: str, **other: object) -> float | None:
    return next(iter(_all(report, kind, engine, queue, **other)), None)


def _times(value: float | None, times: float) -> float | None:
    return None if value is None else value * times


# In a terminal


def tables(report: Report) -> Iterator[Table]:
    """A table for each kind of measurement, and one for the goals."""
    for kind in _kinds(report):
        yield _table(TITLES[kind], list(_rows(report, kind)))
    yield _table("Goals, in this run", list(_goal_rows(report)))


def _table(title: str, rows: list[list[str]]) -> Table:
    table = Table(title=title, box=SIMPLE, title_justify="left")
    for number, heading in enumerate(rows[0]):
        table.add_column(heading, justify="left" if number < 2 else "right")
    for row in rows[1:]:
        table.add_row(*row, style="bold red" if row[-1] in ("missed", "FAILED") else None)
    return table


# For the documentation


def markdown(report: Report) -> str:
    """The tables, what they were measured with, and how to do it again."""
    parts = [f"{made_with(report)}\n\n```\n{report.command}\n```"]
    parts += [_markdown_table(TITLES[kind], list(_rows(report, kind))) for kind in _kinds(report)]
    parts.append(_markdown_table("Goals, in this run", list(_goal_rows(report))))
    return "\n\n".join([*parts, *(f"- **{each}**" for each in failures(report))])


def replace(document: Path, text: str) -> None:
    """Put the text between the marks of the document."""
    before, rest = document.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def _markdown_table(title: str, rows: list[list[str]]) -> str:
    first, *others = rows
    line = "|---|---|" + "--:|" * (len(first) - 2)
    return "\n".join([f"### {title}", "", _markdown_row(first), line, *map(_markdown_row, others)])


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


# In both


def made_with(report: Report) -> str:
    """When, on what and with what."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    kind = "quick run" if report.quick else "run"
    return (
        f"A {kind} of {report.seconds:.0f} seconds on {report.date}, {report.machine}, load {report.load:.1f} before "
        f"it; {versions}; {report.tasks:,} tasks, medians of {report.repeat} (from the lowest to the highest)."
    )


def failures(report: Report) -> list[str]:
    """Everything that went wrong."""
    return [
        f"{line.scenario}, {line.engine}, {line.queue} {line.setting}, {line.processes} at once: {failure}"
        for line in report.lines
        for failure in line.failures
    ]


def _kinds(report: Report) -> list[str]:
    return [kind for kind in TITLES if any(line.kind == kind for line in report.lines)]


def _rows(report: Report, kind: str) -> Iterator[list[str]]:
    columns = HEADINGS[kind]
    yield ["scenario", "queue", "processes", *columns.values()]
    for line in report.lines:
        if line.kind == kind:
            who = f"{line.queue}, {line.setting}" if line.setting else line.queue
            cells = [_cell(line, figure) for figure in columns]
            if line.failures:
                cells[-1] = "FAILED"
            yield [f"{line.scenario}, {line.engine}", who, str(line.processes), *cells]


def _cell(line: Line, figure: str) -> str:
    values = line.figures.get(figure)
    if not values:
        return NONE
    middle, low, high = map(_number, (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _goal_rows(report: Report) -> Iterator[list[str]]:
    yield ["figure", "goal", "needed", "found", "share", ""]
    for goal in goals(report):
        share = NONE if goal.met is None else f"{(goal.found or 0) / (goal.limit or 1):.2f}"
        verdict = {True: "met", False: "missed", None: "not measured"}[goal.met]
        yield [goal.what, goal.wanted, _number(goal.limit), _number(goal.found), share, verdict]


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
