"""Metrics: the store in numbers, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from dibs.key import Scope
from dibs.observe.page import FORMAT
from dibs.server.api.workers import seen_workers
from dibs.server.endpoint import Call, endpoint
from dibs.server.http import answer_bytes
from dibs.server.metrics import House, Snapshot
from dibs.store.operations.sampling import Count

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
    await answer_bytes(call.http[2], 200, page, ((b"content-type", FORMAT.encode()),))


async def _look(call: Call) -> Snapshot:
    store = call.service.store
    stats = await call.run(store.stats(call.caller.queues))
    counts = [each for each in await call.run(store.counts()) if call.caller.serves(each.queue)]
    queues = [each for each in await call.run(store.queues()) if call.caller.serves(each.name)]
    return Snapshot(
        depth=stats.by_queue,
        oldest=_oldest(counts),
        paused={each.name: each.paused for each in queues},
        finished_last_minute=stats.finished_last_minute,
        wait=stats.wait,
        run=stats.run,
        workers=await seen_workers(call),
        house=await _look_at_house(call) if call.caller.queues is None else None,
    )


async def _look_at_house(call: Call) -> House:
    store = call.service.store
    schedules = await call.run(store.list_schedules())
    workflows = await call.run(store.workflow_counts())
    return House(schedules, workflows, await call.run(store.vitals()))


def _oldest(counts: Iterable[Count]) -> dict[str, float]:
    """For how long the oldest pending task of each queue has waited."""
    ages: dict[str, float] = {}
    for each in counts:
        if each.oldest_age is not None:
            ages[each.queue] = max(each.oldest_age, ages.get(each.queue, 0.0))
    return ages


ENDPOINTS = [metrics]
