"""Tallies in SQLite: one writes at a time, so the history has no gaps; every read is a snapshot anyway."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.model.history import HistoryPosition
from dibs.model.statistics import HistoryChanges
from dibs.store.operation import Statement, Steps, limited
from dibs.store.operations.tallying import moved


def standing_at() -> Steps[HistoryPosition]:
    """See Tallying."""
    [(last,)] = yield Statement("last_entry")
    return HistoryPosition(last)


def going_on(positions: Sequence[HistoryPosition], limit: int) -> Steps[list[HistoryChanges]]:
    """See Tallying."""
    made = []
    for position in positions:
        rows = yield Statement("moves", {"after": position.last}, words=limited(limit))
        made.append(moved(position, rows, limit))
    return made
