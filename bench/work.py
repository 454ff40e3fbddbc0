"""What one process does: open its side, get everything ready, start with the others, and say how long it took."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench.raw import RawPostgres, RawSqlite
from bench.scenarios import CALLERS, Scenario, Verb
from bench.sides import TYPE, DibsSide, Producer, Side, params
from dibs import AsyncDibs

Start = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Job:
    """A process's share of a run; `seat` is its number among the processes of the run."""

    url: str
    side: str
    scenario: Scenario
    seat: int


@dataclass(slots=True)
class Watch:
    """Takes the time of a `with` block: on the machine's monotonic clock, and on this process's CPUs."""

    started: float = 0.0
    ended: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> Watch:
        self.cpu -= time.process_time()
        self.started = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = time.monotonic()
        self.cpu += time.process_time()


@dataclass(frozen=True, slots=True)
class Done:
    """How it went: the time, the tasks done in it and before it, and the slowest claim in seconds."""

    time: Watch
    tasks: int
    warmed_up: int
    worst: float | None = None


def work(job: Job, start: Start) -> Done:
    """Do the job; `start` returns when everybody is ready."""
    return _WORK[job.scenario.verb](job, start)


def _enqueue(job: Job, start: Start) -> Done:
    with contextlib.closing(producer(job.side, job.url, f"worker-{job.seat}", job.scenario.batch)) as side:
        calls = [side.prepare(numbers) for numbers in _shares(job)]
        warm_up = job.scenario.warm_up
        for call in calls[:warm_up]:
            side.enqueue(call)
        start()
        with Watch() as watch:
            for call in calls[warm_up:]:
                side.enqueue(call)
    batch = job.scenario.batch
    return Done(watch, (len(calls) - warm_up) * batch, warm_up * batch)


def _claim(job: Job, start: Start) -> Done:
    return _drain(job, start, finish=False)


def _cycle(job: Job, start: Start) -> Done:
    return _drain(job, start, finish=True)


def _drain(job: Job, start: Start, *, finish: bool) -> Done:
    """Claim until nothing is left."""
    with _side(job) as side:
        side.prepare_claims()
        warmed_up, _ = _take(side, finish, calls=job.scenario.warm_up)
        start()
        with Watch() as watch:
            tasks, worst = _take(side, finish)
    return Done(watch, tasks, warmed_up, worst)


def _take(side: Side, finish: bool, calls: int | None = None) -> tuple[int, float]:
    """Claim as often as that, or until nothing is left: how many tasks, and the slowest claim in seconds."""
    tasks, worst = 0, 0.0
    for _ in itertools.count() if calls is None else range(calls):
        asked = time.monotonic()
        claims = side.claim()
        if not claims:
            break
        worst = max(worst, time.monotonic() - asked)
        if finish:
            side.finish(claims)
        tasks += len(claims)
    return tasks, worst


def _threads(job: Job, start: Start) -> Done:
    warm_up = job.scenario.total - job.scenario.tasks

    def enqueue(numbers: list[int]) -> None:
        for number in numbers:
            side.enqueue(side.prepare([number]))

    with contextlib.closing(producer(job.side, job.url)) as side, ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(enqueue, _callers(warm_up)))
        start()
        with Watch() as watch:
            list(pool.map(enqueue, _callers(job.scenario.tasks)))
    return Done(watch, job.scenario.tasks, warm_up)


def _coroutines(job: Job, start: Start) -> Done:
    return asyncio.run(_in_event_loop(job, start))


async def _in_event_loop(job: Job, start: Start) -> Done:
    warm_up = job.scenario.total - job.scenario.tasks

    async def enqueue(numbers: list[int]) -> None:
        for number in numbers:
            await enqueue_one(number)

    async with _async_producer(job) as enqueue_one:
        await asyncio.gather(*map(enqueue, _callers(warm_up)))
        start()
        with Watch() as watch:
            await asyncio.gather(*map(enqueue, _callers(job.scenario.tasks)))
    return Done(watch, job.scenario.tasks, warm_up)


_WORK: dict[Verb, Callable[[Job, Start], Done]] = {
    Verb.ENQUEUE: _enqueue,
    Verb.CLAIM: _claim,
    Verb.CYCLE: _cycle,
    Verb.THREADS: _threads,
    Verb.COROUTINES: _coroutines,
}


@contextlib.contextmanager
def _side(job: Job) -> Iterator[Side]:
    with contextlib.closing(_open(job)) as side:
        yield side


def _open(job: Job) -> Side:
    worker, batch = f"worker-{job.seat}", job.scenario.batch
    return DibsSide(job.url, worker, batch) if job.side == "dibs" else _raw(job.url, worker, batch)


def producer(side: str, url: str, worker: str = "producer", batch: int = 1) -> Producer:
    """The side of this name, to enqueue so many tasks a call."""
    if side == "dibs":
        return DibsSide(url, worker, batch)
    if side == "raw":
        return _raw(url, worker, batch)
    from bench.queues.sides import HueySide, PgqueuerSide  # noqa: PLC0415 - bench/core.py does without the other queues

    return HueySide(url) if side == "Huey" else PgqueuerSide(url)


def _raw(url: str, worker: str, batch: int) -> Side:
    raw = RawSqlite if url.startswith("sqlite:") else RawPostgres
    return raw(url, worker, batch)


@contextlib.asynccontextmanager
async def _async_producer(job: Job) -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
    if job.side == "dibs":
        async with AsyncDibs(job.url) as app:
            yield lambda number: app.enqueue(TYPE, params(number))
    else:
        from bench.queues.sides import pgqueuer_pool  # noqa: PLC0415 - see producer

        async with pgqueuer_pool(job.url, CALLERS) as enqueue_one:
            yield enqueue_one


def _shares(job: Job) -> Iterator[range]:
    """The numbers of the tasks that this process enqueues, call by call, in the warm-up and after it."""
    batch, processes = job.scenario.batch, job.scenario.processes
    for first in range(job.seat * batch, job.scenario.total, processes * batch):
        yield range(first, first + batch)


def _callers(tasks: int) -> list[list[int]]:
    return [list(range(caller, tasks, CALLERS)) for caller in range(CALLERS)]
