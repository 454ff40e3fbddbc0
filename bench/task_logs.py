"""What log lines cost, in CPU time a task: `python -m bench.task_logs`.

One worker drains tasks whose handler logs ten records, or none: not captured, captured, and captured with prints. The
settings take turns on fresh databases. CPU time is that of the worker plus that of the database server.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
from statistics import median

from bench.databases import ENGINES, Engine
from bench.queues.processes import cpu_seconds
from bench.sides import TYPE, params
from dibs import Dibs, LogCapture, NewTask

LINES = 10
SETTINGS = ("no log", "10 records, not captured", "10 records, captured", "10 printed lines, captured")
MICRO = 1_000_000


def main() -> None:
    """Measure, or be the worker that is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", nargs=2, metavar=("SETTING", "URL"))
    given = parser.parse_args()
    if given.worker is not None:
        work(*given.worker)
        return
    for name in given.engine or ("sqlite", "postgres"):
        engine = ENGINES[name]()
        try:
            report(engine, given.tasks, given.rounds)
        finally:
            engine.close()


def report(engine: Engine, tasks: int, rounds: int) -> None:
    """Print the table of an engine."""
    spent: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
    for _ in range(rounds):
        for setting in SETTINGS:
            spent[setting].append(measure(engine, setting, tasks))
    print(f"{engine.name}: microseconds of CPU time a task, median of {rounds} rounds of {tasks:,} tasks")
    for setting, times in spent.items():
        print(f"  {setting:<28} {median(times):8.1f}   from {min(times):.1f} to {max(times):.1f}")


def measure(engine: Engine, setting: str, tasks: int) -> float:
    """CPU time of the drain of one database, without the start of the worker."""
    with engine.filled(tasks, fill) as url:
        before = cpu_seconds(engine.processes)
        command = [sys.executable, "-m", "bench.task_logs", "--worker", setting, url]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ourselves
        server = cpu_seconds(engine.processes) - before
        measured = json.loads(done.stdout.splitlines()[-1])
        expected = tasks * LINES if "captured" in setting and "not" not in setting else 0
        if measured["lines"] != expected:
            raise RuntimeError(f"{setting}: {measured['lines']} lines are stored, and it should be {expected}.")
    return (measured["cpu"] + server) / tasks * MICRO


def fill(url: str, tasks: int) -> None:
    """Enqueue the tasks."""
    with Dibs(url) as app:
        app.enqueue_many(NewTask(TYPE, params(n)) for n in range(tasks))


def work(setting: str, url: str) -> None:
    """Drain the queue, and print the CPU time of that and the number of lines that are stored."""
    import os  # noqa: PLC0415 - of the worker only
    import time  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, stream=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    log, out, sys.stdout = logging.getLogger("bench"), sys.stdout, open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    prints, silent = "printed" in setting, setting == "no log"
    capture = LogCapture(prints=prints) if "captured" in setting and "not" not in setting else False
    app = Dibs(url)

    @app.task(name=TYPE, capture_logs=capture)
    def job(**_: object) -> None:
        for part in range(0 if silent else LINES):
            if prints:
                print("part", part, "of the work is done")
            else:
                log.info("part %d of the work is done", part)

    began = time.process_time()
    app.worker(burst=True).run()
    cpu = time.process_time() - began
    sys.stdout = out
    lines = sum(len(app.logs(number + 1)) for number in range(sum(app.stats().depth.values())))
    print(json.dumps({"cpu": cpu, "lines": lines}))


if __name__ == "__main__":
    main()
