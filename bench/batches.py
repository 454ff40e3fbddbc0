"""Batch handlers beside ordinary ones: the drain of a queue by one worker, `python -m bench.batches --help`.

The kinds of handlers take turns on copies of one database. The handler does nothing, or makes a round trip to a SQLite
file, one for each call: an ordinary handler inserts one row and commits, a batch handler inserts the rows of all its
items and commits. The figures are the medians of the rounds; the CPU time is that of the worker.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.databases import ENGINES, Engine, fill_dibs
from bench.sides import TYPE
from dibs import BatchItem, Dibs

KINDS = ("def", "batch_task")


@dataclass
class Params:
    """The params of the tasks."""

    number: int


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print("| work | handler | tasks/s | CPU, µs a task | calls |\n|---|---|--:|--:|--:|")
    with contextlib.closing(ENGINES[given.engine]()) as engine:
        for inserts in (False, True):
            measured: dict[str, list[tuple[float, float, int]]] = {kind: [] for kind in KINDS}
            for number in range(given.rounds):
                for kind in KINDS if number % 2 else reversed(KINDS):
                    measured[kind].append(drain(engine, kind, inserts, given.tasks))
            for kind, runs in measured.items():
                rate, cpu, calls = (median(figures) for figures in zip(*runs, strict=True))
                print(f"| {'insert' if inserts else 'none'} | {kind} | {rate:,.0f} | {cpu:,.1f} | {calls:,.0f} |")


def drain(engine: Engine, kind: str, inserts: bool, tasks: int) -> tuple[float, float, int]:
    """Tasks a second, microseconds of CPU time a task, and the number of calls."""
    with engine.filled(tasks, fill_dibs) as url, Dibs(url) as app, table() as insert:
        calls: list[int] = []
        work = insert if inserts else lambda numbers: None
        declare(app, kind, work, calls)
        began, cpu = time.perf_counter(), time.process_time()
        app.worker(burst=True).run()
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
        assert sum(calls) == app.stats().depth["completed"] == tasks
    return tasks / seconds, used / tasks * 1e6, len(calls)


def declare(app: Dibs, kind: str, work: Callable[[Sequence[int]], None], calls: list[int]) -> None:
    """Declare the handler."""
    if kind == "def":

        @app.task(name=TYPE)
        def one(number: int) -> None:
            calls.append(1)
            work([number])

    else:

        @app.batch_task(name=TYPE, size=100)
        def many(items: Sequence[BatchItem[Params]]) -> Sequence[None]:
            calls.append(len(items))
            work([item.value.number for item in items])
            return [None] * len(items)


@contextlib.contextmanager
def table() -> Iterator[Callable[[Sequence[int]], None]]:
    """A function that inserts numbers into a table, in one transaction."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "rows.db", check_same_thread=False)
        connection.executescript("PRAGMA journal_mode = wal; CREATE TABLE numbers (number)")
        lock = threading.Lock()

        def insert(numbers: Sequence[int]) -> None:
            with lock, connection:
                connection.executemany("INSERT INTO numbers VALUES (?)", [(number,) for number in numbers])

        yield insert
        connection.close()


if __name__ == "__main__":
    main()
