"""What a claim costs as the store grows: one database for each engine, filled through dibs' own verbs, step by step.

It has as many finished tasks as pending ones, in three queues, of four types, with twenty-one priorities. What is
claimed is given back, so that every order and every round meets the same tasks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from bench.contest import Contestant, Figures
from bench.databases import COUNTS, FILL, Engine, number
from dibs import Claim, Completed, Dibs, DibsError, NewTask, Order, Released

ROWS = (1_000, 10_000, 100_000, 1_000_000)
QUICK_ROWS = (500, 2_000)
CLAIMS = 60
"""Claims of one task that are timed; of a hundred tasks a tenth of that."""

WARM_UP = 12
"""Claims before: after ten PostgreSQL has made up its mind about the plan."""

MANY = 100
FILTERS: dict[str, Any] = {"queues": ["default"], "types": ["type-1", "type-2"]}


@dataclass(slots=True)
class Grown:
    """A database that only grows."""

    engine: Engine
    rows: int = 0
    url: str = field(default="")

    def to(self, rows: int) -> str:
        """Its URL, when it has this number of pending and of finished tasks."""
        if not self.url:
            self.url = self.engine.empty()
        if self.rows < rows:
            with Dibs(self.url) as app:
                app.migrate()
                _add(app, range(self.rows, rows))
                _finish(app, rows - self.rows)
                _add(app, range(self.rows, rows))
            self.engine.tidy(self.url)
            self.rows = rows
            self._check()
        return self.url

    def _check(self) -> None:
        found = self.engine.count(self.url, COUNTS)
        if found != {"pending": self.rows, "completed": self.rows}:
            raise RuntimeError(f"There should be {self.rows:,} pending and as many completed tasks: {found}.")


def growths(engine: Engine, rows: tuple[int, ...]) -> Iterator[list[Contestant]]:
    """For each size the orders, which take turns."""
    grown = Grown(engine)
    for size in rows:
        yield [
            Contestant("growth", order, engine.name, "dibs", size, "", partial(_cost, grown, size, order))
            for order in Order
        ]


def _cost(grown: Grown, rows: int, order: Order) -> Figures:
    """Milliseconds of a claim: of one task, of one that a filter lets through, of a hundred; and the very first."""
    with Dibs(grown.to(rows)) as app:
        app.promote()  # opens the database
        first = _time(app, 1, 1, order=order)
        one = [_time(app, 1, WARM_UP + CLAIMS, order=order), _time(app, 1, WARM_UP + CLAIMS, order=order, **FILTERS)]
        many = _time(app, MANY, 2 + CLAIMS // 10, order=order)
    if number(grown.url, "SELECT count(*) FROM dibs_tasks WHERE state = 'pending'") != rows:
        raise RuntimeError("Not everything that was claimed came back.")
    return {
        "p50": median(one[0][WARM_UP:]),
        "filtered_p50": median(one[1][WARM_UP:]),
        "many_p50": median(many[2:]),
        "worst": max(one[0][WARM_UP:] + one[1][WARM_UP:]),
        "first": first[0],
    }


def _time(app: Dibs, batch: int, times: int, **options: Any) -> list[float]:
    taken: list[float] = []
    held: list[Claim] = []
    for _ in range(times):
        asked = time.perf_counter()
        claims = app.claim_many("bench", batch, **options)
        taken.append((time.perf_counter() - asked) * 1000)
        if len(claims) != batch:
            raise RuntimeError(f"A claim of {batch} got {len(claims)} tasks.")
        held += claims
        if len(held) >= MANY:
            _give_back(app, held)
    _give_back(app, held)
    return taken


def _give_back(app: Dibs, held: list[Claim]) -> None:
    """The smallest store must not run dry."""
    _must_succeed(app.finish([(claim, Released()) for claim in held]))
    held.clear()


def _add(app: Dibs, numbers: range) -> None:
    for first in range(numbers.start, numbers.stop, FILL):
        app.enqueue_many(_task(place) for place in range(first, min(first + FILL, numbers.stop)))


def _task(place: int) -> NewTask:
    queue = {0: "mail", 1: "media"}.get(place // 5 % 10, "default")
    return NewTask(f"type-{place // 3 % 4}", {"number": place}, queue=queue, priority=place * 7919 % 21 - 10)


def _finish(app: Dibs, tasks: int) -> None:
    done = 0
    while done < tasks:
        claims = app.claim_many("bench", min(FILL, tasks - done))
        _must_succeed(app.finish([(claim, Completed()) for claim in claims]))
        done += len(claims)


def _must_succeed(answers: list[Any]) -> None:
    for answer in answers:
        if isinstance(answer, DibsError):
            raise answer
