"""The pages of the dashboard with a million tasks, on SQLite and PostgreSQL: `python -m bench.dashboard --help`.

A real server, a signed-in client, one request after the other. Every answer's status is checked; a failed request
is shown as failed, and the program then exits with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import httpx
from rich.console import Console

from bench.contest import Contestant, Figures, Meeting, conclude
from bench.dashboard_store import WIDE, fill
from bench.databases import ENGINES, Engine
from bench.http_server import serving
from bench.tables import Book, Chapter, Goal, Report
from dibs import Dibs
from tests.helpers.browsing import Visitor

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "dashboard.md"
LIBRARIES = ("starlette", "uvicorn", "jinja2", "psycopg")
GOAL = 200.0
"""Milliseconds within which every page is to be answered."""

REQUESTS = 30
PAGES = {
    "overview": "/",
    "charts, 15 minutes": "/charts?window=15m",
    "charts, 7 days": "/charts?window=7d",
    "tasks": "/tasks",
    "tasks: pending": "/tasks?state=pending",
    "tasks: failed": "/tasks?state=failed",
    "tasks: claimed, of a queue and type": "/tasks?state=claimed&queue=queue-3&type=type-1",
    "tasks: a type that nobody has": "/tasks?type=nobody",
    "tasks: a text in the params of one": "/tasks?text=picture%22%3A500000%2C",
    "tasks: a text that is nowhere": "/tasks?text=nowhere",
    "tasks: of the last hour": "/tasks?within=hour",
    "tasks: a key": "/tasks?key=key-500003",
    "tasks: an old page": "/tasks?cursor=200000",
    "one task": "/tasks/10000",
    "queues": "/queues",
    "workers": "/workers",
    "workflows": "/workflows",
    "a workflow of 100 steps": "/workflows/1",
    f"a workflow of {WIDE:,} steps": "/workflows/2",
    "schedules": "/schedules",
    "dead letter": "/dead",
    "keys": "/keys",
}
Open = Callable[[], httpx.Response]


def main() -> None:
    """Measure every page, show the figures, and keep them."""
    arguments = _arguments()
    console = Console(width=max(Console().width, 140))
    tasks = 20_000 if arguments.quick else 1_000_000
    meeting = Meeting("bench.dashboard", arguments.repeat, arguments.quick, f"{tasks:,} tasks", console)
    engines = [ENGINES[name]() for name in arguments.engine or ENGINES]
    with contextlib.ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.close)
        contests = [contest for engine in engines for contest in visits(engine, tasks, stack, console)]
        report = meeting.hold(contests, engines, LIBRARIES)
    conclude(report, BOOK, console, arguments.json, DOCUMENT if arguments.markdown else None)


def visits(engine: Engine, tasks: int, stack: contextlib.ExitStack, console: Console) -> Iterator[list[Contestant]]:
    """Every page of a server with this number of tasks."""
    console.print(f"Filling {engine.name} with {tasks:,} tasks …")
    url = stack.enter_context(engine.filled(tasks, fill))
    with Dibs(url) as app:
        key = app.create_key("visitor", ["admin"], rate_limit="none").key
    visitor = Visitor(stack.enter_context(serving(url)).url)
    stack.callback(visitor.close)
    visitor.sign_in(key)
    for name, path in PAGES.items():
        run = _asking(lambda path=path: visitor.get(path))  # type: ignore[misc]
        yield [Contestant("pages", name, engine.name, "dibs", 1, "", run)]


def _asking(open_page: Open) -> Callable[[], Figures]:
    """Open the page repeatedly, and return the durations in milliseconds."""

    def run() -> Figures:
        took = []
        for _ in range(REQUESTS):
            began = time.perf_counter()
            answer = open_page()
            took.append((time.perf_counter() - began) * 1000)
            if answer.status_code != 200 or answer.url.path == "/signin":
                raise RuntimeError(f"{answer.url} answered {answer.status_code}")
        return {"first": took[0], "median": median(took), "worst": max(took), "kilobytes": len(answer.content) / 1024}

    return run


def _goals(report: Report) -> Iterator[Goal]:
    for engine in dict.fromkeys(line.engine for line in report.lines):
        for figure, what in (
            ("median", "the slowest page, median"),
            ("worst", "the slowest request of a run, median of the runs"),
        ):
            found = report.all("pages", engine, "dibs", figure=figure)
            yield Goal(f"{what}, {engine}", "< 200 ms", max(found, default=None), GOAL, most=True)


BOOK = Book(
    {
        "pages": Chapter(
            "Milliseconds for a page, seen by the visitor",
            {"first": "first", "median": "median", "worst": "worst", "kilobytes": "KiB"},
            _goals,
        )
    },
    "side",
    "visitors",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the pages of the dashboard before a million tasks.")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this one (may be repeated)")
    parser.add_argument("--repeat", type=int, default=3, help=f"how often each page is opened {REQUESTS} times (3)")
    parser.add_argument("--quick", action="store_true", help="20,000 tasks instead of a million")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--markdown", action="store_true", help="put the tables into docs/benchmarks/dashboard.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
