"""Whether the server is well: health and readiness, asked without a key, and metrics for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

from dibs.model.key import Scope
from dibs.observe.exposition import FORMAT
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.server.http import send_bytes
from dibs.server.liveness import threads_answer
from dibs.server.statistics.store_metrics import StoreNumbers, StoreSnapshot, by_queue
from dibs.store.operation import Mode, Operation
from dibs.wire.admin import Alive, Ready
from dibs.wire.errors import RequestRefused

TAG = "health"


PATIENCE = 2.0
"""Seconds for which the database, or the server's own threads, may keep silent."""


@endpoint("GET", "/health", tag=TAG, answers={200: (Alive, "The process is alive.")})
async def health(call: Call) -> Answer:
    """Is the process alive? The database is not asked: restarting a server does not help a database."""
    return Answer(Alive())


@endpoint(
    "GET",
    "/ready",
    tag=TAG,
    answers={200: (Ready, "Send requests.")},
    refuses={
        503: "The database does not answer, the server is stuck (its event loop or its threads do not answer), or the "
        "server is about to stop: send requests elsewhere."
    },
)
async def ready(call: Call) -> Answer:
    """Would a request get an answer now?"""
    if call.service.stopping.is_set():
        raise RequestRefused("stopping", "The server is about to stop.", hint="Send requests to another one.")
    if (trouble := call.service.liveness.trouble()) is not None:
        raise RequestRefused("stuck", trouble, hint="Its log says where it was stuck.")
    await _answers(threads_answer(), "stuck", "The threads of the server have", "Its log says what it is doing.")
    # On SQLite as a write: requests that write wait for the lock of the file, and for the thread that commits. On
    # PostgreSQL as a read, which is repeated where a connection turns out to be broken.
    store = call.service.store
    look: Operation[int] = store.history.last_entry()
    if not store.many_writers:
        look = replace(look, mode=Mode.WRITE)
    hint = "Is it running, can this machine reach it, and does no other program hold it locked?"
    reading: Awaitable[int] = call.run(look)
    await _answers(reading, "store_unavailable", "The database has", hint)
    return Answer(Ready())


async def _answers(waited_for: Awaitable[object], code: str, what: str, hint: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await waited_for
    except TimeoutError:
        raise RequestRefused(code, f"{what} not answered within {PATIENCE:g} seconds.", hint=hint) from None


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


ENDPOINTS = [health, ready, metrics]
