"""The history: an append-only record of the events of tasks, and positions in it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dibs.model.task import Event, State


class HistoryEntry(msgspec.Struct, frozen=True):
    """An event of a task."""

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
    """An entry of the history with the queue and type of its task; None if the task was pruned."""

    entry: HistoryEntry
    queue: str | None
    type: str | None


HistoryGap = tuple[int, int]
"""The first and the last id of a range that was missing while later ids were visible."""


class HistoryPosition(msgspec.Struct, frozen=True):
    """The entries of the history that were read: all up to `last` except those in the gaps."""

    last: int = 0
    gaps: tuple[HistoryGap, ...] = ()
