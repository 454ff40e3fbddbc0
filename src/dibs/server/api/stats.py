"""Statistics: the store in numbers."""

from __future__ import annotations

from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.admin import OneStats

TAG = "queues"


@endpoint("GET", "/api/stats", Scope.READ, tag=TAG, answers={200: (OneStats, "As of now.")})
async def stats(call: Call) -> Answer:
    """Depth by state, queue and type, the age of the oldest pending task, throughput and latency."""
    return Answer(OneStats.from_model(await call.run(call.service.store.statistics.stats(call.caller.queues))))


ENDPOINTS = [stats]
