"""The stream of live statistics to an open page, for as long as its session is valid."""

from __future__ import annotations

from typing import Any

from dibs.errors import StoreError
from dibs.model.key import Scope
from dibs.server.auth import Caller
from dibs.server.dashboard import session
from dibs.server.dashboard.page import PageRequest, page
from dibs.server.event_stream import CHECK_INTERVAL, EventStream
from dibs.server.http import encode
from dibs.server.statistics.live_stats import LiveStats, StatsSubscriber


@page("GET", "/live", Scope.READ)
async def live(request: PageRequest) -> None:
    """Send the current statistics, then each update, as server-sent events."""
    stats = request.service.live_stats
    with stats.follow() as subscriber:
        async with request.disconnection() as disconnected:
            disconnected.add_done_callback(lambda _: subscriber.end())
            await _StatsStream(request, stats, subscriber).run()


def to_json(stats: LiveStats, caller: Caller) -> dict[str, Any]:
    """Return the statistics that the caller may see.

    `version` changes when a page may look different, `heartbeat` when a worker that serves one of the caller's queues
    sent a heartbeat. `age`: seconds since the numbers were read.
    """
    depths, queues = stats.depths, caller.queues
    heartbeat, latencies = depths.heartbeat(queues), stats.latencies
    return {
        "version": stats.version(queues),
        "heartbeat": None if heartbeat is None else heartbeat.timestamp(),
        "at": depths.at / 1e6,
        "age": round(stats.age, 1),
        "depth": depths.of(queues),
        "dead": depths.dead(queues),
        "rates": {name: round(rate, 3) for name, rate in stats.rates(queues).items()},
        "oldest": depths.oldest(queues),
        "workers": len(depths.active_workers.of(queues)),
        "wait": None if latencies is None or queues is not None else latencies.wait,
        "run": None if latencies is None or queues is not None else latencies.run,
    }


class _StatsStream(EventStream):
    def __init__(self, request: PageRequest, stats: LiveStats, subscriber: StatsSubscriber) -> None:
        super().__init__(request.http[2])
        self._request = request
        self._stats = stats
        self._subscriber = subscriber

    async def run(self) -> None:
        """Send events until the subscription, the session or the connection ends."""
        await self.begin()
        if self._stats.depths.known:
            await self.write(self._event())
        while not self._subscriber.ended:
            updated = await self._subscriber.wait(CHECK_INTERVAL)
            if not await self.continue_with(self._event() if updated else b""):
                self._subscriber.end()
        await self.end()

    def _event(self) -> bytes:
        return b"event: stats\ndata: %b\n\n" % encode(to_json(self._stats, self._request.caller))

    async def is_admitted(self) -> bool:
        """Return False if the session has ended, or if it has other rights than at the start of the stream."""
        try:
            visitor = await session.identify(self._request.service, self._request.http[0])
        except StoreError:  # while the database is unavailable, there is nothing to send either
            return True
        caller, before = visitor.caller, self._request.caller  # keys differ after each use: they record its time
        return caller is not None and (caller.user, caller.queues) == (before.user, before.queues)


PAGES = [live]
