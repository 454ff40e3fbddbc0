"""The indexes of streams: created when claims need them, because every new task has to enter each of them.

Every store has the indexes of all its claimable tasks, by priority and by age, in which a claim scans the head of the
store. A claim that does not find its tasks there needs the tasks of its types, of its queues, of the pairs of both, or
with enough attempts left: a stream of each. Without an index of streams it reads the tasks of the store to the end,
which is right and slow. If claims have needed an index NEEDED times, one of them stops before it has claimed anything
(IndexMissing), and the procedure that runs the claim provides the index.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

from dibs.model.claim import Order
from dibs.store.contract import IndexMissing
from dibs.store.operation import Statement, Statements

NEEDED = 4
"""Claims of a process that need an index before the index is provided."""

LOOK_EVERY = 1.0
"""Seconds after which a claim that needs an index looks again whether it exists."""

PROVIDE_EVERY = 60.0
"""Seconds after which an index that was provided and does not exist is provided again."""


class StreamFamily(NamedTuple):
    """A kind of streams: the tasks with the same value in each of these columns."""

    name: str
    columns: tuple[str, ...]


TYPE, QUEUE = StreamFamily("type", ("type",)), StreamFamily("queue", ("queue",))
PAIR, ATTEMPTS = StreamFamily("pair", ("queue", "type")), StreamFamily("attempts", ("attempts_left",))
FAMILIES = (TYPE, QUEUE, PAIR, ATTEMPTS)

RANDOM_INDEXES = {Order.RANDOM: "dibs_tasks_by_random", Order.WEIGHTED: "dibs_tasks_by_weight"}
"""The index of the whole store in each random order."""

BY_AGE = (Order.FIFO, Order.LIFO)


def stream_index(family: StreamFamily, order: str) -> str:
    """The name of the index that the streams of a family need in an order."""
    if order in RANDOM_INDEXES:
        return f"{RANDOM_INDEXES[Order(order)]}_{family.name}"
    return f"dibs_tasks_by_{family.name}" + ("_age" if order in BY_AGE else "")


STREAM_INDEXES = (
    *(stream_index(family, order) for order in (Order.PRIORITY, Order.FIFO) for family in FAMILIES),
    *(stream_index(family, order) for order in RANDOM_INDEXES for family in (TYPE, QUEUE)),
)
"""The names of all indexes of streams."""


class StreamIndexes:
    """The indexes of streams that this process knows of, and those that its claims have needed in vain.

    Threads may use it at the same time: what is lost is a count, or a look."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._needed: Counter[str] = Counter()
        self._provided: dict[str, float] = {}
        self._look_at = 0.0
        self.missing: str | None = None
        """The index that is to be provided before the next claim."""

    def is_known(self, name: str) -> bool:
        """True if the index existed at the last look."""
        return name in self._known

    def find(self, name: str) -> Statements[bool]:
        """True if the index exists. A claim needs it: see IndexMissing."""
        if name in self._known:
            return True
        if time.monotonic() >= self._look_at:
            yield from self.look()
            if name in self._known:
                return True
        self._needed[name] += 1
        if self._needed[name] >= NEEDED and time.monotonic() >= self._provided.get(name, 0.0) + PROVIDE_EVERY:
            self.missing = name
        return False

    def look(self) -> Statements[None]:
        """Read which indexes exist."""
        self._known = yield from existing_indexes()
        self._look_at = time.monotonic() + LOOK_EVERY

    def look_soon(self) -> None:
        """Indexes may have been built: the next claim that needs one looks."""
        self._look_at = 0.0

    def forget(self) -> None:
        """An index that was known does not exist: somebody has dropped it."""
        self._known, self._look_at = frozenset(), 0.0

    def refuse_if_missing(self) -> None:
        """Raises IndexMissing if an index is to be provided. A claim calls this before it has claimed anything."""
        if self.missing is not None:
            raise IndexMissing(self.missing)

    def provided(self, name: str) -> None:
        """The index exists, or was requested."""
        self._provided[name] = time.monotonic()
        self._needed.pop(name, None)
        self.missing, self._look_at = None, 0.0


def existing_indexes() -> Statements[frozenset[str]]:
    """The indexes of the tasks that can be used."""
    rows = yield Statement("claim_indexes")
    return frozenset(row[0] for row in rows)
