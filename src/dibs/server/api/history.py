"""The history page by page, server-sent events, and wake-ups."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from dibs.errors import DibsError, StoreError
from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.server.event_stream import CHECK_INTERVAL, MEDIA_TYPE, EventStream
from dibs.server.events import EventFeed, EventSubscriber
from dibs.server.http import header
from dibs.server.service import Service
from dibs.wire.errors import RequestRefused
from dibs.wire.history import EventsQuery, HistoryQuery, WakeupsQuery, WholeHistory, Woken

TAG = "events"
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "description": "The id of the last event that the client received. The stream starts with the events after it.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
}


@endpoint(
    "GET",
    "/api/history",
    Scope.READ,
    tag=TAG,
    query=HistoryQuery,
    answers={200: (WholeHistory, "A page in order; empty after the last page.")},
)
async def history(call: Call) -> Answer:
    """Read the history of all tasks, in order, page by page."""
    call.caller.check_whole_store()
    query: HistoryQuery = call.query or HistoryQuery()
    entries = await call.run(call.service.store.history.history_after(query.after, query.limit))
    return Answer(WholeHistory.from_model(entries))


@endpoint(
    "GET",
    "/api/events",
    Scope.READ,
    tag=TAG,
    query=EventsQuery,
    headers=(LAST_EVENT_ID,),
    media=MEDIA_TYPE,
    answers={200: (str, "Server-sent events, until the client disconnects, the key is revoked or the server stops.")},
    refuses={410: "Events after this one were deleted by the retention of the history."},
)
async def events(call: Call) -> None:
    """Stream the events of all tasks as server-sent events.

    Each entry of the history is one event: `id` is the id of the entry, `event` is `task.` and the name of the event,
    `data` is the entry with the queue and type of its task. The stream starts now, or after the entry in the header
    `Last-Event-ID` or in `after` (0: the beginning of what is kept). Browsers send the header when they reconnect, so
    no event is missed. An id without an event is the position that the stream has reached.
    """
    query: EventsQuery = call.query or EventsQuery()
    after = _last_event_id(call, query.after)
    feed = call.service.feed
    if after:
        await feed.check(after)
    with feed.subscribe(query.to_model(call.caller.queues)) as subscriber:
        async with call.disconnection() as disconnected:
            disconnected.add_done_callback(lambda _: subscriber.end())
            await _Events(call, subscriber).run(feed, after)


class _Events(EventStream):
    """The stream of one request."""

    def __init__(self, call: Call, subscriber: EventSubscriber) -> None:
        super().__init__(call.http[2])
        self._call = call
        self._subscriber = subscriber

    async def run(self, feed: EventFeed, after: int | None) -> None:
        """Send the stream. The first line is sent when no later event can be missed."""
        self._feed = feed
        if after is None:
            await feed.join(self._subscriber)
        await self.begin(b"id: %d\n" % (feed.position if after is None else after))
        if after is not None:
            await self._catch_up(feed, after)
        while not self._subscriber.ended:
            await self._send_events(await self._subscriber.take(CHECK_INTERVAL))
        await self.end()

    async def _catch_up(self, feed: EventFeed, after: int) -> None:
        try:
            async with aclosing(feed.rejoin(self._subscriber, after)) as pages:
                async for frames in pages:
                    await self._send_events(frames)
        except DibsError:  # the client reconnects and gets the missed events then
            self._subscriber.end()

    async def _send_events(self, frames: list[bytes]) -> None:
        if not await self.continue_with(b"".join(frames)):
            self._subscriber.end()

    def keep_alive(self) -> bytes:
        """The position of the feed: everything up to it was sent. So a client whose filter rarely matches can
        resume."""
        if self._subscriber.after is None or self._subscriber.is_behind:
            return super().keep_alive()
        return b"id: %d\n\n" % max(self._feed.position, self._subscriber.after)

    async def is_admitted(self) -> bool:
        """Return False if the key of the client was revoked or has expired."""
        try:
            await self._call.service.check_admitted(self._call.http[0], self._call.caller)
        except StoreError:  # without the database there are no events either: keep the connection
            return True
        except RequestRefused:
            return False
        return True


def _last_event_id(call: Call, after: int | None) -> int | None:
    text = header(call.http[0], b"last-event-id")
    if text is None:
        return after
    if not text.isdigit() or len(text) > 19 or int(text) >= 2**63:
        raise RequestRefused(
            "bad_request", "Last-Event-ID must be the id of an event.", hint="Omit the header to start now."
        )
    return int(text)


@endpoint(
    "GET",
    "/api/wakeups",
    *Scope,
    tag=TAG,
    query=WakeupsQuery,
    answers={200: (Woken, "The store has changed, or the time is over.")},
)
async def wakeups(call: Call) -> Answer:
    """Wait until the store changes.

    The request returns at once if `process` is not the server process that answers. A wake-up is a hint: it may come
    without a change, and it does not say what changed.
    """
    query: WakeupsQuery = call.query or WakeupsQuery()
    if query.process == call.service.process and query.wait > 0:
        async with call.disconnection() as disconnected:
            await _wait_for_change(call.service, query, disconnected)
    return Answer(Woken(call.service.process, call.service.store.wakeups.generation))


async def _wait_for_change(service: Service, query: WakeupsQuery, disconnected: asyncio.Future[None]) -> None:
    """Wait until the store changes, the client disconnects, the server stops, or the time is over."""
    changed = asyncio.ensure_future(service.store.wakeups.wait_async(query.generation, query.wait))
    stopping = asyncio.ensure_future(service.stopping.wait())
    waits: set[asyncio.Future[Any]] = {changed, stopping, disconnected}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changed.cancel()
        stopping.cancel()


ENDPOINTS = [history, events, wakeups]
