"""Live: the pulse, sent to whoever has a page open, for as long as the page is open and its key may look."""

from __future__ import annotations

from typing import Any

from dibs.errors import StoreError
from dibs.model.key import Scope
from dibs.server.auth import Caller
from dibs.server.dashboard import session
from dibs.server.dashboard.page import Visit, page
from dibs.server.event_stream import CHECK_EVERY, Stream
from dibs.server.http import encode
from dibs.server.statistics.live_stats import Follower, Pulse


@page("GET", "/live", Scope.READ)
async def live(visit: Visit) -> None:
    """Each look of the pulse as one event, the present one first."""
    pulse = visit.service.pulse
    with pulse.follow() as follower:
        async with visit.departure() as gone:
            gone.add_done_callback(lambda _: follower.end())
            await _Beats(visit, pulse, follower).run()


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
        "dead": board.dead(queues),
        "rates": {name: round(rate, 3) for name, rate in pulse.rates(queues).items()},
        "oldest": board.oldest(queues),
        "workers": len(board.living.of(queues)),
        "wait": None if latencies is None or queues is not None else latencies.wait,
        "run": None if latencies is None or queues is not None else latencies.run,
    }


class _Beats(Stream):
    def __init__(self, visit: Visit, pulse: Pulse, follower: Follower) -> None:
        super().__init__(visit.http[2])
        self._visit = visit
        self._pulse = pulse
        self._follower = follower

    async def run(self) -> None:
        """From the first line to the last."""
        await self.begin()
        if self._pulse.board.known:
            await self.say(self._told())
        while not self._follower.ended:
            beat = await self._follower.wait(CHECK_EVERY)
            if not await self.go_on(self._told() if beat else b""):
                self._follower.end()
        await self.end()

    def _told(self) -> bytes:
        return b"event: pulse\ndata: %b\n\n" % encode(tell(self._pulse, self._visit.caller))

    async def still_admitted(self) -> bool:
        """False once the session is over, or its key may see something else than when the stream began."""
        try:
            visitor = await session.recognise(self._visit.service, self._visit.http[0])
        except StoreError:  # while the database is away there is nothing to tell either
            return True
        caller = visitor.caller
        return caller is not None and caller.queues == self._visit.caller.queues


PAGES = [live]
