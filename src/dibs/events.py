"""`app.events()`: yield the events of a store in order. A database is read; a server sends a stream of events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, closing
from typing import Any, cast

from dibs.errors import InvalidValue
from dibs.history_follower import HistoryReader, wanted
from dibs.model.checks import check_integer
from dibs.model.history import EventFilter, StoreEvent
from dibs.store.contract import DatabaseStore, ServedStore, Store
from dibs.store.operation import drive, drive_async

POLL_INTERVAL = 0.25
"""Seconds after which the history is read without a wake-up: a wake-up can be lost, and not every change sends one."""


def follow(store: Store, run: Callable[[Any], Any], filter: EventFilter, after: int | None) -> Iterator[StoreEvent]:
    """Yield the events after the entry `after` (None: only new ones), and wait for the next, until the store is closed.
    `run`: runs an operation on the store."""
    if store.served:
        with closing(cast("ServedStore", store).stream_events(filter, after)) as events:
            yield from events
        return
    reader, wakeups = HistoryReader(cast("DatabaseStore", store), after), store.wakeups
    while not wakeups.closed:
        seen = wakeups.generation  # before reading: a change during the read ends the wait at once
        yield from wanted(drive(reader.read(), run), reader, filter)
        if reader.at_end:
            wakeups.wait(seen, POLL_INTERVAL)


async def follow_async(
    store: Store, run: Callable[[Any], Awaitable[Any]], filter: EventFilter, after: int | None
) -> AsyncIterator[StoreEvent]:
    """`follow`, without blocking the event loop."""
    if store.served:
        async with aclosing(cast("ServedStore", store).stream_events_async(filter, after)) as events:
            async for event in events:
                yield event
        return
    reader, wakeups = HistoryReader(cast("DatabaseStore", store), after), store.wakeups
    while not wakeups.closed:
        seen = wakeups.generation
        for event in wanted(await drive_async(reader.read(), run), reader, filter):
            yield event
        if reader.at_end:
            await wakeups.wait_async(seen, POLL_INTERVAL)


def check_after(after: Any, connection: Any) -> None:
    """Raise InvalidValue for an invalid position, or for a client that works in a transaction of its user."""
    if after is not None:
        check_integer(after, "after", 0, 2**63 - 1)
    if connection is not None:
        raise InvalidValue("Events cannot be read in your transaction.", hint="Use the client without `on`.")
