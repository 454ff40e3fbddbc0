"""The shapes of the tasks with limits that are measured, and databases of dibs with such tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.sides import TYPE, params
from dibs import Dibs, NewTask

AT_ONCE = 1000
LEASE = 86_400.0
"""Seconds: what holds the permit of blocked tasks holds it for the whole run."""

LIMIT, FULL = "bench", "full"


@dataclass(frozen=True, slots=True)
class Shape:
    """Tasks of this many `groups`, of each at most `max` at once (0: without a limit). `blocked`: so many tasks of a
    higher priority wait for another limit, whose only permit is taken."""

    name: str
    max: int
    groups: int = 1
    blocked: int = 0

    @property
    def per(self) -> str | None:
        """Whether the limit holds for each group."""
        return "group" if self.groups > 1 else None

    def group(self, number: int) -> str | None:
        """The group of a task."""
        return f"g{number % self.groups}" if self.groups > 1 else None

    def fill(self, url: str, tasks: int) -> None:
        """Create the tables, the limits and this number of tasks; and those that are blocked."""
        with Dibs(url) as app:
            app.migrate()
            if self.blocked:
                app.set_limit(FULL, max=1)
                app.enqueue(TYPE, limits=[FULL])
                app.claim("holder", lease=LEASE)
                enqueue(app, (NewTask(TYPE, limits=[FULL], priority=5) for _ in range(self.blocked)))
            if self.max:
                app.set_limit(LIMIT, max=self.max, per=self.per)
            enqueue(app, (self._task(number) for number in range(tasks)))

    def _task(self, number: int) -> NewTask:
        return NewTask(TYPE, params(number), limits=[LIMIT] if self.max else [], group=self.group(number))


PLAIN = Shape("no limit", 0)
ONE = Shape("one limit of 50", 50)
GROUPS = Shape("1,000 groups of 2", 2, groups=1000)


def shapes(blocked: int) -> list[Shape]:
    """All of them."""
    return [PLAIN, ONE, GROUPS, Shape(f"1,000 groups of 2 behind {blocked:,} blocked tasks", 2, 1000, blocked)]


def enqueue(app: Dibs, tasks: Iterator[NewTask]) -> None:
    """Enqueue the tasks, some at once."""
    batch = []
    for task in tasks:
        batch.append(task)
        if len(batch) == AT_ONCE:
            app.enqueue_many(batch)
            batch = []
    if batch:
        app.enqueue_many(batch)
