"""History: the append-only record of what happened to tasks, and positions in it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dibs.model.task import Event, State


class HistoryEntry(msgspec.Struct, frozen=True):
    """One thing that happened to a task."""

    id: int
    task_id: int
    event: Event
    from_state: State | None
    to_state: State
    worker_id: str | None
    token: int
    by: str | None
    at: datetime
    detail: dict[str, Any] | None


class RecentHistory(msgspec.Struct, frozen=True):
    """The newest entries of a task's history, in order, and how many there are in all."""

    entries: list[HistoryEntry]
    count: int


class StoreEvent(msgspec.Struct, frozen=True):
    """An entry of the history, and of which queue and type its task is; None where the task was pruned."""

    entry: HistoryEntry
    queue: str | None
    type: str | None


HistoryGap = tuple[int, int]
"""The first and the last of ids that were not there when later ones were."""


class HistoryPosition(msgspec.Struct, frozen=True):
    """Which entries of the history were seen: those up to `last`, but for the gaps."""

    last: int = 0
    gaps: tuple[HistoryGap, ...] = ()
