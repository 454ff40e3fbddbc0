"""The contests: which queues are compared, and how: drains, enqueueing, pick-up, idling."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.contest import Contestant, Figures, percentiles
from bench.core import measured, run_once
from bench.databases import Engine, counting
from bench.job_processes import JobProcesses
from bench.queues.mix import expected_runs
from bench.queues.processes import Workers, cpu_seconds, megabytes
from bench.queues.run_counts import RunCounts
from bench.queues.systems import DIBS, NANO, PeerSystem, System
from bench.scenarios import Scenario, Verb

RAW_BATCH = 100
BULK = 1000
PATIENCE = 300.0
"""Seconds until a drain counts as hung."""

Measure = Callable[[System, str], Figures]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. Times are seconds."""

    tasks: int
    pick_ups: int = 50
    settle: float = 1.5
    idle: float = 5.0

    @classmethod
    def quick(cls, tasks: int) -> Sizes:
        """A small version."""
        return cls(tasks, pick_ups=20, settle=1.0, idle=1.0)


def contests(engine: Engine, sizes: Sizes, peers: list[PeerSystem]) -> Iterator[list[Contestant]]:
    """Those on this engine. The members of each take turns."""
    systems: list[System] = [*([DIBS] if engine.has_dibs else []), *peers]
    for processes in engine.workers:
        yield list(_drains(engine, processes, sizes.tasks, systems))
    yield from _enqueues(engine, sizes.tasks, systems)
    yield list(_alone("pick-up", engine, systems, lambda system, setting: _pick_up(engine, system, setting, sizes)))
    for processes in engine.workers:
        yield list(_mixes(engine, processes, sizes, systems))
    yield list(_alone("idle", engine, systems, lambda system, setting: _idle(engine, system, setting, sizes)))


def _alone(kind: str, engine: Engine, systems: list[System], measure: Measure) -> Iterator[Contestant]:
    """With one worker process, as the queue comes; and where that polls, also polling as often as it drains best."""
    for system in systems:
        for setting, words in list(system.settings.items())[: None if system.polls else 1]:
            if system.waits:
                yield Contestant(kind, kind, engine.name, system.name, 1, words, partial(measure, system, setting))


# Drains


def _drains(engine: Engine, processes: int, tasks: int, systems: list[System]) -> Iterator[Contestant]:
    for system in systems:
        if processes not in system.processes:
            continue
        for setting, words in system.settings.items():
            run = partial(drain, engine, system, setting, processes, system.share(tasks))
            yield Contestant("drain", "drain", engine.name, system.name, processes, words, run)
    if engine.has_dibs:
        yield _raw("drain", "drain", engine, Scenario(Verb.CYCLE, RAW_BATCH, processes, tasks))


def drain(engine: Engine, system: System, setting: str, processes: int, tasks: int) -> Figures:
    """Let workers empty the queue once."""
    with _workers(engine, system, setting, processes, tasks, waiting=tasks) as (url, run_counts, workers):
        with counting(url) as count, system.start_signal(url, workers) as release:
            before = _cpu(engine, workers)
            released = time.time_ns()
            release()
            _until_done(run_counts, tasks, workers)
            while count(system.unfinished):
                _rest(workers, released)
            ended = time.time_ns()
        spent = [after - before for after, before in zip(_cpu(engine, workers), before, strict=True)]
        workers.stop()
        run_counts.check()
        system.check_completed(engine, url, tasks)
    seconds = (ended - system.began(released, run_counts)) / NANO
    costs = {name: cpu * 1000 / tasks for name, cpu in zip(("cpu", "server_cpu", "database_cpu"), spent, strict=True)}
    return {"per_second": tasks / seconds} | {name: cost for name, cost in costs.items() if cost}


def _release(system: System, url: str, workers: Workers) -> None:
    with system.start_signal(url, workers) as release:
        release()


def _cpu(engine: Engine, workers: Workers) -> list[float]:
    """CPU seconds of the workers, of processes between them and the database, and of the database."""
    return [cpu_seconds(group) for group in (workers.found, workers.door.processes, engine.processes)]


def _raw(kind: str, title: str, engine: Engine, scenario: Scenario) -> Contestant:
    """The bare driver with the statements of dibs, in a loop."""
    run, words = partial(_run_raw, engine, scenario), f"batch {scenario.batch}"
    return Contestant(kind, title, engine.name, "raw SQL", scenario.processes, words, run)


def _run_raw(engine: Engine, scenario: Scenario) -> Figures:
    with JobProcesses(scenario.processes) as job_processes:  # a new one each time: what fails leaves nothing behind
        found = measured([run_once(job_processes, engine, scenario, "raw")])
    return {"per_second": found.per_second[0], "cpu": found.cpu[0] / 1000}


def _until_done(run_counts: RunCounts, tasks: int, workers: Workers) -> None:
    began = time.time_ns()
    while run_counts.done < tasks:
        _rest(workers, began)


def _until_finished(system: System, url: str, workers: Workers) -> None:
    began = time.time_ns()
    with counting(url) as count:
        while count(system.unfinished):
            _rest(workers, began)


def _rest(workers: Workers, since: int) -> None:
    """Seconds between two reads: short compared with the measured time, long compared with the cost of a read."""
    time.sleep(0.002)
    workers.must_live()
    if time.time_ns() - since > PATIENCE * NANO:
        raise RuntimeError(f"Not done after {PATIENCE:.0f} seconds.")


@contextlib.contextmanager
def _workers(
    engine: Engine, system: System, setting: str, processes: int, tasks: int, *, waiting: int, verb: str = "work"
) -> Iterator[tuple[str, RunCounts, Workers]]:
    """Workers that are up and wait to be released, on a database with `waiting` tasks."""
    with engine.filled(waiting, system.fill) as url, tempfile.TemporaryDirectory(prefix="dibs-runs-") as folder:
        run_counts = RunCounts(Path(folder) / "run_counts", tasks, processes)
        system.hold(url)
        with (
            system.door(url) as door,
            Workers(system.program, door, setting, run_counts, verb) as workers,
        ):
            system.until_up(url, workers)
            yield url, run_counts, workers


# The mix


def _mixes(engine: Engine, processes: int, sizes: Sizes, systems: list[System]) -> Iterator[Contestant]:
    for system in systems:
        for setting, words in system.settings.items() if processes in system.processes else ():
            run = partial(mix, engine, system, setting, processes, sizes)
            lacking = f"; without {' and '.join(system.mix_lacks)}" if system.mix_lacks else ""
            yield Contestant("mix", "mix", engine.name, system.name, processes, f"{words}{lacking}", run)


def mix(engine: Engine, system: System, setting: str, processes: int, sizes: Sizes) -> Figures:
    """Let one process enqueue the mix and workers, which are up, run it: from the first call until all is done."""
    tasks = system.share(sizes.tasks)
    expected = expected_runs(tasks)
    with _workers(engine, system, setting, processes, tasks, waiting=0, verb="mix-work") as (url, run_counts, workers):
        _release(system, url, workers)
        time.sleep(sizes.settle)
        before = _cpu(engine, workers)
        produced = json.loads(system.program.run("mix", url, tasks))
        since = time.time_ns()
        while run_counts.done < tasks or run_counts.runs < sum(expected):
            _rest(workers, since)
        with counting(url) as count:
            while count(system.mix_unfinished):
                _rest(workers, since)
        ended = time.time_ns()
        spent = [after - before for after, before in zip(_cpu(engine, workers), before, strict=True)]
        workers.stop()
        run_counts.check(expected)
        system.check_mixed(engine, url, tasks)
    costs = {"cpu": spent[0], "producer_cpu": produced["cpu"], "database_cpu": spent[2]}
    return {"per_second": tasks * NANO / (ended - produced["began"])} | {
        name: cost * 1000 / tasks for name, cost in costs.items() if cost
    }


# Enqueueing


def _enqueues(engine: Engine, tasks: int, systems: list[System]) -> Iterator[list[Contestant]]:
    for verb, batch, count in (
        (Verb.ENQUEUE, 1, tasks // 12),
        (Verb.THREADS, 1, tasks // 6),
        (Verb.COROUTINES, 1, tasks // 6),
        (Verb.ENQUEUE, BULK, max(tasks, BULK)),
    ):
        contest = [
            _enqueueing(engine, system, Scenario(verb, batch, 1, _whole_calls(system.share(count), batch)))
            for system in systems
            if system.can(verb, batch)
        ]
        scenario = Scenario(verb, batch, 1, _whole_calls(count, batch))
        if engine.has_dibs and scenario.has_raw:
            contest.append(_raw("enqueue", scenario.name, engine, scenario))
        if contest:
            yield contest


def _whole_calls(tasks: int, batch: int) -> int:
    return max(1, round(tasks / batch)) * batch


def _enqueueing(engine: Engine, system: System, scenario: Scenario) -> Contestant:
    run = partial(_enqueue, engine, system, scenario)
    return Contestant("enqueue", scenario.name, engine.name, system.name, 1, "", run)


def _enqueue(engine: Engine, system: System, scenario: Scenario) -> Figures:
    with engine.filled(0, system.fill) as url:
        done = json.loads(system.program.run("enqueue", url, scenario.verb, scenario.batch, scenario.tasks))
        system.check_enqueued(engine, url, scenario.total)
    watch, tasks = done["time"], done["tasks"]
    return {"per_second": tasks / (watch["ended"] - watch["started"]), "cpu": watch["cpu"] * 1000 / tasks}


# Pick-up and idling


def _pick_up(engine: Engine, system: System, setting: str, sizes: Sizes) -> Figures:
    tasks = sizes.pick_ups
    with _workers(engine, system, setting, 1, tasks, waiting=0) as (url, run_counts, workers):
        _release(system, url, workers)
        calls = json.loads(system.program.run("pick-up", url, tasks, sizes.settle))
        _until_done(run_counts, tasks, workers)
        _until_finished(system, url, workers)  # some call it a failure to be stopped before
        workers.stop()
        run_counts.check()
    moments = list(zip(run_counts.began(), calls, strict=True))[1:]  # the first opened connections
    waited = [(began - called) / 1e6 for began, (called, _) in moments]
    after = [(began - returned) / 1e6 for began, (_, returned) in moments]
    return percentiles(waited) | percentiles(after, "returned_")


def _idle(engine: Engine, system: System, setting: str, sizes: Sizes) -> Figures:
    with _workers(engine, system, setting, 1, 1, waiting=0) as (url, _, workers):
        _release(system, url, workers)
        time.sleep(sizes.settle)
        before, began = _cpu(engine, workers), time.monotonic()
        time.sleep(sizes.idle)
        percent = 100 / (time.monotonic() - began)
        used, _, database = (now - then for now, then in zip(_cpu(engine, workers), before, strict=True))
        rss, pss = megabytes(workers.found)
        workers.stop()
    figures = {"cpu": used * percent, "rss": rss, "pss": pss}
    return figures | ({"database_cpu": database * percent} if engine.processes else {})
