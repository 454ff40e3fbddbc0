"""Wake-ups: a hint that something changed, for clients that wait for something other than a task to claim."""

from __future__ import annotations

import asyncio
from typing import Any

from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.server.service import Service
from dibs.wire.history import WakeupsQuery, Woken

TAG = "events"


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


ENDPOINTS = [wakeups]
