"""Upkeep: what a round did, where a pass of pruning stands, and what `dibs doctor` reports."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from dibs.errors import InvalidValue

BATCH = 500

OLDEST, NEWEST = 0, 2**63 - 1
Moment = Annotated[int, Meta(ge=OLDEST, le=NEWEST)]
"""Microseconds since 1970 by the clock of the database."""


class PrunePosition(msgspec.Struct, frozen=True):
    """How far a pass of pruning has come. `rules`: the rules that it began with, as a checksum; under other rules the
    pass begins again. `at`: up to when finished tasks were read, by state. `done`: the complete parts of the pass."""

    rules: int
    at: dict[str, Moment] = {}
    done: tuple[str, ...] = ()

    def resumed(self) -> PrunePosition:
        """The position for the next round: unfinished walks go on, complete parts begin again."""
        return PrunePosition(self.rules, self.at)

    def write(self) -> str:
        """The position as text, for a client."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> PrunePosition:
        """The position in such a text."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeError):
            hint = "Pass `next` of the answer before, or nothing to begin at the oldest records."
            raise InvalidValue("The position to prune from is not valid.", hint=hint) from None


class Pruned(msgspec.Struct, frozen=True):
    """One batch of pruning: the number of rows deleted, and the position for the next batch (None: the pass is
    complete)."""

    count: int
    next: PrunePosition | None = None


class Upkept(msgspec.Struct, frozen=True):
    """What one round of upkeep did."""

    promoted: int = 0
    recovered: int = 0
    pruned: int = 0
    history_pruned: int = 0
    workers_pruned: int = 0
    ticked: int = 0
    expired: int = 0
    finalized: int = 0
    mended: int = 0


class Verdict(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    message: str
    hint: str = ""
