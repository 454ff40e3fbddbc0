"""The event feed: the history of all tasks, read once for all subscribers, in order and without gaps.

One reader follows the history while there are subscribers, and passes each entry to the subscribers that want it. A
subscriber that reconnects with the id of its last entry first gets the missed entries from the database, then joins at
the position of the reader.

A subscriber that reconnects names only the id of its last entry. So entries behind a gap in the ids are held back until
the gap is filled, or no transaction is left that could fill it: the feed reads with the `HistoryReader` with which
`app.events()` reads a database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dibs.errors import DibsError, EventsPruned, StoreUnavailable
from dibs.history_follower import PAGE, HistoryReader
from dibs.model.history import EventFilter, StoreEvent
from dibs.server.http import encode
from dibs.store.contract import DatabaseStore
from dibs.store.operation import drive_async
from dibs.wire.history import TaskEvent

logger = logging.getLogger("dibs.server")

READ_PAUSE = 0.05
"""Seconds between two reads, however many events there are."""

POLL_INTERVAL = 0.25
"""Seconds after which the reader reads without a wake-up: a wake-up can be lost, and not every change sends one."""

ERROR_PAUSE = 1.0
"""Seconds to pause after an error of the database."""

JOIN_TIMEOUT = 5.0
"""Seconds that a new subscriber waits for the reader to start."""

MAX_BACKLOG = 2000
"""Maximum number of undelivered entries; then the subscription ends, and the client reconnects after its last entry."""


@dataclass(eq=False, slots=True)
class EventSubscriber:
    """A subscriber. `after`: it has all entries up to this id; None until it has joined the reader."""

    filter: EventFilter
    after: int | None = None
    fresh: bool = False
    ended: bool = False
    _waiting: deque[bytes] = field(default_factory=deque)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def deliver(self, frame: bytes) -> None:
        """Add an event; end a subscription that is too far behind, to limit memory."""
        if len(self._waiting) >= MAX_BACKLOG:
            self._waiting.clear()
            self.end()
        elif not self.ended:
            self._waiting.append(frame)
            self._woken.set()

    @property
    def is_behind(self) -> bool:
        """True if there are undelivered entries."""
        return bool(self._waiting)

    def end(self) -> None:
        """End the subscription."""
        self.ended = True
        self._woken.set()

    async def take(self, timeout: float) -> list[bytes]:
        """Return the new events; none after `timeout` seconds or at the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        self._woken.clear()
        frames = list(self._waiting)
        self._waiting.clear()
        return frames


class EventFeed:
    """The reader of the history and its subscribers."""

    def __init__(self, store: DatabaseStore) -> None:
        self._store = store
        self._subscribers: set[EventSubscriber] = set()
        self._reader: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._history = HistoryReader(store, None)
        self._closed = False

    @contextmanager
    def subscribe(self, filter: EventFilter) -> Iterator[EventSubscriber]:
        """Yield a subscriber until the block ends."""
        subscriber = EventSubscriber(filter, ended=self._closed)
        self._subscribers.add(subscriber)
        if self._reader is None and not self._closed:
            self._reader = asyncio.create_task(self._read())
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)

    async def join(self, subscriber: EventSubscriber) -> None:
        """Deliver new events to the subscriber from now on."""
        await self._wait_for_reader(subscriber)
        subscriber.after, subscriber.fresh = self.position, True

    @property
    def position(self) -> int:
        """All entries up to this id were delivered."""
        return self._history.position

    async def check(self, after: int) -> None:
        """Raise EventsPruned if entries after this one were deleted. 0: the beginning of what is kept."""
        pruned_to = await self._store.run_async(self._store.history.pruned_to())
        if 0 < after < pruned_to:
            raise EventsPruned(after, pruned_to)

    async def rejoin(self, subscriber: EventSubscriber, after: int) -> AsyncGenerator[list[bytes], None]:
        """Yield pages of the events since entry `after`; then deliver new events to the subscriber.

        Between the last check and joining there is no await, so no event is missed.
        """
        await self._wait_for_reader(subscriber)
        pruned = await self._store.run_async(self._store.history.pruned_to()) if after == 0 else 0
        while not subscriber.ended and after < self.position:
            goal = self.position  # all entries up to this id are visible
            page = await self._store.run_async(self._store.history.events_page(after, PAGE, subscriber.filter.queues))
            if page.pruned_to > max(after, pruned):
                raise EventsPruned(after, page.pruned_to)
            after = min(page.events[-1].id, goal) if len(page.events) == PAGE else goal
            yield [frame(event) for event in page.events if event.id <= goal and subscriber.filter.include(event)]
        subscriber.after = after

    def close(self) -> None:
        """End all subscriptions."""
        self._closed = True
        for subscriber in self._subscribers:
            subscriber.end()

    async def closed(self) -> None:
        """Wait for the end of the reader."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _wait_for_reader(self, subscriber: EventSubscriber) -> None:
        """Wait until the reader has a position, or the subscription has ended."""
        deadline = time.monotonic() + JOIN_TIMEOUT
        while not self._started.is_set() and not subscriber.ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL):
                    await self._started.wait()
            if time.monotonic() > deadline:
                raise StoreUnavailable("The database does not answer.")

    # Reading

    async def _read(self) -> None:
        failing = False
        while self._subscribers and not self._closed:
            try:
                await self._read_once()
                failing = False
            except EventsPruned:
                self._restart()
            except Exception as error:
                if not failing:
                    logger.warning(
                        "the event feed cannot be read: %s", error, exc_info=not isinstance(error, DibsError)
                    )
                failing = True
                await asyncio.sleep(ERROR_PAUSE)
            await asyncio.sleep(READ_PAUSE)
        self._started.clear()
        self._reader = None  # without an await after the last check: a new subscriber starts a new reader

    async def _read_once(self) -> None:
        if not self._started.is_set():
            await self._begin()
        seen = self._store.wakeups.generation  # before reading: a change during the read ends the wait at once
        await self._read_on()
        await self._store.wakeups.wait_async(seen, POLL_INTERVAL)

    async def _begin(self) -> None:
        """Set the position to the end of the history."""
        self._history = HistoryReader(self._store, None)
        await drive_async(self._history.begin(), self._store.run_async)
        self._started.set()

    async def _read_on(self) -> None:
        while True:
            self._deliver(await drive_async(self._history.read(), self._store.run_async))
            if self._history.at_end:
                return

    def _restart(self) -> None:
        """Go on at the end of the history after entries were pruned that nobody has read. The subscribers reconnect,
        and are told which entries are missing."""
        self._started.clear()
        for subscriber in self._subscribers:
            subscriber.end()

    def _deliver(self, events: list[StoreEvent]) -> None:
        for event in events:
            recipients = [each for each in self._subscribers if self._wants(event, each)]
            content = frame(event) if recipients else b""
            for subscriber in recipients:
                subscriber.deliver(content)

    def _wants(self, event: StoreEvent, subscriber: EventSubscriber) -> bool:
        """Return True if the subscriber has joined, does not have the entry yet, and wants it.

        A new subscriber does not get entries from before the start of the reader, which are read only to find gaps.
        """
        entry_id = event.entry.id
        if (
            subscriber.after is None
            or entry_id <= subscriber.after
            or (subscriber.fresh and entry_id in self._history.at_start)
        ):
            return False
        return subscriber.filter.include(event)


def frame(event: StoreEvent) -> bytes:
    """Return an entry as a server-sent event. The JSON has no line breaks, so it is one line of data."""
    entry = event.entry
    return b"id: %d\nevent: task.%b\ndata: %b\n\n" % (
        entry.id,
        entry.event.encode(),
        encode(TaskEvent.from_model(event)),
    )
