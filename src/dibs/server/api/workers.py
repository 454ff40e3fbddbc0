"""Workers: who is there, what each serves and holds."""

from __future__ import annotations

import msgspec

from dibs.model.key import Scope
from dibs.model.registry import WorkerInfo
from dibs.server.auth import Caller
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.admin import HeartbeatBody, Workers
from dibs.wire.fields import Done

TAG = "workers"


@endpoint(
    "POST",
    "/api/workers/heartbeat",
    Scope.WORK,
    tag=TAG,
    body=HeartbeatBody,
    answers={200: (Done, "Noted.")},
    examples={
        "here": {"worker_id": "worker-youtube-01", "task_types": ["youtube_video_scrape"], "metadata": {"host": "a1"}},
        "goodbye": {"worker_id": "worker-youtube-01", "leaving": True},
    },
)
async def heartbeat(call: Call) -> Answer:
    """Register a worker, or note that it still lives. Send it every 30 seconds; after five minutes it counts as stale.

    Claims do not depend on heartbeats: a claim holds under its lease. Keys with different queue limits have separate
    records, so a worker of the same name elsewhere is neither overwritten nor seen.
    """
    body: HeartbeatBody = call.body
    beat = body.to_model(call.caller.narrow(body.queues))
    await call.run(call.service.store.registry.heartbeat(beat, call.caller.queues))
    return Answer(Done.from_model())


@endpoint("GET", "/api/workers", Scope.READ, tag=TAG, answers={200: (Workers, "Oldest first.")})
async def list_workers(call: Call) -> Answer:
    """Every worker that was heard of, with the ids of the tasks that it holds."""
    return Answer(Workers.from_model(await seen_workers(call)))


async def seen_workers(call: Call) -> list[WorkerInfo]:
    """The workers that serve a queue of the caller's, as far as they concern it."""
    workers = await call.run(call.service.store.registry.workers())
    if call.caller.queues is None:
        return workers
    visible = await call.visible([task_id for info in workers for task_id in info.holds])
    return [_as_seen(info, call.caller, visible or frozenset()) for info in workers if _concerns(info, call.caller)]


def _concerns(info: WorkerInfo, caller: Caller) -> bool:
    return info.queues is None or any(caller.serves(queue) for queue in info.queues)


def _as_seen(info: WorkerInfo, caller: Caller, visible: frozenset[int]) -> WorkerInfo:
    """Without the names of foreign queues, and without foreign tasks."""
    queues = None if info.queues is None else [queue for queue in info.queues if caller.serves(queue)]
    holds = [task_id for task_id in info.holds if task_id in visible]
    return msgspec.structs.replace(info, queues=queues, holds=holds)


ENDPOINTS = [heartbeat, list_workers]
