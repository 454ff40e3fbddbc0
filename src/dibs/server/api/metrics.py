"""Metrics: the store in numbers, for Prometheus."""

from __future__ import annotations

from dibs.key import Scope
from dibs.server.api.workers import seen_workers
from dibs.server.endpoint import Call, endpoint
from dibs.server.http import answer_bytes
from dibs.server.metrics import Snapshot

TAG = "health"
FORMAT = b"text/plain; version=0.0.4; charset=utf-8"
"""The format that every Prometheus reads; nothing here needs a newer one."""


@endpoint(
    "GET",
    "/metrics",
    Scope.READ,
    tag=TAG,
    media="text/plain",
    answers={200: (str, "In the text format of Prometheus.")},
)
async def metrics(call: Call) -> None:
    """The store in numbers, for Prometheus: depth, age, throughput, latency, workers.

    Every server process of a store answers the same, but for `finalization_claim_…`, which tell how the claims of
    workflows' finalizations fared in the process that answers; to a key that is limited to queues they are not shown.
    Prometheus sends the key with `http_headers`.
    """
    page = await call.service.metrics.page(call.caller.queues, lambda: _look(call))
    await answer_bytes(call.http[2], 200, page, ((b"content-type", FORMAT),))


async def _look(call: Call) -> Snapshot:
    store = call.service.store
    stats = await call.run(store.stats(call.caller.queues))
    queues = await call.run(store.queues())
    seen = [each for each in queues if call.caller.serves(each.name)]
    return Snapshot(stats, await seen_workers(call), seen, call.caller.queues is None)


ENDPOINTS = [metrics]
