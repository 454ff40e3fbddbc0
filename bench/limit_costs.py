"""What a claim of one costs past full groups and blocked tasks, and what waits for an open transaction."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import psycopg

from bench import admission
from bench.claim_cost import QUICK, Claimer, Cost, Rounds, compare
from bench.claim_shapes import Options
from bench.contest import Contestant, Figures
from bench.databases import Engine
from bench.limit_shapes import AT_ONCE, LEASE, LIMIT, ONE, enqueue
from bench.sides import TYPE
from dibs import Completed, Dibs, NewTask

FREE = 60
"""Tasks of the group with room."""

MEASURED = 20
WAIT = 1000
"""Milliseconds after which a call that waits for an open transaction is given up."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Groups with a limit of one for each. `full`: all but the last have a live claim, and tasks that wait before those
    of the last one; else all have room."""

    full: bool
    blocked: int = 1

    def fill(self, url: str, groups: int) -> None:
        """Create the tasks of so many groups."""
        with Dibs(url) as app:
            app.migrate()
            app.set_limit(LIMIT, max=1, per="group")
            if self.full:
                enqueue(app, (self._task(number) for number in range(groups - 1)))
                while app.claim_many("holder", AT_ONCE, lease=LEASE):
                    pass
                enqueue(app, (self._task(number) for number in range(groups - 1) for _ in range(self.blocked)))
            else:
                enqueue(app, (self._task(number) for number in range(groups - 1)))
            enqueue(app, (NewTask(TYPE, limits=[LIMIT], group="free") for _ in range(FREE)))
            app.claim_many("holder", 1, types=["none"])

    def _task(self, number: int) -> NewTask:
        return NewTask(TYPE, limits=[LIMIT], group=f"g{number}", priority=5 if self.full else 0)


class OneAtATime(Claimer):
    """Gives each claim back before the next one: the limit of the group is one."""

    def claim(self, count: int, order: str, options: Options) -> Cost:
        """See Claimer."""
        cost = super().claim(count, order, options)
        self.give_back()
        return cost


def claim_costs(engine: Engine, groups: list[int], blocked: int, *, quick: bool) -> Iterator[list[Contestant]]:
    """A claim of one, in turns with a claim from the only group."""
    for title, crowd in (("all groups full but one", Crowd(full=True)), ("all groups with room", Crowd(full=False))):
        for count in groups:
            yield [_cost(engine, title, crowd, count, quick)]
    yield [_cost(engine, f"{blocked:,} blocked tasks ahead", Crowd(full=True, blocked=blocked), 2, quick)]


def _cost(engine: Engine, title: str, crowd: Crowd, groups: int, quick: bool) -> Contestant:
    run = partial(_compare, engine, crowd, groups, QUICK if quick else Rounds())
    return Contestant("groups", title, engine.name, "dibs", groups, "", run)


def _compare(engine: Engine, crowd: Crowd, groups: int, rounds: Rounds) -> Figures:
    with contextlib.ExitStack() as stack:
        sides = []
        for shape, count in ((Crowd(full=False), 1), (crowd, groups)):
            url = stack.enter_context(engine.filled(count, shape.fill))
            engine.tidy(url)
            sides.append((stack.enter_context(OneAtATime(url)), Options()))
        base, found = compare((sides[0], sides[1]), 1, "priority", rounds)
    return {"ms": found.wall, "times": found.wall / base.wall, "cpu": found.cpu, "cpu_times": found.cpu / base.cpu}


# Open transactions

Calls = dict[str, Callable[[], Any]]


def open_transactions(engine: Engine) -> list[Contestant]:
    """Calls while another transaction, which enqueued and completed tasks with the same limit, stays open."""
    sides = {"dibs": _dibs_calls, "plain SQL": _admission_calls}
    words = {"dibs": "", "plain SQL": "admission"}
    return [
        Contestant("open", "one limit of 50", engine.name, name, 1, words[name], partial(_open, engine, calls))
        for name, calls in sides.items()
    ]


def _open(engine: Engine, begin: Callable[[Engine, contextlib.ExitStack], tuple[Calls, Callable[[], None]]]) -> Figures:
    with contextlib.ExitStack() as stack:
        calls, hold = begin(engine, stack)
        figures = {f"{name}_before": _milliseconds(call) for name, call in calls.items()}
        hold()
        return figures | {name: _milliseconds(call) for name, call in calls.items()}


def _milliseconds(call: Callable[[], Any]) -> float:
    """The median; the time-out for a call that waits."""
    found = []
    for _ in range(MEASURED):
        began = time.perf_counter()
        try:
            call()
        except psycopg.errors.LockNotAvailable:
            return WAIT
        found.append((time.perf_counter() - began) * 1e3)
    return median(found)


def _dibs_calls(engine: Engine, stack: contextlib.ExitStack) -> tuple[Calls, Callable[[], None]]:
    url = stack.enter_context(engine.filled(2000, ONE.fill))
    app, connection = stack.enter_context(Dibs(url)), stack.enter_context(psycopg.connect(url))
    first, *held = app.claim_many("other", 5)
    mine = list(app.claim_many("mine", 10))

    def finish() -> None:
        app.finish([(mine.pop(), Completed())])

    def claim() -> None:
        mine.extend(app.claim_many("mine", 1))

    def cycle() -> None:
        finish()
        claim()

    def hold() -> None:
        joined = app.on(connection)
        joined.enqueue(TYPE, limits=[LIMIT])
        joined.finish([(claim, Completed()) for claim in (first, *held)])

    calls: Calls = {"enqueue": lambda: app.enqueue(TYPE, limits=[LIMIT]), "cycle": cycle}
    return calls, hold


def _admission_calls(engine: Engine, stack: contextlib.ExitStack) -> tuple[Calls, Callable[[], None]]:
    url = stack.enter_context(engine.filled(2000, partial(_install, ONE)))
    side = stack.enter_context(contextlib.closing(admission.PostgresAdmission(url, "mine", 1)))
    other = stack.enter_context(contextlib.closing(admission.PostgresAdmission(url, "other", 5)))
    side.run(f"SET lock_timeout = {WAIT}")
    held, mine = other.claim(), side.claim()

    def cycle() -> None:
        nonlocal mine
        side.finish(mine)
        mine = side.claim()

    def hold() -> None:
        other.run("BEGIN")
        other.finish(held)

    return {"cycle": cycle}, hold


def _install(shape: Any, url: str, tasks: int) -> None:
    admission.install(url, shape, tasks)
