"""The history as JSON: its entries, pages of it, the events that a server streams, and wake-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import msgspec
from msgspec import Meta, field

from dibs.errors import InvalidValue
from dibs.model import history as model_history
from dibs.model.claim import MAX_BATCH
from dibs.model.history import StoreEvent
from dibs.model.task import Event, State
from dibs.wire.errors import RequestRefused
from dibs.wire.fields import MAX_WAIT, EntryId, JsonObject, Name, Query, Timestamp, to_datetime, to_text

_ANY_EVENT = "|".join(Event)


class EntryFields(msgspec.Struct, frozen=True):
    """The common fields of an entry of the history and an event."""

    id: int
    task_id: int
    event: Event
    from_state: State | None
    to_state: State
    worker_id: str | None
    token: int
    by: str | None
    at: Timestamp
    detail: JsonObject | None

    def entry(self) -> model_history.HistoryEntry:
        """The entry of the history."""
        return model_history.HistoryEntry(
            id=self.id,
            task_id=self.task_id,
            event=self.event,
            from_state=self.from_state,
            to_state=self.to_state,
            worker_id=self.worker_id,
            token=self.token,
            by=self.by,
            at=to_datetime(self.at),
            detail=self.detail,
        )


class HistoryEntry(EntryFields, frozen=True):
    """An entry of the history: one transition of a task."""

    @classmethod
    def from_model(cls, entry: model_history.HistoryEntry) -> Self:
        """The entry as JSON."""
        return cls(
            id=entry.id,
            task_id=entry.task_id,
            event=entry.event,
            from_state=entry.from_state,
            to_state=entry.to_state,
            worker_id=entry.worker_id,
            token=entry.token,
            by=entry.by,
            at=to_text(entry.at),
            detail=entry.detail,
        )

    def to_model(self) -> model_history.HistoryEntry:
        """The entry."""
        return self.entry()


class TaskEvent(EntryFields, frozen=True):
    """A transition of a task, with the queue and type of the task; both are null after the task was pruned."""

    queue: str | None
    type: str | None = field(name="task_type")

    @classmethod
    def from_model(cls, event: StoreEvent) -> Self:
        """The event as JSON."""
        entry = event.entry
        return cls(
            id=entry.id,
            task_id=entry.task_id,
            event=entry.event,
            from_state=entry.from_state,
            to_state=entry.to_state,
            worker_id=entry.worker_id,
            token=entry.token,
            by=entry.by,
            at=to_text(entry.at),
            detail=entry.detail,
            queue=event.queue,
            type=event.type,
        )

    def to_model(self) -> StoreEvent:
        """The event."""
        return StoreEvent(entry=self.entry(), queue=self.queue, type=self.type)


class OneHistory(msgspec.Struct, frozen=True):
    """The history of a task, in order."""

    history: list[HistoryEntry]

    @classmethod
    def from_model(cls, entries: Sequence[model_history.HistoryEntry]) -> Self:
        """The entries as an answer."""
        return cls(history=[HistoryEntry.from_model(entry) for entry in entries])

    def to_model(self) -> list[model_history.HistoryEntry]:
        """The entries."""
        return [entry.to_model() for entry in self.history]


class WholeHistory(OneHistory, frozen=True):
    """A page of the history of all tasks."""


class HistoryQuery(Query, frozen=True):
    """The page to read."""

    after: Annotated[EntryId, Meta(description="The id of the last entry of the page before.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH, description="Entries on a page.")] = MAX_BATCH


class EventsQuery(Query, frozen=True):
    """The events to send."""

    kinds: (
        Annotated[
            str,
            Meta(
                pattern=f"^({_ANY_EVENT})(,({_ANY_EVENT}))*$",
                description=f"Some of {', '.join(Event)}, separated by commas; by default all.",
                examples=["completed,failed"],
            ),
        ]
        | None
    ) = None
    queue: Annotated[Name, Meta(description="Only events of tasks in this queue.")] | None = None
    type: Annotated[Name, Meta(description="Only events of tasks of this type.")] | None = field(
        name="task_type", default=None
    )
    task_id: Annotated[EntryId, Meta(description="Only events of this task.")] | None = None
    after: Annotated[EntryId, Meta(description="As the header Last-Event-ID, which takes precedence.")] | None = None

    @classmethod
    def from_model(cls, filter: model_history.EventFilter) -> Self:
        """The query for the events that pass the filter."""
        kinds = None if filter.kinds is None else ",".join(filter.kinds)
        return cls(kinds=kinds, queue=filter.queue, type=filter.type, task_id=filter.task_id)

    def to_model(self, queues: Sequence[str] | None = None) -> model_history.EventFilter:
        """The filter for the requested events. `queues`: the only queues that the caller may see; None for all."""
        kinds = None if self.kinds is None else self.kinds.split(",")
        try:
            return model_history.EventFilter(
                kinds=kinds, queue=self.queue, type=self.type, task_id=self.task_id, queues=queues
            )
        except InvalidValue as error:  # the pattern lets a line break at the end pass
            raise RequestRefused("bad_request", error.message) from None


class WakeupsQuery(Query, frozen=True):
    """The last generation that the client knows, and the seconds to wait for a newer one."""

    process: Annotated[str, Meta(max_length=64, description="`process` of the last answer.")] | None = None
    generation: Annotated[int, Meta(ge=0, le=2**63 - 1, description="`generation` of the last answer.")] = 0
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for a change.")] = field(
        name="wait_seconds", default=0
    )


class Woken(msgspec.Struct, frozen=True):
    """The number of changes that this server process has noticed. Each process counts from 0."""

    process: str
    generation: int

    def to_model(self) -> Self:
        """The wake-up itself: the model has no other type for it."""
        return self
