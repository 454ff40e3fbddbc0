"""The history: an append-only record of the events of tasks, and positions in it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.errors import InvalidValue
from dibs.json_values import check_name
from dibs.model.checks import check_integer, check_names
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
    """An event of the store: an entry of the history with the queue and type of its task; both are None if the task was
    pruned."""

    entry: HistoryEntry
    queue: str | None
    type: str | None

    @property
    def id(self) -> int:
        """The position of the event in the history: `app.events(after=event.id)` continues after it."""
        return self.entry.id

    @property
    def kind(self) -> Event:
        """What happened: "enqueued", "claimed", "completed" and so on."""
        return self.entry.event

    @property
    def task_id(self) -> int:
        """The task to which it happened."""
        return self.entry.task_id

    @property
    def at(self) -> datetime:
        """When it happened, by the clock of the database."""
        return self.entry.at


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a consumer wants, checked on construction; None for all. `queues`: the only queues that the consumer
    may see. A filter by queue or type excludes the events of pruned tasks, whose queue and type are not known."""

    kinds: Sequence[str] | None = None
    queue: str | None = None
    type: str | None = None
    task_id: int | None = None
    queues: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_names(self.kinds, "kinds", "The kind of event")
        if unknown := sorted(set(self.kinds or ()) - {each.value for each in Event}):
            raise InvalidValue(f"{unknown[0]!r} is not a kind of event.", hint=f"Use some of: {', '.join(Event)}.")
        if self.queue is not None:
            check_name(self.queue, "The queue")
        if self.type is not None:
            check_name(self.type, "The type")
        if self.task_id is not None:
            check_integer(self.task_id, "task_id", 0, 2**63 - 1)

    def include(self, event: StoreEvent) -> bool:
        """Return True if the event matches the filter."""
        return (
            (self.kinds is None or event.kind in self.kinds)
            and (self.queue is None or event.queue == self.queue)
            and (self.type is None or event.type == self.type)
            and (self.task_id is None or event.task_id == self.task_id)
            and (self.queues is None or event.queue in self.queues)
        )


class EventPage(msgspec.Struct, frozen=True):
    """Events in the order of their ids. Entries up to `pruned_to` may have been deleted by their retention."""

    events: list[StoreEvent]
    pruned_to: int


HistoryGap = tuple[int, int]
"""The first and the last id of a range that was missing while later ids were visible."""


class HistoryPosition(msgspec.Struct, frozen=True):
    """The entries of the history that were read: all up to `last` except those in the gaps."""

    last: int = 0
    gaps: tuple[HistoryGap, ...] = ()
