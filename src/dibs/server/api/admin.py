"""Administrative calls: queues, workers, task types, keys."""

from __future__ import annotations

import msgspec

from dibs.codec import check_name
from dibs.model.key import Scope
from dibs.model.registry import WorkerInfo
from dibs.server.auth import Caller
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.admin import (
    Gated,
    HeartbeatBody,
    NewTypeBody,
    OneType,
    Queues,
    RegisteredType,
    TaskTypes,
    TypeQuery,
    Workers,
)
from dibs.wire.fields import Done, Empty
from dibs.wire.keys import Keys, Minted, NewKeyBody, Revoked

QUEUES_TAG = "queues"
WORKERS_TAG = "workers"
TASK_TYPES_TAG = "task types"
KEYS_TAG = "keys"


@endpoint("GET", "/api/queues", Scope.READ, tag=QUEUES_TAG, answers={200: (Queues, "By name.")})
async def list_queues(call: Call) -> Answer:
    """Every queue with its depth by state."""
    queues = await call.run(call.service.store.registry.queues())
    return Answer(Queues.from_model([info for info in queues if call.caller.serves(info.name)]))


@endpoint(
    "POST",
    "/api/queues/{name:name}/pause",
    Scope.ADMIN,
    tag=QUEUES_TAG,
    body=Empty,
    body_optional=True,
    answers={200: (Gated, "Paused.")},
)
async def pause(call: Call) -> Answer:
    """Let nobody claim from the queue until it is resumed. Running tasks go on, new ones can be enqueued."""
    name = _queue(call)
    await call.run(call.service.store.registry.pause(name))
    return Answer(Gated.from_model(name, True))


@endpoint(
    "POST",
    "/api/queues/{name:name}/resume",
    Scope.ADMIN,
    tag=QUEUES_TAG,
    body=Empty,
    body_optional=True,
    answers={200: (Gated, "May be claimed from.")},
)
async def resume(call: Call) -> Answer:
    """Let the queue be claimed from again."""
    name = _queue(call)
    await call.run(call.service.store.registry.resume(name))
    return Answer(Gated.from_model(name, False))


def _queue(call: Call) -> str:
    """The queue in the path, if it is the caller's."""
    name = check_name(call.path["name"], "The queue")
    call.caller.check_queue(name)
    return name


@endpoint(
    "POST",
    "/api/workers/heartbeat",
    Scope.WORK,
    tag=WORKERS_TAG,
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


@endpoint("GET", "/api/workers", Scope.READ, tag=WORKERS_TAG, answers={200: (Workers, "Oldest first.")})
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


@endpoint(
    "POST",
    "/api/task-types",
    Scope.ADMIN,
    tag=TASK_TYPES_TAG,
    body=NewTypeBody,
    answers={201: (RegisteredType, "Registered; the same again gives the version that is there.")},
    examples={
        "with a schema": {
            "name": "thumbnail",
            "schema": {
                "type": "object",
                "properties": {"video_id": {"type": "string"}},
                "required": ["video_id"],
            },
            "defaults": {"quality": "720p"},
        }
    },
)
async def register(call: Call) -> Answer:
    """Register a new version of a task type. Tasks of older versions stay claimable: claims go by the name alone."""
    call.caller.check_whole_store()
    body: NewTypeBody = call.body
    kind = await call.run(call.service.store.registry.register_type(body.name, body.schema, body.defaults))
    return Answer(RegisteredType.from_model(kind), 201)


@endpoint(
    "GET",
    "/api/task-types",
    Scope.READ,
    tag=TASK_TYPES_TAG,
    answers={200: (TaskTypes, "By name, newest version first.")},
)
async def list_types(call: Call) -> Answer:
    """All versions of all task types."""
    kinds = await call.run(call.service.store.registry.list_types())
    return Answer(TaskTypes.from_model(kinds))


@endpoint(
    "GET",
    "/api/task-types/{name:name}",
    Scope.READ,
    tag=TASK_TYPES_TAG,
    query=TypeQuery,
    answers={200: (OneType, "The version asked for.")},
    refuses={404: "No such type, or no such version of it."},
)
async def get(call: Call) -> Answer:
    """One task type, in its newest version or the given one."""
    query: TypeQuery = call.query or TypeQuery()
    kind = await call.run(call.service.store.registry.get_type(call.path["name"], query.version))
    return Answer(OneType.from_model(kind))


@endpoint(
    "POST",
    "/api/keys",
    Scope.ADMIN,
    tag=KEYS_TAG,
    body=NewKeyBody,
    answers={201: (Minted, "Made; only this answer holds its text.")},
    examples={
        "for workers": {"name": "scraper fleet", "scopes": ["work"], "queues": ["scrape"], "rate_limit": "none"},
    },
)
async def create(call: Call) -> Answer:
    """Make a key. Keep its text: it is shown in this answer alone."""
    call.caller.check_whole_store()
    minted = await call.run(call.service.store.keys.mint_key(call.body.to_model()))
    return Answer(Minted.from_model(minted), 201)


@endpoint("GET", "/api/keys", Scope.ADMIN, tag=KEYS_TAG, answers={200: (Keys, "Oldest first.")})
async def list_keys(call: Call) -> Answer:
    """All keys, also those that expired or were revoked; never their text."""
    call.caller.check_whole_store()
    keys = await call.run(call.service.store.keys.list_keys())
    return Answer(Keys.from_model(keys))


@endpoint(
    "DELETE",
    "/api/keys/{id:name}",
    Scope.ADMIN,
    tag=KEYS_TAG,
    answers={200: (Revoked, "Nobody may use it.")},
    refuses={404: "There is no key with this id."},
)
async def revoke(call: Call) -> Answer:
    """Let nobody use a key from now on; the same again keeps the time of the first. A key may revoke itself."""
    call.caller.check_whole_store()
    gone = await call.run(call.service.store.keys.revoke_key(call.path["id"]))
    call.service.key_cache.invalidate()
    return Answer(Revoked.from_model(gone))


ENDPOINTS = [list_queues, pause, resume, heartbeat, list_workers, register, list_types, get, create, list_keys, revoke]
