"""Databases of different shapes for `bench.claims`: how many queues, types and attempts left, what is paused, what is
ahead."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from dibs import Dibs, NewTask

Options = dict[str, Any]
"""The filters of a claim."""

ATTEMPTS = 3
LEAST_ATTEMPTS = 2
"""What the filter by attempts demands: fewer than all tasks have, but those that are ahead by attempts."""

FIRST, LAST = 100, -100
"""Priorities of the tasks that are ahead; those of the others are between -10 and 10."""

FILL = 1000
"""Tasks that are enqueued in one call."""

FILTERS = ("none", "queues", "types", "both", "attempts")
SETTLING = 10_000
"""Rounds of upkeep until a database must have come to rest."""


@dataclass(frozen=True)
class Sizes:
    """How large the shapes are."""

    queues: int = 10_000
    named_queues: int = 100
    types: int = 500
    named_types: int = 5
    attempts: int = 10
    ahead: int = 100_000

    @classmethod
    def quick(cls) -> Sizes:
        """A small version, for tests."""
        return cls(queues=50, named_queues=20, types=10, named_types=5, attempts=4, ahead=300)


@dataclass(frozen=True)
class Spread:
    """The tasks of a database. Shapes with the same spread are copies of the same database.

    `ahead`: kinds of tasks that are the first in every order: so many (`ahead_count`) are older than all others and
    have the highest priority, as many are newer and have the lowest.
    """

    queues: int = 1
    types: int = 1
    attempts: int = 1
    ahead: tuple[tuple[tuple[str, Any], ...], ...] = ()
    ahead_count: int = 0

    def fill(self, url: str, tasks: int) -> None:
        """Make the tables and the tasks."""
        with Dibs(url) as app:
            app.migrate()
            for each in (self._ahead(FIRST), self._served(tasks), self._ahead(LAST)):
                while batch := list(islice(each, FILL)):
                    app.enqueue_many(batch)

    def _served(self, tasks: int) -> Iterator[NewTask]:
        """Type, attempts left and priority are independent of each other and of the queue."""
        chance = random.Random(1)
        for n in range(tasks):
            yield NewTask(
                f"type-{chance.randrange(self.types)}",
                {"number": n},
                queue=f"queue-{n % self.queues}",
                priority=chance.randint(-10, 10),
                max_attempts=ATTEMPTS if self.attempts == 1 else chance.randint(1, self.attempts),
            )

    def _ahead(self, priority: int) -> Iterator[NewTask]:
        for n in range(self.ahead_count if self.ahead else 0):
            kind = dict(self.ahead[n % len(self.ahead)])
            yield NewTask(**{"type": "type-0", "queue": "queue-0", "max_attempts": ATTEMPTS, **kind}, priority=priority)


@dataclass(frozen=True)
class Shape:
    """A spread, the queues that are paused in it, how many names a filter has, and which filters make a difference."""

    name: str
    spread: Spread
    paused: tuple[str, ...] = ()
    named_queues: int = 1
    named_types: int = 1
    filters: tuple[str, ...] = FILTERS

    def options(self, filter_name: str) -> Options:
        """The filter, as a claim takes it."""
        queues = {"queues": [f"queue-{n}" for n in range(self.named_queues)]}
        types = {"types": [f"type-{n}" for n in range(self.named_types)]}
        return {
            "none": {},
            "queues": queues,
            "types": types,
            "both": queues | types,
            "attempts": {"max_attempts_remaining": LEAST_ATTEMPTS},
        }[filter_name]

    def prepare(self, app: Dibs) -> None:
        """Pause what is paused, and let upkeep do what it does about that."""
        for queue in self.paused:
            app.pause(queue)
        settle(app)


def settle(app: Dibs) -> None:
    """Run upkeep until it has nothing left to do, and the tasks of paused queues are parked."""
    for _ in range(SETTLING):
        if not any(msgspec.structs.astuple(app.upkeep())) and _are_parked(app):
            return
    raise RuntimeError(f"Upkeep has not come to an end in {SETTLING:,} rounds.")


def _are_parked(app: Dibs) -> bool:
    return all(queue.parked >= queue.depth.get("pending", 0) for queue in app.queues() if queue.paused)


BASE = Shape("1 queue, 1 type, 1 number of attempts left", Spread())


def shapes(sizes: Sizes) -> list[Shape]:
    """All that are compared with the base."""
    queues = Spread(queues=sizes.queues)
    types = Spread(types=sizes.types)
    names = [f"queue-{n}" for n in range(sizes.queues)]
    return [
        Shape(f"{sizes.queues:,} queues", queues, named_queues=sizes.named_queues),
        Shape(f"{sizes.types:,} types, all named", types, named_types=sizes.types, filters=("none", "types", "both")),
        Shape(f"{sizes.types:,} types, {sizes.named_types} named", types, named_types=sizes.named_types,
              filters=("types", "both")),
        Shape(f"{sizes.attempts} numbers of attempts left", Spread(attempts=sizes.attempts)),
        Shape(
            f"{sizes.queues:,} queues, {sizes.types:,} types, {sizes.attempts} attempts left",
            Spread(sizes.queues, sizes.types, sizes.attempts),
            named_queues=sizes.named_queues, named_types=sizes.types,
        ),
        Shape(f"1 of {sizes.queues:,} queues paused", queues, paused=(names[0],), named_queues=sizes.named_queues),
        Shape(f"{sizes.queues // 2:,} of {sizes.queues:,} queues paused", queues, paused=tuple(names[::2]),
              named_queues=sizes.named_queues),
        *_with_tasks_ahead(sizes.ahead),
    ]  # fmt: skip


def _with_tasks_ahead(count: int) -> Iterator[Shape]:
    queue, type_name, attempts = (("queue", "other"),), (("type", "other"),), (("max_attempts", 1),)
    for name, ahead, filters in (
        ("of another type", (type_name,), ("types", "both")),
        ("of another queue", (queue,), ("queues", "both")),
        ("of another type or queue", (type_name, queue), ("both",)),
        ("with too few attempts left", (attempts,), ("attempts",)),
    ):
        yield Shape(f"{count:,} {name} ahead", Spread(ahead=ahead, ahead_count=count), filters=filters)
    yield Shape(f"{count:,} of a paused queue ahead", Spread(ahead=(queue,), ahead_count=count), paused=("other",))
