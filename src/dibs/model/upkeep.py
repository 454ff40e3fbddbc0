"""Upkeep: the result of a round, the position of a pruning pass, and the checks of `dibs doctor`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from dibs.errors import InvalidValue

BATCH = 500

OLDEST, NEWEST = 0, 2**63 - 1
Micros = Annotated[int, Meta(ge=OLDEST, le=NEWEST)]
"""Microseconds since 1970 by the clock of the database."""


class PrunePosition(msgspec.Struct, frozen=True):
    """The position of a pruning pass. `rules`: a checksum of the rules at its start; after a change of the rules the
    pass starts again. `at`: the time up to which finished tasks were read, by state. `done`: the complete parts of the
    pass."""

    rules: int
    at: dict[str, Micros] = {}
    done: tuple[str, ...] = ()

    def resumed(self) -> PrunePosition:
        """The position for the next round: incomplete parts continue, complete parts start again."""
        return PrunePosition(self.rules, self.at)

    def write(self) -> str:
        """The position as text, for a client."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> PrunePosition:
        """The position in a text of `write`."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeError):
            hint = "Pass `next` of the previous response, or nothing to start with the oldest records."
            raise InvalidValue("The position to prune from is not valid.", hint=hint) from None


class Pruned(msgspec.Struct, frozen=True):
    """One batch of pruning: the number of rows deleted, and the position for the next batch (None: the pass is
    complete)."""

    count: int
    next: PrunePosition | None = None


class PauseScope(StrEnum):
    """What a pause holds back: the tasks of a queue, or the tasks of a type."""

    QUEUE = "queue"
    TYPE = "type"

    @property
    def other(self) -> PauseScope:
        """The other scope: a task has a pause of its queue and one of its type."""
        return PauseScope.TYPE if self is PauseScope.QUEUE else PauseScope.QUEUE


class Pause(NamedTuple):
    """The name of a pause: of this queue, or of this type."""

    scope: PauseScope
    name: str


class PausesToPark(msgspec.Struct, frozen=True):
    """Pauses whose tasks upkeep must park or unpark. `paused`: pauses with tasks that are not parked. `resumed`: pauses
    that have ended and may have parked tasks. `missing_index`: the index without which upkeep finds only some of the
    tasks to park."""

    paused: list[Pause]
    resumed: list[Pause]
    missing_index: str | None = None


class Upkept(msgspec.Struct, frozen=True):
    """The number of rows that one round of upkeep changed, by kind."""

    promoted: int = 0
    recovered: int = 0
    pruned: int = 0
    history_pruned: int = 0
    workers_pruned: int = 0
    ticked: int = 0
    expired: int = 0
    workflows_expired: int = 0
    finalized: int = 0
    mended: int = 0


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True):
    """A check of `dibs doctor`, with its result."""

    name: str
    verdict: Verdict
    message: str
    hint: str = ""
