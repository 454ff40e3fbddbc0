"""Tallies in SQLite: one writes at a time, so the history has no gaps; every read is a snapshot anyway."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.store.operation import Statement, Steps, limited
from dibs.store.operations.tallying import Position, Progress, moved


def standing_at() -> Steps[Position]:
    """See Tallying."""
    [(last,)] = yield Statement("last_entry")
    return Position(last)


def going_on(positions: Sequence[Position], limit: int) -> Steps[list[Progress]]:
    """See Tallying."""
    made = []
    for position in positions:
        rows = yield Statement("moves", {"after": position.last}, words=limited(limit))
        made.append(moved(position, rows, limit))
    return made
