"""A pause and a resume of a large queue: how long they take, and what a claim costs meanwhile.

The large queue is ahead of a small one. Another process pauses it, and runs upkeep until nothing is left to do, as a
worker does; meanwhile claims without a filter are timed here. Then the same with resume.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from bench.claim_cost import Claimer, Cost, Rounds
from bench.claim_shapes import Spread, settle
from bench.contest import Contestant, Figures, percentiles
from bench.databases import Engine
from dibs import Dibs

LARGE = "large"
SMALL_TASKS = 1000
QUIET = 50
"""Claims before, between and after."""


def pauses(engine: Engine, tasks: int) -> Iterator[Contestant]:
    """One contestant, without another to compare with."""
    yield Contestant("pauses", "pause and resume", engine.name, "dibs", tasks, "", partial(_run, engine, tasks))


def _run(engine: Engine, tasks: int) -> Figures:
    """The large queue is first in every order: one half of its tasks is at the one end, one half at the other."""
    spread = Spread(ahead=((("queue", LARGE),),), ahead_count=tasks // 2)
    with engine.filled(SMALL_TASKS, spread.fill) as url, Claimer(url) as claimer:
        engine.tidy(url)
        figures = _quiet(claimer, "before")
        for verb in ("pause", "resume"):
            figures |= _during(claimer, url, verb)
            figures |= _quiet(claimer, f"after_{verb}")
    return figures


def _quiet(claimer: Claimer, prefix: str) -> Figures:
    """Claims while nothing else happens."""
    warm_up = Rounds().warm_up
    costs = [_claim(claimer) for _ in range(warm_up + QUIET)]
    return percentiles([cost.wall for cost in costs[warm_up:]], f"{prefix}_")


def _during(claimer: Claimer, url: str, verb: str) -> Figures:
    """Claims until the other process has done it. At least two, because a pause may take less than a claim."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_change, args=(theirs, url, verb), daemon=True)
    process.start()
    theirs.close()
    ours.recv()  # it has opened the database
    ours.send("go")
    costs: list[float] = []
    while not ours.poll() or len(costs) < 2:
        costs.append(_claim(claimer).wall)
    claimer.give_back()
    called, settled = ours.recv()
    process.join()
    return {
        f"{verb}_seconds": called,
        f"{verb}_settled": settled,
        f"{verb}_claims": float(len(costs)),
        f"{verb}_worst": max(costs),
        **percentiles(costs, f"{verb}_"),
    }


def _change(pipe: Connection[Any, Any], url: str, verb: str) -> None:
    """In another process: seconds of the call, and until upkeep has nothing left to do."""
    with Dibs(url) as app:
        app.queues()
        pipe.send("ready")
        pipe.recv()
        began = time.perf_counter()
        getattr(app, verb)(LARGE)
        called = time.perf_counter() - began
        settle(app)
        pipe.send((called, time.perf_counter() - began))


def _claim(claimer: Claimer) -> Cost:
    return claimer.claim(1, "priority", {})
