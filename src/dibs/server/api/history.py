"""What happened: the history page by page, events as they happen, and hints that something changed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from dibs.errors import DibsError, StoreError
from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.server.event_stream import CHECK_INTERVAL, MEDIA_TYPE, EventStream
from dibs.server.events import EventFeed, EventFilter, EventSubscriber
from dibs.server.http import header
from dibs.server.service import Service
from dibs.wire.errors import RequestRefused
from dibs.wire.history import EventsQuery, HistoryQuery, WakeupsQuery, WholeHistory, Woken

TAG = "events"
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "description": "The id of the last event that was heard; what came after it is told first.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
}


@endpoint(
    "GET",
    "/api/history",
    Scope.READ,
    tag=TAG,
    query=HistoryQuery,
    answers={200: (WholeHistory, "In order; empty after the last page.")},
)
async def history(call: Call) -> Answer:
    """Everything that happened to all tasks, in order."""
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
    answers={200: (str, "Server-sent events, until the client leaves, the key is revoked or the server stops.")},
)
async def events(call: Call) -> None:
    """Everything that happens to tasks, as server-sent events.

    Each entry of the history is one event: `id` is the entry's id, `event` is `task.` and what happened, `data` is the
    entry with the queue and type of its task. It begins now, or after the entry named by the header `Last-Event-ID`,
    which browsers send by themselves when they connect again: then nothing is missed.
    """
    after = _last_event_id(call)
    query: EventsQuery = call.query or EventsQuery()
    feed = call.service.feed
    with feed.subscribe(EventFilter(query.to_model(), call.caller.queues)) as follower:
        async with call.departure() as gone:
            gone.add_done_callback(lambda _: follower.end())
            await _Events(call, follower).run(feed, after)


class _Events(EventStream):
    def __init__(self, call: Call, follower: EventSubscriber) -> None:
        super().__init__(call.http[2])
        self._call = call
        self._follower = follower

    async def run(self, feed: EventFeed, after: int | None) -> None:
        """From the first line to the last. Who has read the first gets everything that happens after it."""
        if after is None:
            await feed.join(self._follower)
        await self.begin()
        if after is not None:
            await self._catch_up(feed, after)
        while not self._follower.ended:
            await self._tell(await self._follower.take(CHECK_INTERVAL))
        await self.end()

    async def _catch_up(self, feed: EventFeed, after: int) -> None:
        try:
            async with aclosing(feed.rejoin(self._follower, after)) as pages:
                async for frames in pages:
                    await self._tell(frames)
        except DibsError:  # the client comes back, and is brought up to date then
            self._follower.end()

    async def _tell(self, frames: list[bytes]) -> None:
        if not await self.continue_with(b"".join(frames)):
            self._follower.end()

    async def still_admitted(self) -> bool:
        """See Stream."""
        try:
            await self._call.service.check_still_admitted(self._call.http[0], self._call.caller)
        except StoreError:  # while the database is away there is nothing to tell either
            return True
        except RequestRefused:
            return False
        return True


def _last_event_id(call: Call) -> int | None:
    text = header(call.http[0], b"last-event-id")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 19 or int(text) >= 2**63:
        raise RequestRefused(
            "bad_request", "Last-Event-ID must be the id of an event.", hint="Leave it out to begin now."
        )
    return int(text)


@endpoint(
    "GET",
    "/api/wakeups",
    *Scope,
    tag=TAG,
    query=WakeupsQuery,
    answers={200: (Woken, "Something changed, or the time is over.")},
)
async def wakeups(call: Call) -> Answer:
    """Wait until something changes.

    Answered at once where `process` is not the process that answers. A hint: it may come for nothing, and it tells
    nothing about what changed.
    """
    query: WakeupsQuery = call.query or WakeupsQuery()
    if query.process == call.service.process and query.wait > 0:
        async with call.departure() as gone:
            await _change(call.service, query, gone)
    return Answer(Woken(call.service.process, call.service.store.wakeups.generation))


async def _change(service: Service, query: WakeupsQuery, gone: asyncio.Future[None]) -> None:
    """Until something changes, the client leaves, the server stops, or the time is over."""
    changed = asyncio.ensure_future(service.store.wakeups.wait_async(query.generation, query.wait))
    stopping = asyncio.ensure_future(service.stopping.wait())
    waits: set[asyncio.Future[Any]] = {changed, stopping, gone}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changed.cancel()
        stopping.cancel()


ENDPOINTS = [history, events, wakeups]
