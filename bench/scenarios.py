"""What is measured: each verb, one by one and in batches, by one process and by ten."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MANY = 10
"""Processes at once where there are several."""

CALLERS = 16
"""Threads or coroutines at once where one process has several."""


class Verb(StrEnum):
    """What a process does until its share is done."""

    ENQUEUE = "enqueue"
    CLAIM = "claim"
    CYCLE = "claim + complete"
    THREADS = "enqueue, 16 threads"
    COROUTINES = "enqueue, 16 coroutines"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One line of the table: `tasks` in total, `batch` of them a call."""

    verb: Verb
    batch: int
    processes: int
    tasks: int

    @property
    def name(self) -> str:
        """What the table calls it."""
        if self.verb in (Verb.THREADS, Verb.COROUTINES):
            return self.verb.value
        if self.verb is Verb.ENQUEUE:
            return "enqueue one by one" if self.batch == 1 else f"enqueue {self.batch:,} a call"
        return f"{self.verb.value}, batch {self.batch}"

    @property
    def warm_up(self) -> int:
        """Calls of every caller before the clock starts: after ten PostgreSQL has made up its mind about the plan."""
        return 2 if self.batch > 100 else 12

    @property
    def callers(self) -> int:
        """How many call at the same time, in all processes."""
        return self.processes if self.has_raw else CALLERS

    @property
    def total(self) -> int:
        """The tasks of the warm-up and of the timed part."""
        return self.tasks + self.callers * self.warm_up * self.batch

    @property
    def claims(self) -> bool:
        """True where tasks must be waiting before the clock starts."""
        return self.verb in (Verb.CLAIM, Verb.CYCLE)

    @property
    def has_raw(self) -> bool:
        """False where dibs is measured alone: a raw connection has nothing to share between callers."""
        return self.verb not in (Verb.THREADS, Verb.COROUTINES)


def scenarios(*, quick: bool) -> list[Scenario]:
    """All of them, for one engine; `quick` ones are smaller, and noisier."""
    return [
        Scenario(verb, batch, processes, _tasks(size, batch, processes, quick))
        for verb, batch, sizes in _SIZES
        for processes, size in sizes.items()
    ]


# Tasks in total by number of processes, chosen so that a run takes about half a second on two cores.
_SIZES: list[tuple[Verb, int, dict[int, int]]] = [
    (Verb.ENQUEUE, 1, {1: 800, MANY: 800}),
    (Verb.ENQUEUE, 1000, {1: 20_000, MANY: 20_000}),
    (Verb.THREADS, 1, {1: 3200}),
    (Verb.COROUTINES, 1, {1: 3200}),
    (Verb.CLAIM, 1, {1: 800, MANY: 800}),
    (Verb.CLAIM, 10, {1: 5000, MANY: 5000}),
    (Verb.CLAIM, 100, {1: 15_000, MANY: 20_000}),
    (Verb.CYCLE, 1, {1: 500, MANY: 500}),
    (Verb.CYCLE, 10, {1: 4000, MANY: 4000}),
    (Verb.CYCLE, 100, {1: 10_000, MANY: 15_000}),
]


def _tasks(size: int, batch: int, processes: int, quick: bool) -> int:
    # Every process enqueues whole batches, so at least one each.
    return max(size // 4, batch * processes) if quick else size
