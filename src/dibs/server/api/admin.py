"""Administrative calls: queues, workers, task types, keys."""

from __future__ import annotations

import msgspec

from dibs.json_values import check_name
from dibs.model.key import Scope
from dibs.model.registry import WorkerInfo
from dibs.server.auth import Caller
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.admin import (
    DeclaredSchemasBody,
    Gated,
    GatedType,
    HeartbeatBody,
    NewTypeBody,
    OneType,
    PausedTypes,
    Queues,
    RegisteredType,
    StoredSchemas,
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


@endpoint("GET", "/api/queues", Scope.READ, tag=QUEUES_TAG, answers={200: (Queues, "The queues by name.")})
async def list_queues(call: Call) -> Answer:
    """List the queues with their depth by state."""
    queues = await call.run(call.service.store.registry.queues())
    return Answer(Queues.from_model([info for info in queues if call.caller.serves(info.name)]))


@endpoint(
    "POST",
    "/api/queues/{name:name}/pause",
    Scope.ADMIN,
    tag=QUEUES_TAG,
    body=Empty,
    body_optional=True,
    answers={200: (Gated, "The queue is paused.")},
)
async def pause(call: Call) -> Answer:
    """Pause a queue: no tasks are claimed until it is resumed. Claimed tasks continue, and tasks can be enqueued."""
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
    answers={200: (Gated, "The queue is not paused.")},
)
async def resume(call: Call) -> Answer:
    """Resume a queue: tasks can be claimed from it again."""
    name = _queue(call)
    await call.run(call.service.store.registry.resume(name))
    return Answer(Gated.from_model(name, False))


def _queue(call: Call) -> str:
    """Return the queue in the path. Refuse a queue that the caller may not use."""
    name = check_name(call.path["name"], "The queue")
    call.caller.check_queue(name)
    return name


@endpoint(
    "POST",
    "/api/workers/heartbeat",
    Scope.WORK,
    tag=WORKERS_TAG,
    body=HeartbeatBody,
    answers={200: (Done, "The heartbeat is stored.")},
    examples={
        "a worker that runs": {
            "worker_id": "worker-youtube-01",
            "task_types": ["youtube_video_scrape"],
            "metadata": {"host": "a1"},
        },
        "a worker that stops": {"worker_id": "worker-youtube-01", "leaving": True},
    },
)
async def heartbeat(call: Call) -> Answer:
    """Register a worker, or report that it still runs. Send a heartbeat every 30 seconds.

    Five minutes after its last heartbeat, a worker counts as stale. Claims do not depend on heartbeats, only on their
    lease. Keys with different queue limits have separate records: they neither see nor overwrite each other's workers
    with the same id.
    """
    body: HeartbeatBody = call.body
    beat = body.to_model(call.caller.narrow(body.queues))
    await call.run(call.service.store.registry.heartbeat(beat, call.caller.queues))
    return Answer(Done.from_model())


@endpoint("GET", "/api/workers", Scope.READ, tag=WORKERS_TAG, answers={200: (Workers, "The workers, oldest first.")})
async def list_workers(call: Call) -> Answer:
    """List all known workers with the ids of the tasks that they hold."""
    return Answer(Workers.from_model(await visible_workers(call)))


async def visible_workers(call: Call) -> list[WorkerInfo]:
    """Return the workers that serve a queue of the caller, without foreign queues and tasks."""
    workers = await call.run(call.service.store.registry.workers())
    if call.caller.queues is None:
        return workers
    visible = await call.visible([task_id for info in workers for task_id in info.holds])
    return [
        _as_visible(info, call.caller, visible or frozenset()) for info in workers if _is_visible(info, call.caller)
    ]


def _is_visible(info: WorkerInfo, caller: Caller) -> bool:
    return info.queues is None or any(caller.serves(queue) for queue in info.queues)


def _as_visible(info: WorkerInfo, caller: Caller, visible: frozenset[int]) -> WorkerInfo:
    """Return the worker without queues and tasks that the caller may not see."""
    queues = None if info.queues is None else [queue for queue in info.queues if caller.serves(queue)]
    holds = [task_id for task_id in info.holds if task_id in visible]
    metadata = dict(info.metadata)
    if "queue_bounds" in metadata:
        metadata["queue_bounds"] = {name: n for name, n in info.queue_bounds.items() if caller.serves(name)}
    return msgspec.structs.replace(info, queues=queues, holds=holds, metadata=metadata)


@endpoint(
    "POST",
    "/api/task-types",
    Scope.ADMIN,
    tag=TASK_TYPES_TAG,
    body=NewTypeBody,
    answers={201: (RegisteredType, "The type is registered; an equal version that exists is returned instead.")},
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
    """Register a new version of a task type. Tasks of older versions stay claimable: claims use only the name."""
    call.caller.check_whole_store()
    body: NewTypeBody = call.body
    task_type = await call.run(call.service.store.registry.register_type(body.name, body.schema, body.defaults))
    return Answer(RegisteredType.from_model(task_type), 201)


@endpoint(
    "POST",
    "/api/declarations/schemas",
    Scope.ADMIN,
    tag=TASK_TYPES_TAG,
    body=DeclaredSchemasBody,
    answers={200: (StoredSchemas, "The schemas are stored, except those that are refused.")},
    examples={
        "a handler with one argument": {
            "schemas": [
                {
                    "task_type": "thumbnail",
                    "schema": {
                        "type": "object",
                        "properties": {"video_id": {"type": "string"}},
                        "required": ["video_id"],
                    },
                }
            ],
        }
    },
)
async def declare_schemas(call: Call) -> Answer:
    """Store the JSON Schemas that a program declares for the params of its task types, as workers do when they start.

    A changed schema is a new version of its task type. A schema that was registered by hand stays in force until the
    declaration changes.
    """
    call.caller.check_whole_store()
    refused = await call.run(call.service.store.registry.declare_schemas(call.body.to_model()))
    return Answer(StoredSchemas.from_model(refused))


@endpoint(
    "GET",
    "/api/task-types",
    Scope.READ,
    tag=TASK_TYPES_TAG,
    answers={200: (TaskTypes, "The task types by name, newest version first.")},
)
async def list_types(call: Call) -> Answer:
    """List all versions of all task types."""
    task_types = await call.run(call.service.store.registry.list_types())
    return Answer(TaskTypes.from_model(task_types))


@endpoint(
    "GET",
    "/api/task-types/{name:name}",
    Scope.READ,
    tag=TASK_TYPES_TAG,
    query=TypeQuery,
    answers={200: (OneType, "The task type.")},
    refuses={404: "There is no such task type, or no such version of it."},
)
async def get(call: Call) -> Answer:
    """Read a task type, in its newest version or in `version`."""
    query: TypeQuery = call.query or TypeQuery()
    task_type = await call.run(call.service.store.registry.get_type(call.path["name"], query.version))
    return Answer(OneType.from_model(task_type))


@endpoint(
    "POST",
    "/api/task-types/{name:name}/pause",
    Scope.ADMIN,
    tag=TASK_TYPES_TAG,
    body=Empty,
    body_optional=True,
    answers={200: (GatedType, "The task type is paused.")},
)
async def pause_type(call: Call) -> Answer:
    """Pause a task type: its tasks are not claimed until it is resumed, in any queue. Claimed tasks continue."""
    name = _type(call)
    await call.run(call.service.store.registry.pause_type(name))
    return Answer(GatedType.from_model(name, True))


@endpoint(
    "POST",
    "/api/task-types/{name:name}/resume",
    Scope.ADMIN,
    tag=TASK_TYPES_TAG,
    body=Empty,
    body_optional=True,
    answers={200: (GatedType, "The task type is not paused.")},
)
async def resume_type(call: Call) -> Answer:
    """Resume a task type: its tasks can be claimed again, except from paused queues."""
    name = _type(call)
    await call.run(call.service.store.registry.resume_type(name))
    return Answer(GatedType.from_model(name, False))


def _type(call: Call) -> str:
    """Return the task type in the path. A type is in all queues, so the caller must not be limited to some."""
    call.caller.check_whole_store()
    return check_name(call.path["name"], "The task type")


@endpoint(
    "GET",
    "/api/paused-task-types",
    Scope.READ,
    tag=TASK_TYPES_TAG,
    answers={200: (PausedTypes, "The paused task types by name, registered or not.")},
)
async def paused_types(call: Call) -> Answer:
    """List the paused task types."""
    paused = await call.run(call.service.store.registry.paused_types())
    return Answer(PausedTypes.from_model(paused))


@endpoint(
    "POST",
    "/api/keys",
    Scope.ADMIN,
    tag=KEYS_TAG,
    body=NewKeyBody,
    answers={201: (Minted, "The key was created. Only this answer contains its text.")},
    examples={
        "for workers": {"name": "scraper fleet", "scopes": ["work"], "queues": ["scrape"], "rate_limit": "none"},
    },
)
async def create(call: Call) -> Answer:
    """Create a key. Store its text: only this answer contains it."""
    call.caller.check_whole_store()
    minted = await call.run(call.service.store.keys.mint_key(call.body.to_model()))
    return Answer(Minted.from_model(minted), 201)


@endpoint("GET", "/api/keys", Scope.ADMIN, tag=KEYS_TAG, answers={200: (Keys, "The keys, oldest first.")})
async def list_keys(call: Call) -> Answer:
    """List all keys, including expired and revoked ones, without their text."""
    call.caller.check_whole_store()
    keys = await call.run(call.service.store.keys.list_keys())
    return Answer(Keys.from_model(keys))


@endpoint(
    "DELETE",
    "/api/keys/{id:name}",
    Scope.ADMIN,
    tag=KEYS_TAG,
    answers={200: (Revoked, "The key is revoked.")},
    refuses={404: "There is no key with this id."},
)
async def revoke(call: Call) -> Answer:
    """Revoke a key. Revoking it again does not change the time. A key may revoke itself."""
    call.caller.check_whole_store()
    revoked = await call.run(call.service.store.keys.revoke_key(call.path["id"]))
    call.service.key_cache.invalidate()
    return Answer(Revoked.from_model(revoked))


ENDPOINTS = [
    list_queues,
    pause,
    resume,
    heartbeat,
    list_workers,
    register,
    declare_schemas,
    list_types,
    get,
    pause_type,
    resume_type,
    paused_types,
    create,
    list_keys,
    revoke,
]
