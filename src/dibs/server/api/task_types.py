"""Task types: what params of a type must look like, and what its tasks have by default; version by version."""

from __future__ import annotations

from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.admin import NewTypeBody, OneType, RegisteredType, TaskTypes, TypeQuery

TAG = "task types"


@endpoint(
    "POST",
    "/api/task-types",
    Scope.ADMIN,
    tag=TAG,
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


@endpoint("GET", "/api/task-types", Scope.READ, tag=TAG, answers={200: (TaskTypes, "By name, newest version first.")})
async def list_types(call: Call) -> Answer:
    """All versions of all task types."""
    kinds = await call.run(call.service.store.registry.list_types())
    return Answer(TaskTypes.from_model(kinds))


@endpoint(
    "GET",
    "/api/task-types/{name:name}",
    Scope.READ,
    tag=TAG,
    query=TypeQuery,
    answers={200: (OneType, "The version asked for.")},
    refuses={404: "No such type, or no such version of it."},
)
async def get(call: Call) -> Answer:
    """One task type, in its newest version or the given one."""
    query: TypeQuery = call.query or TypeQuery()
    kind = await call.run(call.service.store.registry.get_type(call.path["name"], query.version))
    return Answer(OneType.from_model(kind))


ENDPOINTS = [register, list_types, get]
