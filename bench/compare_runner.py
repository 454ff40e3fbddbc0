"""One side of bench/compare.py: runs scenarios with the dibs of the interpreter that runs it.

A line of JSON on standard input is a scenario and the URL of its database; the answer is a line with its CPU seconds.
From dibs only public names are imported, so that older checkouts can be measured.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.job_processes import JobProcesses
from bench.scenarios import MANY, Scenario, Verb
from bench.sides import DibsSide
from bench.work import Job

BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def main() -> None:
    """Run scenarios until the input ends."""
    with contextlib.ExitStack() as stack:
        job_processes: JobProcesses | None = None
        for line in sys.stdin:
            job = json.loads(line)
            url, verb, calls = job.pop("url"), Verb(job.pop("verb")), job.pop("calls")
            scenario = Scenario(verb, **job)
            if calls:
                print(lower_quartile_of_calls(url, scenario), flush=True)
                continue
            job_processes = job_processes or stack.enter_context(JobProcesses(MANY))
            done = job_processes.run([Job(url, "dibs", scenario, seat) for seat in range(scenario.processes)])
            print(sum(each.time.cpu for each in done), flush=True)


def lower_quartile_of_calls(url: str, scenario: Scenario) -> float:
    """The CPU seconds of all timed tasks, if each call took as long as the lower quartile of the calls.

    Other load makes some calls dearer (caches are cold after a switch), and none cheaper: the quartile hardly varies.
    """
    with contextlib.closing(DibsSide(url, "worker-0", scenario.batch)) as side:
        calls = _calls(side, scenario)
        for _ in range(scenario.warm_up):
            next(calls)()
        with _server_clock(url) as server:
            spent = sorted(_spent(call, server) for call in calls)
    return spent[len(spent) // 4] * scenario.tasks / scenario.batch


def _calls(side: DibsSide, scenario: Scenario) -> Iterator[Callable[[], Any]]:
    for first in range(0, scenario.total, scenario.batch):
        if scenario.verb is Verb.ENQUEUE:
            prepared = side.prepare(range(first, first + scenario.batch))
            yield lambda prepared=prepared: side.enqueue(prepared)  # type: ignore[misc]
        else:
            yield side.claim if scenario.verb is Verb.CLAIM else lambda: side.finish(side.claim())


def _spent(call: Callable[[], Any], server: Callable[[], float]) -> float:
    before_server, before = server(), time.process_time()
    call()
    return time.process_time() - before + server() - before_server


@contextlib.contextmanager
def _server_clock(url: str) -> Iterator[Callable[[], float]]:
    """Reads the CPU seconds of the PostgreSQL processes that serve this database (Linux); 0 for SQLite."""
    if url.startswith("sqlite:"):
        yield lambda: 0.0
        return
    import psycopg  # noqa: PLC0415 - a checkout that measures SQLite need not have it

    with psycopg.connect(url, autocommit=True) as connection:
        files = [Path(f"/proc/{pid}/schedstat") for (pid,) in connection.execute(BACKENDS)]
    yield lambda: sum(int(file.read_text().split()[0]) for file in files) / 1e9


if __name__ == "__main__":
    main()
