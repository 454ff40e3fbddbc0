"""The tables and goals of the server's benchmark."""

from __future__ import annotations

from collections.abc import Iterator

from bench.tables import Book, Chapter, Goal, Report, times

ENGINES = ("SQLite", "PostgreSQL")
CHANCE = 0.01
"""Less likely than this, and a difference is not called chance."""

P95 = (
    ("claim", 10, "", 10.0),
    ("claim", 50, "500/s", 10.0),
    ("create", 10, "", 30.0),
    ("get", 10, "", 10.0),
    ("list", 10, "", 50.0),
    ("complete", 10, "", 20.0),
)
"""Verb, clients, pace, milliseconds."""


def _request_goals(report: Report) -> Iterator[Goal]:
    for engine in ENGINES:
        for verb, clients, setting, limit in P95:
            found = report.find(
                "requests", engine, "dibs", scenario=verb, processes=clients, setting=setting, figure="p95"
            )
            pace = f" at {setting}" if setting else ""
            yield Goal(f"{verb} p95, {engine}, {clients} clients{pace}", f"< {limit:g} ms", found, limit, most=True)
    got = report.find("requests", "SQLite", "dibs", scenario="get", processes=10)
    bare = report.find("requests", "SQLite", "bare", scenario="get", processes=10)
    yield Goal("get, SQLite, 10 clients, requests/s", "≥ 60 % of the bare endpoint", got, times(bare, 0.6))


def _worker_goals(report: Report) -> Iterator[Goal]:
    found = report.find("worker", "SQLite", "worker over HTTP")
    yield Goal("worker over HTTP, SQLite", "≥ 8,000 tasks/s", found, 8_000)


def _limit_goals(report: Report) -> Iterator[Goal]:
    for engine in ENGINES:
        found = report.find("limit", engine, "2 servers", figure="wrong")
        yield Goal(f"granted beside the limit, {engine}, 2 servers", "within 1 %", found, 1.0, most=True)


def _key_goals(report: Report) -> Iterator[Goal]:
    kinds = (("p_20", "20 right characters"), ("p_42", "42 right characters"), ("p_unknown", "an unknown id"))
    for engine in ENGINES:
        for figure, what in kinds:
            found = report.find("key", engine, "dibs", figure=figure)
            yield Goal(f"time of a 401, {what}, {engine}", f"as with 1: p ≥ {CHANCE:g}", found, CHANCE)


HTTP = Book(
    chapters={
        "requests": Chapter(
            "Requests",
            {
                "per_second": "requests/s",
                "p50": "p50 ms",
                "p95": "p95 ms",
                "p99": "p99 ms",
                "cpu": "server CPU ms a request",
                "tasks_per_second": "tasks/s",
            },
            _request_goals,
        ),
        "worker": Chapter(
            "A worker over HTTP: empty tasks, until the last is durably completed",
            {
                "per_second": "tasks/s",
                "cpu": "CPU s per 1,000, worker",
                "server_cpu": "server",
                "database_cpu": "database",
            },
            _worker_goals,
        ),
        "limit": Chapter(
            "A rate limit across two server processes",
            {"granted": "granted", "refused": "refused", "off": "off by %", "seconds": "seconds"},
            _limit_goals,
        ),
        "key": Chapter(
            "Wrong keys: microseconds until a 401",
            {
                "shared_1": "1 right character: µs",
                "shared_20": "20",
                "shared_42": "42",
                "unknown": "unknown id",
                "spread": "middle half of 1",
                "p_20": "p of 20 beside 1",
                "p_42": "42",
                "p_unknown": "unknown id",
            },
            _key_goals,
        ),
    },
    side="server",
    count="clients",
)
