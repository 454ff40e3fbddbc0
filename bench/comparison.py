"""The short table of docs/comparison.md: a line for each queue, with its best figures; and how each was set up."""

from __future__ import annotations

from collections.abc import Iterator

from bench.queues.peers import PEERS
from bench.tables import NONE, Line, Report, markdown_row, readable

HEADINGS = [
    "queue", "drained /s, 1 process", "2 processes", "enqueued /s, one by one", "16 at once", "1,000 a call",
    "pick-up ms, p50 / p95", "CPU s per 1,000: workers + database", "MB, idle",
]  # fmt: skip


def markdown(report: Report, made_with: str) -> str:
    """The tables, after what they were measured with."""
    engines = dict.fromkeys(line.engine for line in report.lines if line.kind in ("drain", "enqueue"))
    tables = [f"### {engine}\n\n{_table(report, engine)}" for engine in engines]
    return "\n\n".join([made_with, *tables, f"### How each was set up\n\n{_set_up()}"])


def _table(report: Report, engine: str) -> str:
    lines = [line for line in report.lines if line.engine == engine and line.kind not in ("growth", "contention")]
    queues = dict.fromkeys(line.queue for line in lines)
    rows = [_row(queue, [line for line in lines if line.queue == queue]) for queue in queues]
    return "\n".join([markdown_row(HEADINGS), "|---|" + "--:|" * (len(HEADINGS) - 1), *map(markdown_row, rows)])


def _row(queue: str, lines: list[Line]) -> list[str]:
    fastest = max((line for line in _of(lines, "drain") if line.processes == 1), key=_rate, default=None)
    soonest = min(_of(lines, "pick-up"), key=_p95, default=None)
    idle = next(iter(_of(lines, "idle")), None)
    return [
        f"**{queue}**" if queue == "dibs" else queue,
        _best(_of(lines, "drain"), lambda line: line.processes == 1),
        _best(_of(lines, "drain"), lambda line: line.processes > 1),
        _best(_of(lines, "enqueue"), lambda line: "one by one" in line.scenario),
        _best(_of(lines, "enqueue"), lambda line: "16" in line.scenario),
        _best(_of(lines, "enqueue"), lambda line: "a call" in line.scenario),
        f"{_figure(soonest, 'p50')} / {_figure(soonest, 'p95')}" if soonest else NONE,
        f"{_figure(fastest, 'cpu')} + {_figure(fastest, 'database_cpu')}" if fastest else NONE,
        _figure(idle, "rss") if idle else NONE,
    ]


def _of(lines: list[Line], kind: str) -> list[Line]:
    """The lines of durable settings."""
    return [line for line in lines if line.kind == kind and "not durable" not in line.setting]


def _rate(line: Line) -> float:
    return line.median("per_second") or 0.0


def _p95(line: Line) -> float:
    return line.median("p95") or float("inf")


def _best(lines: list[Line], choose) -> str:  # type: ignore[no-untyped-def]
    """The fastest setting; failed, if any failed."""
    chosen = [line for line in lines if choose(line)]
    rates = [rate for line in chosen if (rate := line.median("per_second")) is not None]
    if any(line.failures for line in chosen):
        return "FAILED"
    return f"{max(rates):,.0f}" if rates else NONE


def _figure(line: Line, name: str) -> str:
    return readable(line.median(name))


def _set_up() -> str:
    return "\n".join(["| queue | settings | after | what it does not do |", "|---|---|---|---|", *_peers()])


def _peers() -> Iterator[str]:
    for peer in PEERS:
        yield markdown_row([f"{peer.name} ({peer.engine})", "; ".join(peer.settings.values()), peer.source, peer.lacks])
