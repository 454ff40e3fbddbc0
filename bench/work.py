"""The work of one process: open its side, prepare, start with the others, and report the duration."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.queues.producing import Done, Start, Watch, produce, produce_awaited
from bench.scenarios import Scenario, Verb
from bench.sides import TYPE, DibsSide, Side, params
from dibs import AsyncDibs


@dataclass(frozen=True, slots=True)
class Job:
    """A process's share of a run; `seat` is its number among the processes of the run."""

    url: str
    side: str
    scenario: Scenario
    seat: int


def work(job: Job, start: Start) -> Done:
    """Do the job; `start` returns when all processes are ready."""
    return _WORK[job.scenario.verb](job, start)


def _enqueue(job: Job, start: Start) -> Done:
    with _side(job) as side:
        return produce(side.enqueue, job.scenario, start, job.seat, side.prepare)


def _coroutines(job: Job, start: Start) -> Done:
    return asyncio.run(_in_event_loop(job, start))


async def _in_event_loop(job: Job, start: Start) -> Done:
    async with AsyncDibs(job.url) as app:
        return await produce_awaited(lambda numbers: app.enqueue(TYPE, params(*numbers)), job.scenario, start)


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


_WORK: dict[Verb, Callable[[Job, Start], Done]] = {
    Verb.ENQUEUE: _enqueue,
    Verb.CLAIM: _claim,
    Verb.CYCLE: _cycle,
    Verb.THREADS: _enqueue,
    Verb.COROUTINES: _coroutines,
}


@contextlib.contextmanager
def _side(job: Job) -> Iterator[Side]:
    with contextlib.closing(_open(job)) as side:
        yield side


def _open(job: Job) -> Side:
    worker, batch = f"worker-{job.seat}", job.scenario.batch
    if job.side == "dibs":
        return DibsSide(job.url, worker, batch)
    # Imported here: bench.raw needs internals of this checkout, and bench.compare runs this module with others.
    from bench.raw import RawPostgres, RawSqlite  # noqa: PLC0415

    raw = RawSqlite if job.url.startswith("sqlite:") else RawPostgres
    return raw(job.url, worker, batch)
