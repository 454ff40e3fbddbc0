"""The tables and goals of the worker's benchmark."""

from __future__ import annotations

from collections.abc import Iterator

from bench.tables import Book, Chapter, Goal, Report, times

ENGINES = ("SQLite", "PostgreSQL")
ONE, THREADS, COROUTINES = "enqueue one by one", "enqueue, 16 threads", "enqueue, 16 coroutines"
BULK = "enqueue 1,000 a call"
OURS = ("dibs", "raw SQL")
GROWTH = {"p50": "one task", "filtered_p50": "one, filtered", "many_p50": "100 tasks"}


def _drain_goals(report: Report) -> Iterator[Goal]:
    for engine, processes, factor in (("SQLite", 1, 5.0), ("PostgreSQL", 2, 1.5)):
        peer, fastest = _fastest_peer(report, engine)
        raw = report.find("drain", engine, "raw SQL", processes=processes)
        for setting in ("def", "async def"):
            found = report.find("drain", engine, "dibs", setting=setting, processes=processes)
            what = f"drain, {engine}, {processes} process{'es' if processes > 1 else ''}, {setting}"
            yield Goal(what, f"≥ {factor:g} times the best of {peer}", found, times(fastest, factor))
            yield Goal(what, "≥ 40 % of raw SQL at batch 100", found, times(raw, 0.4))


def _fastest_peer(report: Report, engine: str) -> tuple[str, float | None]:
    """The durable settings: one that is marked as not durable does not count."""
    rates = {
        line.queue: rate
        for line in sorted(report.lines, key=lambda line: line.median("per_second") or 0.0)
        if (line.kind, line.engine) == ("drain", engine)
        and line.queue not in OURS
        and "not durable" not in line.setting
        if (rate := line.median("per_second"))
    }
    return max(rates.items(), key=lambda each: each[1], default=("the peers", None))


def _enqueue_goals(report: Report) -> Iterator[Goal]:
    def found(engine: str, scenario: str, queue: str = "dibs") -> float | None:
        return report.find("enqueue", engine, queue, scenario=scenario)

    for engine, peer, factor in (("SQLite", "Huey", 1.0), ("PostgreSQL", "PGQueuer", 1.5)):
        one = found(engine, ONE)
        wanted = f"≥ {factor:g} times {peer}" if factor > 1 else f"≥ {peer}"
        yield Goal(f"{ONE}, {engine}", wanted, one, times(found(engine, ONE, peer), factor))
        many = [rate for name in (THREADS, COROUTINES) if (rate := found(engine, name))]
        yield Goal(f"16 at once, {engine}", "≥ 5 times one by one", max(many, default=None), times(one, 5.0))
    yield Goal(f"{BULK}, SQLite", "≥ 50,000/s", found("SQLite", BULK), 50_000)
    yield Goal(
        f"{BULK}, PostgreSQL",
        "≥ 1.5 times PGQueuer",
        found("PostgreSQL", BULK),
        times(found("PostgreSQL", BULK, "PGQueuer"), 1.5),
    )


def _no_goals(_: Report) -> Iterator[Goal]:
    yield from ()


def _pick_up_goals(report: Report) -> Iterator[Goal]:
    for engine in ENGINES:
        for figure, since in (("p95", "the call"), ("returned_p95", "enqueue returned")):
            found = report.find("pick-up", engine, "dibs", figure=figure)
            yield Goal(f"pick-up p95 since {since}, {engine}", "≤ 5 ms", found, 5.0, most=True)


def _idle_goals(report: Report) -> Iterator[Goal]:
    for engine in ENGINES:
        for figure, wanted, limit in (("cpu", "< 1 % of a core", 1.0), ("rss", "< 60 MB", 60.0)):
            found = report.find("idle", engine, "dibs", figure=figure)
            yield Goal(f"idle, {engine}", wanted, found, limit, most=True)


def _growth_goals(report: Report) -> Iterator[Goal]:
    """The worst order on each engine: its largest store beside its smallest."""
    for engine in ENGINES:
        lines = [line for line in report.lines if (line.kind, line.engine) == ("growth", engine)]
        sizes = sorted({line.processes for line in lines})
        for figure, what in GROWTH.items():
            costs = {(line.scenario, line.processes): line.median(figure) for line in lines}
            ratios = [_ratio(costs[order, sizes[-1]], costs[order, sizes[0]]) for order in {name for name, _ in costs}]
            found = None if None in ratios else max((ratio for ratio in ratios if ratio), default=None)
            if lines:
                wanted = f"≤ 1.5 times at {sizes[-1]:,} of what it is at {sizes[0]:,}, every order"
                yield Goal(f"claim of {what}, {engine}", wanted, found, 1.5, most=True)


def _ratio(large: float | None, small: float | None) -> float | None:
    return None if large is None or not small else large / small


def _contention_goals(report: Report) -> Iterator[Goal]:
    for engine in ENGINES:
        lines = [line for line in report.lines if (line.kind, line.engine) == ("contention", engine)]
        rates = {line.processes: line.median("per_second") for line in lines}
        if not lines or None in rates.values():
            continue
        best, most = max(rate for rate in rates.values() if rate), max(rates)
        yield Goal(f"{most} workers, {engine}", "≥ 80 % of the best number of workers", rates[most], times(best, 0.8))
        if engine == "SQLite":
            worst = max(value for line in lines for value in line.figures["worst"])
            yield Goal(f"worst claim of all runs, {engine}", "< 250 ms", worst, 250.0, most=True)


WORKER = Book(
    chapters={
        "drain": Chapter(
            "Drain: empty tasks, until the last is durably completed",
            {"per_second": "tasks/s", "cpu": "CPU s per 1,000, workers", "database_cpu": "database"},
            _drain_goals,
        ),
        "enqueue": Chapter(
            "Enqueue: durable tasks", {"per_second": "tasks/s", "cpu": "CPU s per 1,000, callers"}, _enqueue_goals
        ),
        "mix": Chapter(
            "Mix: 50 types, 10 queues, 2 KB of params, 5 % fail once, a tenth is scheduled; until all are completed",
            {
                "per_second": "tasks/s",
                "cpu": "CPU s per 1,000, workers",
                "producer_cpu": "producer",
                "database_cpu": "database",
            },
            _no_goals,
        ),
        "pick-up": Chapter(
            "Pick-up: from the call of enqueue in one process to the handler in another, idle one",
            {
                "p50": "p50 ms",
                "p95": "p95 ms",
                "p99": "p99 ms",
                "returned_p50": "p50 ms after enqueue returned",
                "returned_p95": "p95 ms",
                "returned_p99": "p99 ms",
            },
            _pick_up_goals,
        ),
        "idle": Chapter(
            "Idle: one worker process with nothing to do",
            {"cpu": "% of a core", "database_cpu": "database, %", "rss": "RSS MB", "pss": "PSS MB"},
            _idle_goals,
        ),
        "growth": Chapter(
            "Growth: milliseconds of a claim, with so many pending and as many finished tasks in the store",
            GROWTH | {"worst": "worst of one", "first": "the very first"},
            _growth_goals,
            count="pending",
        ),
        "contention": Chapter(
            "Contention: workers at one store, each claims ten tasks, completes them, and claims again",
            {"per_second": "tasks/s", "worst": "worst claim, ms", "cpu": "CPU s per 1,000, workers"},
            _contention_goals,
            count="workers",
        ),
    },
    side="queue",
    count="processes",
)
