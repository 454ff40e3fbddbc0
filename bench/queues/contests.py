"""Who is measured against whom, and how: drains, enqueueing, pick-up, idling."""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.contest import Contestant, Figures, percentiles
from bench.core import measured, run_once
from bench.crew import Crew
from bench.databases import Engine
from bench.queues.board import Board
from bench.queues.processes import Workers, cpu_seconds, megabytes
from bench.queues.systems import DIBS, NANO, PEERS, System
from bench.scenarios import Scenario, Verb
from bench.work import Job, producer

WORKERS = 2
"""Worker processes at once where there are several."""

RAW_BATCH = 100
BULK = 1000
PATIENCE = 300.0
"""Seconds until a drain counts as hung."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. Times are seconds."""

    tasks: int
    pick_ups: int = 200
    settle: float = 3.0
    idle: float = 20.0
    tuning: int = 5_000

    @classmethod
    def quick(cls, tasks: int) -> Sizes:
        """A small version."""
        return cls(tasks, pick_ups=20, settle=1.0, idle=2.0, tuning=0)


def tune(engine: Engine, sizes: Sizes) -> dict[int, str]:
    """The peer's best setting for each number of processes, found in short drains (not in a quick run: in none)."""
    peer = PEERS[engine.name]
    return {
        processes: max(peer.settings, key=lambda setting: _rate(engine, peer, setting, processes, sizes.tuning))
        for processes in ((1, WORKERS) if sizes.tuning else ())
    }


def contests(engine: Engine, sizes: Sizes, tuned: dict[int, str]) -> Iterator[list[Contestant]]:
    """Those on this engine. The members of each take turns."""
    for processes in (1, WORKERS):
        yield list(_drains(engine, processes, sizes.tasks, tuned))
    yield from _enqueues(engine, sizes.tasks)
    systems = (DIBS, PEERS[engine.name])
    for kind, measure in (("pick-up", _pick_up), ("idle", _idle)):
        yield [
            Contestant(kind, kind, engine.name, each.name, 1, _as_it_comes(each), partial(measure, engine, each, sizes))
            for each in systems
        ]


def _as_it_comes(system: System) -> str:
    return system.describe(system.settings[0])


# Drains


def _drains(engine: Engine, processes: int, tasks: int, tuned: dict[int, str]) -> Iterator[Contestant]:
    peer = PEERS[engine.name]
    for system, settings in ((DIBS, DIBS.settings), (peer, (tuned.get(processes, peer.usual),))):
        for setting in settings:
            run = partial(drain, engine, system, setting, processes, tasks)
            yield Contestant("drain", "drain", engine.name, system.name, processes, system.describe(setting), run)
    raw = partial(_raw, engine, Scenario(Verb.CYCLE, RAW_BATCH, processes, tasks))
    yield Contestant("drain", "drain", engine.name, "raw SQL", processes, f"batch {RAW_BATCH}", raw)


def _rate(engine: Engine, system: System, setting: str, processes: int, tasks: int) -> float:
    return drain(engine, system, setting, processes, tasks)["per_second"]


def drain(engine: Engine, system: System, setting: str, processes: int, tasks: int) -> Figures:
    """Let workers empty the queue once."""
    with _workers(engine, system, setting, processes, tasks, waiting=tasks) as (url, board, workers):
        before = _cpu(engine, workers)
        with system.look(url) as unfinished:
            released = time.time_ns()
            system.release(url, workers)
            _until_done(board, tasks, workers)
            while unfinished():
                _rest(workers, released)
            ended = time.time_ns()
        spent = [after - before for after, before in zip(_cpu(engine, workers), before, strict=True)]
        workers.stop()
        board.check()
        system.check_completed(engine, url, tasks)
    seconds = (ended - system.began(released, board)) / NANO
    costs = {name: cpu * 1000 / tasks for name, cpu in zip(("cpu", "server_cpu", "database_cpu"), spent, strict=True)}
    return {"per_second": tasks / seconds} | {name: cost for name, cost in costs.items() if cost}


def _cpu(engine: Engine, workers: Workers) -> list[float]:
    """CPU seconds of the workers, of what stands between them and the database, and of the database."""
    return [cpu_seconds(group) for group in (workers.found, workers.door.processes, engine.processes)]


def _raw(engine: Engine, scenario: Scenario) -> Figures:
    with Crew(scenario.processes) as crew:  # a new one each time: what fails leaves nothing behind
        return _figures(measured([run_once(crew, engine, scenario, "raw")]))


def _until_done(board: Board, tasks: int, workers: Workers) -> None:
    began = time.time_ns()
    while board.done < tasks:
        _rest(workers, began)


def _rest(workers: Workers, since: int) -> None:
    """A moment between two looks: short against what is measured, long against what a look costs."""
    time.sleep(0.002)
    workers.must_live()
    if time.time_ns() - since > PATIENCE * NANO:
        raise RuntimeError(f"Not done after {PATIENCE:.0f} seconds.")


@contextlib.contextmanager
def _workers(
    engine: Engine, system: System, setting: str, processes: int, tasks: int, *, waiting: int
) -> Iterator[tuple[str, Board, Workers]]:
    """Workers that are up and wait to be released, on a database with so many tasks `waiting`."""
    with engine.filled(waiting, system.fill) as url, tempfile.TemporaryDirectory(prefix="dibs-board-") as folder:
        board = Board(Path(folder) / "board", tasks, processes)
        system.hold(url)
        with (
            system.door(url) as door,
            Workers(system.program, door, setting, board, system.stop_with) as workers,
        ):
            system.until_up(url, workers)
            yield url, board, workers


# Enqueueing


def _enqueues(engine: Engine, tasks: int) -> Iterator[list[Contestant]]:
    peer = PEERS[engine.name]
    one, bulk = Scenario(Verb.ENQUEUE, 1, 1, tasks), Scenario(Verb.ENQUEUE, BULK, 1, max(tasks, BULK))
    threads, coroutines = Scenario(Verb.THREADS, 1, 1, tasks), Scenario(Verb.COROUTINES, 1, 1, tasks)
    peers = {one: True, threads: peer.at_once == "threads", coroutines: peer.at_once == "coroutines"}
    peers[bulk] = peer.name != "Huey"  # it has nothing like it
    for scenario in (one, threads, coroutines, bulk):
        yield [
            Contestant(
                "enqueue", scenario.name, engine.name, each.name, 1, "", partial(_enqueue, engine, each, scenario)
            )
            for each in ((DIBS, peer) if peers[scenario] else (DIBS,))
        ]


def _enqueue(engine: Engine, system: System, scenario: Scenario) -> Figures:
    with Crew(1) as crew, engine.filled(0, system.fill) as url:
        done = crew.run([Job(url, system.name, scenario, 0)])
        system.check_enqueued(engine, url, scenario.total)
    return _figures(measured([done]))


def _figures(found) -> Figures:  # type: ignore[no-untyped-def]
    return {"per_second": found.per_second[0], "cpu": found.cpu[0] / 1000}


# Pick-up and idling


def _pick_up(engine: Engine, system: System, sizes: Sizes) -> Figures:
    tasks = sizes.pick_ups
    with _workers(engine, system, system.settings[0], 1, tasks, waiting=0) as (url, board, workers):
        system.release(url, workers)
        with contextlib.closing(producer(system.name, url)) as side:
            side.enqueue(side.prepare([0]))  # the first opens connections, and is not measured
            time.sleep(sizes.settle)
            calls = [_call(side, number) for number in range(1, tasks)]
        _until_done(board, tasks, workers)
        workers.stop()
        board.check()
    began = board.began()[1:]
    waited = [(start - called) / 1e6 for start, (called, _) in zip(began, calls, strict=True)]
    after = [(start - returned) / 1e6 for start, (_, returned) in zip(began, calls, strict=True)]
    return percentiles(waited) | percentiles(after, "returned_")


def _call(side, number: int) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    time.sleep(random.uniform(0.05, 0.15))
    task = side.prepare([number])
    called = time.time_ns()
    side.enqueue(task)
    return called, time.time_ns()


def _idle(engine: Engine, system: System, sizes: Sizes) -> Figures:
    with _workers(engine, system, system.settings[0], 1, 1, waiting=0) as (url, _, workers):
        system.release(url, workers)
        time.sleep(sizes.settle)
        (worker,), began = workers.found, time.monotonic()
        used, database = cpu_seconds([worker]), cpu_seconds(engine.processes)
        time.sleep(sizes.idle)
        used, database = cpu_seconds([worker]) - used, cpu_seconds(engine.processes) - database
        percent = 100 / (time.monotonic() - began)
        rss, pss = megabytes(worker)
        workers.stop()
    figures = {"cpu": used * percent, "rss": rss, "pss": pss}
    return figures | ({"database_cpu": database * percent} if engine.processes else {})
