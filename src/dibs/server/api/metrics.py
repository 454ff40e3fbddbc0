"""Metrics: the store in numbers, for Prometheus."""

from __future__ import annotations

from dibs.model.key import Scope
from dibs.observe.exposition import FORMAT
from dibs.server.endpoint import Call, endpoint
from dibs.server.http import send_bytes
from dibs.server.statistics.store_metrics import StoreNumbers, StoreSnapshot, by_queue

TAG = "health"


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

    `dibs_…` are read from the database: every server of a store answers the same. `task_…` and `finalization_claim_…`
    are what the processes of this server have counted since it began; to a key that is limited to queues they are not
    shown.
    Prometheus sends the key as `Authorization: Bearer` (`credentials_file` in a scrape config).
    """
    page = await call.service.metrics.page(call.caller.queues, lambda: _look(call))
    await send_bytes(call.http[2], 200, page, ((b"content-type", FORMAT.encode()),))


async def _look(call: Call) -> StoreSnapshot:
    store, only = call.service.store, call.caller.queues
    await call.service.live_stats.refreshed()
    board = await call.service.live_stats.refresh_workers()
    names = [name for name in board.queues() if call.caller.serves(name)]
    latencies = await call.run(store.statistics.latencies(only))
    finished = await call.run(store.statistics.finished_within(60_000_000, only))
    return StoreSnapshot(
        queues=by_queue(board, names),
        oldest=board.oldest(only) or 0.0,
        finished_last_minute=finished,
        wait=latencies.wait,
        run=latencies.run,
        workers=board.workers.of(only),
        whole_store=await _read_whole_store(call) if only is None else None,
    )


async def _read_whole_store(call: Call) -> StoreNumbers:
    store = call.service.store
    schedules = await call.run(store.schedules.list_schedules())
    workflows = await call.service.metrics.workflows(lambda: call.run(store.workflows.workflow_counts()))
    return StoreNumbers(schedules, workflows, await call.run(store.statistics.database_health()))


ENDPOINTS = [metrics]
