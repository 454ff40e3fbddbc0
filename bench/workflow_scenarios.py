"""What is measured of workflows, and how."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import psycopg

from bench.contest import Contestant, Figures, percentiles
from bench.databases import Engine, fill_dibs
from bench.sides import TYPE, params
from dibs import Claim, Completed, Dibs, NewStep, NewTask, NewWorkflow, WorkflowState
from dibs.model.finalization import ClaimReason
from dibs.store.sqlite.connection import add_functions, clock
from tests.helpers.plans import explain_postgres, explain_sqlite
from tests.helpers.processes import ROOT, Member, ask_all, processes
from tests.helpers.processor import FINALIZERS
from tests.helpers.waiting import until

WORKER = "bench"
PROCESSORS = 8
PATIENCE = 120.0
"""Seconds until a drain counts as hung."""

A_GROUP = 4
"""Steps whose times count as one: as many as a diamond has, whose steps have 2, 1, 1 and 0 edges."""

PLAIN = ("enqueue 1,000 a call", "claim + complete 1 a call", "claim + complete 100 a call", "complete by name")
"""What bench/workflow_plain.py can do."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    graphs: tuple[int, ...] = (100, 1_000, 10_000)
    advances: int = 60
    tasks: int = 10_000
    workflows: int = 500
    wave: int = 10
    plain: int = 2_000

    @classmethod
    def quick(cls) -> Sizes:
        """A small version."""
        return cls(graphs=(100, 1_000), advances=20, tasks=2_000, workflows=50, plain=300)


def contests(engine: Engine, sizes: Sizes, before: Path | None) -> Iterator[list[Contestant]]:
    """All of them on this engine; what plain tasks pay only beside an older version."""
    yield from _advances(engine, sizes)
    for size in sizes.graphs:
        yield [
            Contestant("store", shape, engine.name, "one workflow", size, "", partial(_store, engine, graph, size))
            for shape, graph in GRAPHS.items()
        ] + [Contestant("store", "no graph", engine.name, "plain tasks", size, "", partial(_enqueue, engine, size))]
    yield _drains(engine, sizes)
    run = partial(_finalize, engine, sizes)
    yield [Contestant("finalize", "last steps end at once", engine.name, "processors", PROCESSORS, "", run)]
    for what in PLAIN if before else ():
        sides = (("before", before), ("now", ROOT))
        yield [
            Contestant("plain", what, engine.name, side, 1, "", partial(_plain, engine, what, sizes.plain, Path(tree)))
            for side, tree in sides
            if tree
        ]


# Graphs with about as many edges as steps


def chain(size: int) -> list[NewStep]:
    """Each after the one before."""
    return [_step(n, [n - 1] if n else []) for n in range(size)]


def fan(size: int) -> list[NewStep]:
    """One, then all others at once, then one."""
    last = size - 1
    return [_step(0), *(_step(n, [0]) for n in range(1, last)), _step(last, list(range(1, last)))]


def diamonds(size: int) -> list[NewStep]:
    """One, two after it, one after both; as many of these as there are steps for, side by side."""
    steps: list[NewStep] = []
    for top in range(0, size, A_GROUP):
        steps += [_step(top), _step(top + 1, [top]), _step(top + 2, [top]), _step(top + 3, [top + 1, top + 2])]
    return steps


def _step(number: int, after: list[int] | None = None) -> NewStep:
    task = NewTask(TYPE, params(number))
    return NewStep(name=f"step-{number}", task=task, after=[f"step-{parent}" for parent in after or ()])


GRAPHS: dict[str, Callable[[int], list[NewStep]]] = {"chain": chain, "fan": fan, "diamonds": diamonds}


# Advance


def _advances(engine: Engine, sizes: Sizes) -> Iterator[list[Contestant]]:
    """The sizes of one graph take turns, so that they are compared in the same weather."""
    for shape in GRAPHS:
        yield [
            Contestant("advance", shape, engine.name, "steps", size, "", partial(_advance, engine, shape, size, sizes))
            for size in sizes.graphs
        ]


def _advance(engine: Engine, shape: str, size: int, sizes: Sizes) -> Figures:
    """Finish some steps of the graph, one a call."""
    with engine.filled(0, fill_dibs) as url, Dibs(url) as app:
        app.start_workflow(NewWorkflow(name=shape, steps=GRAPHS[shape](size)))
        if shape == "fan":
            _finish(app, _claim(app))  # from here on each step has one edge, to the last
        for _ in range(3 * A_GROUP):
            _finish(app, _claim(app))
        seconds = [_finish(app, _claim(app)) for _ in range(sizes.advances)]
        groups = [mean(seconds[n : n + A_GROUP]) for n in range(0, len(seconds), A_GROUP)]
        work = mean(_work(app, url, _claim(app)) for _ in range(A_GROUP))
    return {"ms": median(groups) * 1000, "work": work}


def _claim(app: Dibs) -> Claim:
    claim = app.claim(WORKER)
    if claim is None:
        raise RuntimeError("No step could begin.")
    return claim


def _finish(app: Dibs, claim: Claim) -> float:
    began = time.perf_counter()
    app.complete(claim)
    return time.perf_counter() - began


def _work(app: Dibs, url: str, claim: Claim) -> float:
    """The work of the database to finish the step, which does not depend on other load on the machine: instructions of
    SQLite's virtual machine, or pages that PostgreSQL reads."""
    operation = app._store.queue.finish([(claim, Completed())])
    if url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            add_functions(connection)
            works = explain_sqlite(connection, operation, clock())
        work = sum(each.rows for each in works)
    else:
        with psycopg.connect(url, autocommit=True) as session:
            work = sum(each.pages for each in explain_postgres(session, operation))
    app.complete(claim)
    return work


# Store


def _store(engine: Engine, graph: Callable[[int], list[NewStep]], size: int) -> Figures:
    new = NewWorkflow(name="stored", steps=graph(size))
    with engine.filled(0, fill_dibs) as url, Dibs(url) as app:
        app.start_workflow(NewWorkflow(name="first", steps=graph(20)))
        began = time.perf_counter()
        stored = app.start_workflow(new)
        seconds = time.perf_counter() - began
    if stored.steps != size:
        raise RuntimeError(f"{stored.steps} steps were stored instead of {size}.")
    return {"us": seconds * 1e6 / size, "ms": seconds * 1000}


def _enqueue(engine: Engine, size: int) -> Figures:
    """As many tasks by `enqueue_many`, in one call."""
    tasks = [NewTask(TYPE, params(n)) for n in range(size)]
    with engine.filled(0, fill_dibs) as url, Dibs(url) as app:
        app.enqueue_many(tasks[:20])
        began = time.perf_counter()
        app.enqueue_many(tasks)
        seconds = time.perf_counter() - began
    return {"us": seconds * 1e6 / size, "ms": seconds * 1000}


# Drain


def _drains(engine: Engine, sizes: Sizes) -> list[Contestant]:
    each = sizes.tasks // 20
    fills: dict[str, Callable[[Dibs], None]] = {
        "plain tasks": lambda app: _fill_plain(app, sizes.tasks),
        f"20 workflows of {each} steps, diamonds": lambda app: _fill_graphs(app, diamonds, 20, each),
        f"one workflow of {sizes.tasks:,} steps, fan": lambda app: _fill_graphs(app, fan, 1, sizes.tasks),
        f"{each} workflows of 20 steps, chain": lambda app: _fill_graphs(app, chain, each, 20),
    }
    return [
        Contestant("drain", name, engine.name, "worker process", 1, "", partial(_drain, engine, fill, sizes.tasks))
        for name, fill in fills.items()
    ]


def _fill_plain(app: Dibs, tasks: int) -> None:
    for first in range(0, tasks, 1000):
        app.enqueue_many(NewTask(TYPE, params(n)) for n in range(first, min(first + 1000, tasks)))


def _fill_graphs(app: Dibs, graph: Callable[[int], list[NewStep]], workflows: int, size: int) -> None:
    for _ in range(workflows):
        app.start_workflow(NewWorkflow(name="drained", steps=graph(size)))


def _drain(engine: Engine, fill: Callable[[Dibs], None], tasks: int) -> Figures:
    """One worker process does all there is, from the release of the queue until nothing is left to finalize."""
    with engine.filled(0, fill_dibs) as url, Dibs(url) as app:
        app.pause("default")
        fill(app)
        with _worker(app, url):
            began = time.perf_counter()
            app.resume("default")
            until(lambda: _done(engine, url, tasks), PATIENCE)
            seconds = time.perf_counter() - began
    return {"per_second": tasks / seconds}


@contextlib.contextmanager
def _worker(app: Dibs, url: str) -> Iterator[None]:
    """A worker that is up."""
    process = subprocess.Popen([sys.executable, "-m", "bench.workflow_worker", url], cwd=ROOT)  # noqa: S603 - ourselves
    try:
        until(app.workers, 60)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _done(engine: Engine, url: str, tasks: int) -> bool:
    """True when everything is completed. Called rarely, so that it does not disturb the measurement."""
    time.sleep(0.02)
    if engine.count(url, "SELECT 'left', count(*) FROM dibs_workflows WHERE state IN ('running', 'finalizing')")[
        "left"
    ]:
        return False
    return engine.count(url, "SELECT state, count(*) FROM dibs_tasks GROUP BY state") == {"completed": tasks}


# Finalize


def _finalize(engine: Engine, sizes: Sizes) -> Figures:
    """Processors hold a last step of every workflow each, and finish them at once, wave by wave."""
    with engine.filled(0, fill_dibs) as url, Dibs(url) as app, _processors(url) as members:
        ids = [app.start_workflow(_last_steps(n)).id for n in range(sizes.workflows)]
        ask_all(members, [{"do": "hold", "queue": _queue(n)} for n in range(PROCESSORS)])
        tried: list[dict[str, Any]] = []
        began = time.perf_counter()
        for first in range(0, len(ids), sizes.wave):
            wave = {"do": "finish", "workflows": ids[first : first + sizes.wave]}
            tried += [each for answer in ask_all(members, [wave] * PROCESSORS) for each in answer]
        seconds = time.perf_counter() - began
        _check_finalized(app, ids)
    won = sum(each["reason"] == ClaimReason.CLAIMED for each in tried)
    latency = percentiles([each["seconds"] * 1000 for each in tried])
    return {"first": 100 * won / len(ids), "per_second": len(ids) / seconds} | latency


@contextlib.contextmanager
def _processors(url: str) -> Iterator[list[Member]]:
    with processes(url, PROCESSORS, "tests.helpers.processor") as members:
        yield members


def _last_steps(number: int) -> NewWorkflow:
    steps = [NewStep(name=_queue(n), task=NewTask(TYPE, queue=_queue(n))) for n in range(PROCESSORS)]
    return NewWorkflow(
        name="finalized", steps=steps, finalizer=NewTask("report", queue=FINALIZERS) if number % 2 else None
    )


def _queue(processor: int) -> str:
    return f"processor-{processor}"


def _check_finalized(app: Dibs, ids: list[int]) -> None:
    states = Counter(workflow.state for each in ids if (workflow := app.get_workflow(each)))
    if states != {WorkflowState.COMPLETED: len(ids)}:
        raise RuntimeError(f"The workflows are {dict(states)}.")
    for each in ids:
        if [attempt.token for attempt in app.finalization_attempts(each) if attempt.claimed] != [1]:
            raise RuntimeError(f"Workflow {each} was not finalized once.")


# Plain tasks


def _plain(engine: Engine, what: str, tasks: int, tree: Path) -> Figures:
    """Run the version in that folder, in a separate process, on a new database."""
    with _empty(engine) as url:
        command = [sys.executable, "-m", "bench.workflow_plain", url, str(PLAIN.index(what)), str(tasks)]
        environ = os.environ | {"PYTHONPATH": str(tree / "src")}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    answer: dict[str, Any] = json.loads(done.stdout)
    if Path(answer.pop("package")).resolve().parent != (tree / "src" / "dibs").resolve():
        raise RuntimeError(f"The version in {tree} was not the one that ran.")
    return answer


@contextlib.contextmanager
def _empty(engine: Engine) -> Iterator[str]:
    """A database without a schema: each version migrates it to its own."""
    with engine.filled(0, _nothing) as url:
        yield url


def _nothing(url: str, tasks: int) -> None:
    """Leaves the database as it is."""
    if url.startswith("sqlite:"):
        Path(url.removeprefix("sqlite:///")).touch()
