"""Statistics: the store in numbers."""

from __future__ import annotations

import msgspec

from dibs import shape
from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint

TAG = "queues"


class OneStats(msgspec.Struct, frozen=True):
    """The store in numbers."""

    stats: shape.StatsShape


@endpoint("GET", "/api/stats", Scope.READ, tag=TAG, answers={200: (OneStats, "As of now.")})
async def stats(call: Call) -> Answer:
    """Depth by state, queue and type, the age of the oldest pending task, throughput and latency."""
    return Answer(OneStats(shape.stats(await call.run(call.service.store.statistics.stats(call.caller.queues)))))


ENDPOINTS = [stats]
