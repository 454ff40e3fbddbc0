"""Two checkouts of dibs beside each other, in CPU time a task: `python -m bench.compare --help`.

The scenarios are those of bench/core.py, and the drains of bench/worker.py. Each side runs with the interpreter of its
checkout, so it imports that checkout's dibs; the measuring code is this checkout's for both. The sides take turns on
fresh databases, and each begins every second round. CPU time is that of the clients plus that of the database server:
on a machine with other load it varies far less than the rate.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import NoReturn

from bench.databases import COUNTS, ENGINES, Engine
from bench.queues.contests import drain
from bench.queues.processes import ROOT, Program, cpu_seconds
from bench.queues.run_counts import RunCounts
from bench.queues.systems import System
from bench.scenarios import Scenario, scenarios

LIMIT = 1.03
"""A scenario whose ratio is above this is marked."""

DRAINED = 20_000
"""Tasks of a drain."""

MICRO = 1_000_000

_LIBRARIES = "import json, sysconfig; print(json.dumps([sysconfig.get_path(name) for name in ('stdlib', 'purelib')]))"


class Checkout(System):
    """dibs as it is in a folder with a `.venv`; it drains with plain functions and with coroutines."""

    settings = {"def": "def", "async def": "async def"}  # noqa: RUF012 - never changed
    unfinished = "SELECT EXISTS (SELECT 1 FROM dibs_tasks WHERE state IN ('pending', 'claimed'))"

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self.program = Program("dibs_queue", str(folder.resolve() / ".venv" / "bin" / "python"))
        write_bytecode(self.program.python, folder)
        self._runner = subprocess.Popen(  # noqa: S603 - ourselves
            [self.program.python, "-m", "bench.compare_runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def run(self, url: str, scenario: Scenario, *, calls: bool = False) -> float:
        """Run a scenario on this database; return the CPU seconds of the processes that called dibs.

        `calls`: CPU seconds by the lower quartile of the calls, with the time of the database server."""
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        print(json.dumps({"url": url, "calls": calls, **asdict(scenario)}), file=self._runner.stdin, flush=True)
        reply = self._runner.stdout.readline()
        if not reply:
            raise RuntimeError(f"The runner of {self.name} ended with exit code {self._runner.wait()}.")
        return float(json.loads(reply))

    def close(self) -> None:
        """End the processes of this side."""
        self._runner.communicate()

    def fill(self, url: str, tasks: int) -> None:
        """See System."""
        self.program.run("fill", url, tasks)

    def began(self, released: int, run_counts: RunCounts) -> int:
        """See System."""
        return released

    def check_completed(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        if (found := engine.count(url, COUNTS)) != {"completed": tasks}:
            raise RuntimeError(f"After the drain there is {found}; it should be {tasks} completed tasks.")

    def check_mixed(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        raise NotImplementedError("The mix is measured by bench/worker.py.")

    def check_enqueued(self, engine: Engine, url: str, tasks: int) -> None:
        """See System."""
        raise NotImplementedError("Enqueueing is checked by the scenarios of bench/core.py.")


@dataclass(slots=True)
class Comparison:
    """One scenario on one engine; `run` measures a side once, and returns microseconds of CPU time a task."""

    engine: str
    scenario: str
    processes: int
    run: Callable[[Checkout], float]
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    def measure(self, sides: tuple[Checkout, Checkout], number: int) -> None:
        """Measure both sides once; the order depends on the number of the round."""
        figures = {side: self.run(side) for side in (sides if number % 2 else reversed(sides))}
        self.before.append(figures[sides[0]])
        self.after.append(figures[sides[1]])

    @property
    def ratios(self) -> list[float]:
        """After divided by before, of each round, in ascending order."""
        return sorted(after / before for before, after in zip(self.before, self.after, strict=True))

    @property
    def row(self) -> str:
        """The row of the table."""
        ratio, (low, high) = median(self.ratios), interval(self.ratios)
        shown = f"**{ratio:.3f} >**" if ratio > LIMIT else f"{ratio:.3f}"
        figures = f"{median(self.before):,.1f} | {median(self.after):,.1f} | {shown} | {low:.3f} to {high:.3f}"
        return f"| {self.engine} | {self.scenario} | {self.processes} | {figures} |"


def write_bytecode(python: str, folder: Path) -> None:
    """Write the bytecode of the checkout and of its libraries. A drain includes the start of its workers, and without
    bytecode each worker would compile what it imports."""
    libraries = json.loads(subprocess.check_output([python, "-c", _LIBRARIES]))  # noqa: S603 - ourselves
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [python, "-m", "compileall", "-qq", *libraries, str(folder.resolve() / "src")]
    subprocess.run(command, env=environ, check=False)  # noqa: S603 - ourselves; a library may ship files of other Pythons


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median of these sorted values, by their ranks (binomial distribution)."""
    count, below, rank = len(values), 0.0, 0
    while (below := below + math.comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    rank = max(rank - 1, 0)
    return values[rank], values[count - 1 - rank]


def comparisons(engines: list[Engine], scale: float, only: list[str]) -> Iterator[Comparison]:
    """Every scenario whose name contains one of `only`, or is one of them, on every engine."""
    for engine in engines:
        found = [*_core(engine, scale), *_drains(engine, scale)]
        names = {each.scenario for each in found}
        for each in found:
            if any(text == each.scenario or (text not in names and text in each.scenario) for text in only or [""]):
                yield each


def _core(engine: Engine, scale: float) -> Iterator[Comparison]:
    for one in scenarios(quick=False):
        size = one.batch * one.processes
        scenario = Scenario(one.verb, one.batch, one.processes, max(round(one.tasks * scale / size), 1) * size)
        yield Comparison(
            engine.name,
            scenario.name,
            scenario.processes,
            lambda side, scenario=scenario: _run(engine, side, scenario),  # type: ignore[misc]
        )


def _run(engine: Engine, side: Checkout, scenario: Scenario) -> float:
    with engine.filled(scenario.total if scenario.claims else 0, side.fill) as url:
        before = cpu_seconds(engine.processes)
        clients = side.run(url, scenario)
        server = cpu_seconds(engine.processes) - before
        engine.check(url, scenario)
    return clients * MICRO / scenario.tasks + server * MICRO / scenario.total


def single_calls(engines: list[Engine], scale: float, only: list[str]) -> Iterator[Comparison]:
    """The scenarios of bench/core.py with one process, by the CPU time of single calls."""
    for engine in engines:
        for one in scenarios(quick=False):
            scenario = Scenario(one.verb, one.batch, 1, max(round(one.tasks * scale / one.batch), 40) * one.batch)
            if one.processes == 1 and one.has_raw and any(text in one.name for text in only or [""]):
                yield Comparison(
                    engine.name,
                    scenario.name,
                    1,
                    lambda side, engine=engine, scenario=scenario: _run_calls(engine, side, scenario),  # type: ignore[misc]
                )


def _run_calls(engine: Engine, side: Checkout, scenario: Scenario) -> float:
    with engine.filled(scenario.total if scenario.claims else 0, side.fill) as url:
        spent = side.run(url, scenario, calls=True)
        engine.check(url, scenario)
    return spent * MICRO / scenario.tasks


def _drains(engine: Engine, scale: float) -> Iterator[Comparison]:
    for processes, setting in itertools.product(engine.workers, Checkout.settings):
        yield Comparison(
            engine.name,
            f"drain, {setting}",
            processes,
            lambda side, processes=processes, setting=setting: _drain(engine, side, setting, processes, scale),  # type: ignore[misc]
        )


def _drain(engine: Engine, side: Checkout, setting: str, processes: int, scale: float) -> float:
    figures = drain(engine, side, setting, processes, round(DRAINED * scale))
    return (figures["cpu"] + figures.get("database_cpu", 0)) * MICRO / 1000


def table(all_: list[Comparison]) -> str:
    """The medians, the median of the rounds' ratios, and how certain it is, as Markdown."""
    heading = "| engine | scenario | procs | before, CPU µs a task | after | ratio | 95 % interval |"
    return "\n".join([heading, "|---|---|--:|--:|--:|--:|--:|", *(each.row for each in all_ if each.after)])


def main() -> None:
    """Measure, round by round, and print the table; also if the program is interrupted."""
    arguments = _arguments()
    for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT too: a shell ignores it for programs in the background
        signal.signal(number, _interrupt)
    with contextlib.ExitStack() as stack:
        engines = [
            stack.enter_context(contextlib.closing(ENGINES[name]())) for name in arguments.engine or list(ENGINES)
        ]
        before, after = (
            stack.enter_context(contextlib.closing(Checkout(folder))) for folder in (arguments.before, arguments.after)
        )
        chosen = single_calls if arguments.calls else comparisons
        all_ = list(chosen(engines, arguments.scale, arguments.only))
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        try:
            for number in range(arguments.rounds):
                for each in all_:
                    each.measure((before, after), number)
                print(f"round {number + 1} of {arguments.rounds}", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps([_figures(each) for each in all_], indent=1) + "\n")
        finally:
            print(table(all_))


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _figures(comparison: Comparison) -> dict[str, object]:
    names = ("engine", "scenario", "processes", "before", "after")
    return {name: getattr(comparison, name) for name in names}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the CPU time of two checkouts of dibs.")
    parser.add_argument("before", type=Path, help="a checkout with a .venv (make setup)")
    parser.add_argument("after", type=Path, help="the other checkout, with its own .venv")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this one (may be repeated)")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="only this scenario, or all with this text (may be repeated)"
    )
    parser.add_argument("--rounds", type=int, default=11, help="how often each side is measured (11)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the tasks of every scenario (1)")
    parser.add_argument(
        "--calls", action="store_true", help="single calls of one process, by their lower quartile: for a busy machine"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of every round there")
    arguments = parser.parse_args()
    for folder in (arguments.before, arguments.after):
        if not (folder / ".venv" / "bin" / "python").exists():
            parser.error(f"{folder} has no .venv: run make setup there")
    return arguments


if __name__ == "__main__":
    main()
