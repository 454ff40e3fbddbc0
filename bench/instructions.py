"""Two checkouts of dibs beside each other, in machine instructions a task: `python -m bench.instructions --help`.

CPU time depends on what else the machine does; the number of executed instructions hardly does. Valgrind counts the
instructions of a process, about fifty times slower than the process would run. SQLite only: the engine runs in the
process that calls dibs, so its instructions are counted as well. Each scenario runs with a number of tasks and with
three times as many, and the difference is divided by the difference in tasks: the start of the process and the opening
of the database cancel out. Waiting for the disk and for locks costs no instructions.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.compare import LIMIT, write_bytecode
from bench.databases import Engine, Sqlite
from bench.queues.processes import ROOT
from bench.scenarios import Scenario, Verb

SMALL, LARGE = 1, 3
"""The two sizes of a scenario."""

COUNTED = re.compile(r"Collected : (\d+)")

CALLS = [
    Scenario(Verb.ENQUEUE, 1, 1, 300),
    Scenario(Verb.ENQUEUE, 1000, 1, 5000),
    *[
        Scenario(verb, batch, 1, tasks)
        for verb in (Verb.CLAIM, Verb.CYCLE)
        for batch, tasks in ((1, 300), (10, 1000), (100, 4000))
    ],
]

DRAINS = [(setting, workers) for setting in ("def", "async def") for workers in (1, 2)]
DRAINED = 2000


class Counted:
    """A checkout with a `.venv`, of which processes run under valgrind."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self._engine = engine
        self._python = str(folder.resolve() / ".venv" / "bin" / "python")
        write_bytecode(self._python, folder)

    def calls(self, scenario: Scenario, size: int) -> int:
        """The instructions of a process that runs the scenario of bench/core.py, with `size` times its tasks."""
        sized = Scenario(scenario.verb, scenario.batch, 1, scenario.tasks * size)
        with self._engine.filled(sized.total if sized.claims else 0, self._fill) as url:
            return self._count("bench.compare_runner", 1, json.dumps({"url": url, "calls": True, **asdict(sized)}))

    def drain(self, setting: str, workers: int, size: int) -> int:
        """The instructions of workers that empty the queue and stop."""
        with self._engine.filled(DRAINED * size, self._fill) as url:
            return self._count("bench.drain_once", workers, json.dumps({"url": url, "setting": setting}))

    def _fill(self, url: str, tasks: int) -> None:
        command = [self._python, "-m", "bench.queues.program", "dibs_queue", "fill", url, str(tasks)]
        subprocess.run(command, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)  # noqa: S603 - ourselves

    def _count(self, module: str, processes: int, line: str) -> int:
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", self._python, "-m", module]
        started = [
            subprocess.Popen(  # noqa: S603 - ourselves
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONHASHSEED": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(processes)
        ]
        for process in started:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.close()
        return sum(_instructions(process) for process in started)


def _instructions(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    errors = process.stderr.read()
    counted = COUNTED.search(errors)
    if process.wait() or counted is None:
        raise RuntimeError(f"A process ended with exit code {process.returncode}: {errors[-2000:]}")
    return int(counted[1])


def _per_task(count: Callable[[int], int], tasks: int) -> float:
    return (count(LARGE) - count(SMALL)) / (tasks * (LARGE - SMALL))


def _row(name: str, processes: int, before: float, after: float) -> str:
    ratio = f"**{after / before:.3f} >**" if after / before > LIMIT else f"{after / before:.3f}"
    return f"| {name} | {processes} | {before / 1000:,.1f} | {after / 1000:,.1f} | {ratio} |"


def main() -> None:
    """Print a table, row by row."""
    arguments = _arguments()
    with contextlib.closing(Sqlite()) as engine:
        _compare([Counted(arguments.before, engine), Counted(arguments.after, engine)], arguments.only)


def _compare(sides: list[Counted], only: str) -> None:
    print("| SQLite | procs | before, 1,000 instructions a task | after | ratio |\n|---|--:|--:|--:|--:|", flush=True)
    for scenario in CALLS:
        if only in scenario.name:
            found = [_per_task(partial(side.calls, scenario), scenario.tasks) for side in sides]
            print(_row(scenario.name, 1, *found), flush=True)
    for setting, workers in DRAINS:
        name = f"drain, {setting}"
        if only in name:
            found = [_per_task(partial(side.drain, setting, workers), DRAINED) for side in sides]
            print(_row(name, workers, *found), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the machine instructions of two checkouts of dibs.")
    parser.add_argument("before", type=Path, help="a checkout with a .venv (make setup)")
    parser.add_argument("after", type=Path, help="the other checkout, with its own .venv")
    parser.add_argument("--only", default="", metavar="TEXT", help="only scenarios with this text")
    if not shutil.which("valgrind"):
        parser.error("valgrind is not installed: apt-get install valgrind")
    return parser.parse_args()


if __name__ == "__main__":
    main()
