"""What one claim costs: milliseconds of the call, and CPU time of the caller and the database server together."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple, Self

import psutil
import psycopg

from bench.claim_shapes import Options
from dibs import Claim, Dibs, DibsError, Released

PATIENCE = 2.0
"""Seconds. A side whose second claim takes longer makes no other; both go on for twice as long at most. The first claim
in a random order may prepare that order, so it does not count."""

BUILD_AFTER = 6
"""Claims after which upkeep runs: it builds the indexes that these claims have requested, as a worker's upkeep does."""

MIN_CLAIMS = 3
HELD = 300
"""Claimed tasks that are given back together."""


LEASE = 86_400.0
"""Seconds: tasks are given back long before, however slow a claim is."""


class Rounds(NamedTuple):
    """How many claims are made of each side: before, and such that count. After ten of them PostgreSQL has made up its
    mind about the plan."""

    warm_up: int = 11
    counting: int = 16


QUICK = Rounds(1, 3)


class Cost(NamedTuple):
    """Milliseconds of one claim."""

    wall: float
    cpu: float


class Claimer:
    """A client that claims and gives back what it has claimed, outside of the measured time."""

    def __init__(self, url: str) -> None:
        with ExitStack() as stack:
            self.app = stack.enter_context(Dibs(url))
            self.app.claim("bench", queues=["nothing-is-in-here"])  # opens the database
            self._url, self._backends = url, _backends(url)
            self._held: list[Claim] = []
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def claim(self, count: int, order: str, options: Options) -> Cost:
        """Measure one claim."""
        server, caller, began = self._server_cpu(), time.process_time(), time.perf_counter()
        claims = self.app.claim_many("bench", count, order=order, lease=LEASE, **options)
        wall, cpu = time.perf_counter() - began, time.process_time() - caller
        cpu += self._server_cpu() - server
        self._held += claims
        if len(self._held) > HELD - count:
            self.give_back()
        if len(claims) != count:
            raise RuntimeError(f"A claim of {count} got {len(claims)} tasks.")
        return Cost(wall * 1e3, cpu * 1e3)

    def give_back(self) -> None:
        """Release what was claimed: the next cell finds the same tasks."""
        if not all(map(psutil.pid_exists, self._backends)):  # the client has opened another connection
            self._backends = _backends(self._url)
        held, self._held = self._held, []
        for result in self.app.finish([(claim, Released()) for claim in held]) if held else []:
            if isinstance(result, DibsError):
                raise result

    def _server_cpu(self) -> float:
        return sum(map(_cpu_of, self._backends))


Side = tuple[Claimer, Options]
"""A client, and the filter of its claims."""


class Compared(NamedTuple):
    """The medians of two sides, in turns."""

    base: Cost
    shape: Cost


def compare(sides: tuple[Side, Side], count: int, order: str, rounds: Rounds) -> Compared:
    """Measure claims of both sides in turns, so that other load on the machine affects both."""
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for claimer, _ in sides:
        claimer.give_back()  # of a cell that failed
    ends = time.monotonic() + 2 * PATIENCE
    until_built = BUILD_AFTER if rounds.warm_up > BUILD_AFTER else 0
    for number in range(sum(rounds)):
        if number == BUILD_AFTER:
            for claimer, _ in sides:
                claimer.app.upkeep()
            ends = time.monotonic() + 2 * PATIENCE
        for (claimer, options), found in zip(sides, costs, strict=True):
            if len(found) < max(2, until_built + 1) or found[-1].wall < PATIENCE * 1e3:
                found.append(claimer.claim(count, order, options))
        if time.monotonic() > ends and len(costs[0]) > MIN_CLAIMS and number > until_built:
            break
    for claimer, _ in sides:
        claimer.give_back()
    return Compared(*(_middle(each, rounds.warm_up) for each in costs))


def _middle(costs: list[Cost], warm_up: int) -> Cost:
    """The medians, without the claims before the plan was made; in a short list without its first half."""
    counting = costs[min(warm_up, len(costs) // 2) :]
    return Cost(median(cost.wall for cost in counting), median(cost.cpu for cost in counting))


def _backends(url: str) -> list[int]:
    """The server's processes for this database, if the server is on this machine."""
    if url.startswith("sqlite:"):
        return []
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in rows if psutil.pid_exists(pid) and psutil.Process(pid).name().startswith("postgres")]


def _cpu_of(pid: int) -> float:
    """Seconds that the process has run: from the scheduler, because process times are counted in hundredths."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except FileNotFoundError:
        return _cpu_times_of(pid)


def _cpu_times_of(pid: int) -> float:
    """The same where the scheduler does not tell; nothing of a process that has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
