"""Health and readiness, which need no key, and metrics for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

from dibs.model.checks import from_micros
from dibs.model.key import Scope
from dibs.observe.exposition import FORMAT
from dibs.observe.metrics import MAX_QUEUES
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.server.http import send_bytes
from dibs.server.liveness import threads_answer
from dibs.server.statistics.store_metrics import StoreNumbers, StoreSnapshot, by_fair_queue, by_limit, by_queue
from dibs.store.operation import Mode, Operation
from dibs.wire.admin import Alive, Ready
from dibs.wire.errors import RequestRefused

TAG = "health"


ANSWER_TIMEOUT = 2.0
"""Seconds within which the database and the server's threads must answer."""


@endpoint("GET", "/health", tag=TAG, answers={200: (Alive, "The process is alive.")})
async def health(call: Call) -> Answer:
    """Check that the process is alive. The database is not checked: restarting the server would not repair it."""
    return Answer(Alive())


@endpoint(
    "GET",
    "/ready",
    tag=TAG,
    answers={200: (Ready, "The server accepts requests.")},
    refuses={
        503: "The database does not answer, the server is stuck (its event loop or its threads do not answer), or the "
        "server is stopping. Send requests to another server."
    },
)
async def ready(call: Call) -> Answer:
    """Check that the server can answer requests now, including the database."""
    if call.service.stopping.is_set():
        raise RequestRefused("stopping", "The server is stopping.", hint="Send requests to another server.")
    if (trouble := call.service.liveness.trouble()) is not None:
        raise RequestRefused("stuck", trouble, hint="See the log of the server for the place where it was stuck.")
    await _check_answers(threads_answer(), "stuck", "The threads of the server have", "See the log of the server.")
    # On SQLite run as a write, because requests that write wait for the lock of the file and for the committing thread.
    # On PostgreSQL run as a read, because a read is repeated after a broken connection.
    store = call.service.store
    probe: Operation[int] = store.history.last_entry()
    if not store.many_writers:
        probe = replace(probe, mode=Mode.WRITE)
    hint = "Check that it is running, that this machine can reach it, and that no other program holds a lock."
    reading: Awaitable[int] = call.run(probe)
    await _check_answers(reading, "store_unavailable", "The database has", hint)
    return Answer(Ready())


async def _check_answers(answer: Awaitable[object], code: str, what: str, hint: str) -> None:
    """Raise RequestRefused if the answer takes longer than ANSWER_TIMEOUT."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            await answer
    except TimeoutError:
        raise RequestRefused(code, f"{what} not answered within {ANSWER_TIMEOUT:g} seconds.", hint=hint) from None


@endpoint(
    "GET",
    "/metrics",
    Scope.READ,
    tag=TAG,
    media="text/plain",
    answers={200: (str, "The metrics in the text format of Prometheus.")},
)
async def metrics(call: Call) -> None:
    """Read the metrics for Prometheus: depth, age, throughput, latency, workers.

    Metrics named `dibs_…` are read from the database and are the same on every server of a store. Metrics named
    `task_…` and `finalization_claim_…` are counters of the processes of this server since its start. Keys that are
    limited to queues do not get the counters.

    Prometheus sends the key as `Authorization: Bearer` (`credentials_file` in a scrape config).
    """
    page = await call.service.metrics.page(call.caller.queues, lambda: _take_snapshot(call))
    await send_bytes(call.http[2], 200, page, ((b"content-type", FORMAT.encode()),))


async def _take_snapshot(call: Call) -> StoreSnapshot:
    store, only = call.service.store, call.caller.queues
    await call.service.live_stats.refreshed()
    depths = await call.service.live_stats.refresh_workers()
    names = [name for name in depths.queues() if call.caller.serves(name)]
    latencies = await call.run(store.statistics.latencies(only))
    finished = await call.run(store.statistics.finished_within(60_000_000, only))
    return StoreSnapshot(
        queues=by_queue(depths, names),
        oldest=depths.oldest(only) or 0.0,
        finished_last_minute=finished,
        wait=latencies.wait,
        run=latencies.run,
        workers=depths.workers.of(only),
        paused_types=sorted(depths.paused_types)[:MAX_QUEUES] if only is None else (),
        whole_store=await _read_whole_store(call, depths.at) if only is None else None,
    )


async def _read_whole_store(call: Call, now: int) -> StoreNumbers:
    """`now`: microseconds by the clock of the database."""
    store = call.service.store
    schedules = await call.run(store.schedules.list_schedules())
    workflows = await call.service.metrics.workflows(lambda: call.run(store.workflows.workflow_counts()))
    limits = await call.run(store.limits.list_limits())
    fair = [each.queue for each in await call.run(store.limits.queue_settings()) if each.fair]
    behind = await call.run(store.statistics.claims_behind()) if fair else {}
    return StoreNumbers(
        schedules,
        workflows,
        await call.run(store.statistics.database_health()),
        by_limit(limits, from_micros(now)),
        by_fair_queue(fair, behind),
    )


ENDPOINTS = [health, ready, metrics]
