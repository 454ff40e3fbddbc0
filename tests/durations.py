"""A pytest plugin that measures what the suite costs, and prints it: by folder, file and part, and the slowest tests.

A test's cost is its wall-clock time with set-up and teardown, the CPU time of its own test process, and the CPU time of
the child processes that ended while the test ran. The CPU time of the private PostgreSQL server cannot be assigned to
single tests, because the server is shared by all test processes; the plugin reports it as one part.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SLOWEST = 30
"""Tests in the table of the slowest ones."""

DEAREST = 20
"""Files in the table of those that take the most time."""


class Cost(NamedTuple):
    """Seconds."""

    wall: float = 0
    own: float = 0
    children: float = 0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(a - b for a, b in zip(self, other, strict=True)))


def cost_so_far() -> Cost:
    """What this process has cost since it started."""
    return Cost(time.perf_counter(), *_cpu_of_this_process())


def _cpu_of_this_process() -> tuple[float, float]:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), children.ru_utime + children.ru_stime


class Recorder:
    """Runs in each test process: adds the cost of a test to its last report."""

    def __init__(self) -> None:
        self._begun = cost_so_far()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._begun = cost_so_far()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[Any]) -> Any:
        report = yield
        if call.when == "teardown":
            report.user_properties.append(("cost", tuple(cost_so_far() - self._begun)))
        return report

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected = _cpu_of_this_process()[0]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send what this process has cost, while the PostgreSQL server still runs."""
        if hasattr(session.config, "workeroutput"):
            folder = Path(os.environ["DIBS_TEST_PGDATA"])
            session.config.workeroutput["cpu"] = (self._collected, *_cpu_of_this_process(), cpu_of_postgres(folder))


class Summary:
    """Runs in the process that prints: collects the costs of all test processes."""

    def __init__(self) -> None:
        self._machine = cpu_of_machine()
        self._tests: dict[str, Cost] = {}
        self._processes: list[tuple[float, float, float, float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "cost":
                self._tests[report.nodeid] = Cost(*value)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if "cpu" in getattr(node, "workeroutput", {}):
            self._processes.append(tuple(node.workeroutput["cpu"]))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tests:
            return
        terminalreporter.section("cost of the tests")
        for line in (*self._by_folder(), "", *self._by_file(), "", *self._by_part(), "", *self._slowest()):
            terminalreporter.write_line(line)

    def _by_folder(self) -> Iterator[str]:
        return self._grouped("folder", lambda file: str(file.parent))

    def _by_file(self) -> Iterator[str]:
        return islice(self._grouped(f"dearest {DEAREST} files", str), DEAREST + 1)

    def _grouped(self, title: str, group_of: Callable[[Path], str]) -> Iterator[str]:
        groups: dict[str, Cost] = defaultdict(Cost)
        counts: dict[str, int] = defaultdict(int)
        for test, cost in self._tests.items():
            group = group_of(Path(test.split("::", 1)[0]))
            groups[group] += cost
            counts[group] += 1
        yield f"{title:48} {'tests':>6} {'wall s':>8} {'CPU s':>8} {'children s':>11}"
        for group, cost in sorted(groups.items(), key=lambda each: -each[1].wall):
            yield f"{group:48} {counts[group]:6} {cost.wall:8.1f} {cost.own:8.1f} {cost.children:11.1f}"

    def _by_part(self) -> Iterator[str]:
        if not self._processes:
            return  # without xdist there is nothing that the table above does not show
        collecting, own, children, database = zip(*self._processes, strict=True)
        parts = (sum(own) - sum(collecting), sum(collecting), sum(children), max(database))
        yield f"{'CPU seconds:':14} {'tests':>6} {'collecting':>11} {'children':>9} {'PostgreSQL':>11} {'all':>6}"
        yield f"{'':14} {parts[0]:6.0f} {parts[1]:11.0f} {parts[2]:9.0f} {parts[3]:11.0f} {sum(parts):6.0f}"
        yield f"The whole machine: {cpu_of_machine() - self._machine:.0f} CPU seconds, with what else runs on it."

    def _slowest(self) -> Iterator[str]:
        yield f"{'wall s':>7} {'CPU s':>7} {'children s':>11}  slowest {SLOWEST} tests"
        for test, cost in sorted(self._tests.items(), key=lambda each: -each[1].wall)[:SLOWEST]:
            yield f"{cost.wall:7.1f} {cost.own:7.1f} {cost.children:11.1f}  {test}"


def cpu_of_machine() -> float:
    """CPU seconds of all processes since the machine started, also of processes that no test process waits for."""
    if not Path("/proc/stat").exists():
        return 0.0
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def cpu_of_postgres(folder: Path) -> float:
    """CPU seconds of the server with this data folder: of its ended and of its running processes."""
    try:
        postmaster = int((folder / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError):
        return 0.0
    stats = {pid: stat for pid, stat in _processes() if postmaster in (pid, stat[1])}
    tick = os.sysconf("SC_CLK_TCK")
    running = sum(stat[11] + stat[12] for stat in stats.values())
    ended = sum(stats[postmaster][13:15]) if postmaster in stats else 0
    return (running + ended) / tick


def _processes() -> Iterator[tuple[int, list[int]]]:
    """Process id, and the numbers of its /proc/PID/stat from the third field on (the second may contain spaces)."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue  # the process ended in the meantime
            yield int(folder.name), [0, *map(int, fields[1:])]


def pytest_configure(config: pytest.Config) -> None:
    """Measure in the processes that run tests, print in the process that reports."""
    config.pluginmanager.register(Recorder(), "cost-recorder")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(), "cost-summary")
