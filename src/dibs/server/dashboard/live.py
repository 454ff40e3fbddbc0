"""Live: the pulse, sent to whoever has a page open, for as long as the page is open and its key may look."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from dibs.errors import StoreError
from dibs.key import Scope
from dibs.server.api.events import CHECK_EVERY, HEADERS, KEEP_ALIVE, RETRY, STALL
from dibs.server.auth import Caller
from dibs.server.dashboard import session
from dibs.server.dashboard.page import Visit, page
from dibs.server.http import Gone, encode
from dibs.server.pulse import Follower, Pulse


@page("GET", "/live", Scope.READ)
async def live(visit: Visit) -> None:
    """Each look of the pulse as one event, the present one first."""
    pulse = visit.service.pulse
    with pulse.follow() as follower:
        async with visit.departure() as gone:
            gone.add_done_callback(lambda _: follower.end())
            await _Stream(visit, pulse, follower).run()


def tell(pulse: Pulse, caller: Caller) -> dict[str, Any]:
    """What the caller may know of the pulse. `version` is another one when a page may look different, `heartbeat` when
    a worker was heard of that serves a queue of the caller's; `age`: for how many seconds all this has been known."""
    board, queues = pulse.board, caller.queues
    heartbeat, latencies = board.heartbeat(queues), pulse.latencies
    return {
        "version": pulse.version(queues),
        "heartbeat": None if heartbeat is None else heartbeat.timestamp(),
        "at": board.at / 1e6,
        "age": round(pulse.age, 1),
        "depth": board.of(queues),
        "rates": {name: round(rate, 3) for name, rate in pulse.rates(queues).items()},
        "oldest": board.oldest(queues),
        "workers": len(board.living.of(queues)),
        "wait": None if latencies is None or queues is not None else latencies.wait,
        "run": None if latencies is None or queues is not None else latencies.run,
    }


class _Stream:
    """What one page is sent."""

    def __init__(self, visit: Visit, pulse: Pulse, follower: Follower) -> None:
        self._visit = visit
        self._pulse = pulse
        self._follower = follower
        self._send = visit.http[2]
        self._spoke_at = self._checked_at = time.monotonic()

    async def run(self) -> None:
        """From the first line to the last."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await self._say(RETRY)
        if self._pulse.board.known:
            await self._tell()
        while not self._follower.ended:
            await self._go_on(await self._follower.wait(CHECK_EVERY))
        await self._say(b"", more=False)

    async def _go_on(self, beat: bool) -> None:
        if beat:
            await self._tell()
        elif time.monotonic() - self._spoke_at >= KEEP_ALIVE:
            await self._say(b": keep-alive\n\n")
        if time.monotonic() - self._checked_at >= CHECK_EVERY:
            self._checked_at = time.monotonic()
            if not await self._still_admitted():
                self._follower.end()

    async def _tell(self) -> None:
        told = tell(self._pulse, self._visit.caller)
        await self._say(b"event: pulse\ndata: %b\n\n" % encode(told))

    async def _still_admitted(self) -> bool:
        """False once the session is over, or its key may see something else than when the stream began."""
        try:
            visitor = await session.recognise(self._visit.service, self._visit.http[0])
        except StoreError:  # while the database is away there is nothing to tell either
            return True
        caller = visitor.caller
        return caller is not None and caller.queues == self._visit.caller.queues

    async def _say(self, content: bytes, *, more: bool = True) -> None:
        self._spoke_at = time.monotonic()
        try:
            async with asyncio.timeout(STALL):
                await self._send({"type": "http.response.body", "body": content, "more_body": more})
        except TimeoutError:
            raise Gone from None


PAGES = [live]
