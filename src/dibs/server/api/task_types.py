"""Task types: what params of a type must look like, and what its tasks have by default; version by version."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dibs import shape
from dibs.body.fields import Body, Name, Params
from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint

TAG = "task types"


class NewTypeBody(Body, frozen=True):
    """A task type to register."""

    name: Name
    schema: Annotated[dict[str, Any] | bool | None, Meta(description="A JSON Schema for the params.")] = None
    defaults: Annotated[Params, Meta(description="Params that a task has where it does not give them.")] = (
        msgspec.field(default_factory=dict)
    )


class TypeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which version."""

    version: Annotated[int, Meta(ge=1, le=2**31 - 1, description="The newest if left out.")] | None = None


class RegisteredType(msgspec.Struct, frozen=True):
    """The version that now holds."""

    success: bool
    task_type: shape.TaskTypeShape


class OneType(msgspec.Struct, frozen=True):
    """One version of a task type."""

    task_type: shape.TaskTypeShape


class TaskTypes(msgspec.Struct, frozen=True):
    """All versions of all task types."""

    task_types: list[shape.TaskTypeShape]


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
    return Answer(RegisteredType(True, shape.task_type(kind)), 201)


@endpoint("GET", "/api/task-types", Scope.READ, tag=TAG, answers={200: (TaskTypes, "By name, newest version first.")})
async def list_types(call: Call) -> Answer:
    """All versions of all task types."""
    return Answer(
        TaskTypes([shape.task_type(kind) for kind in await call.run(call.service.store.registry.list_types())])
    )


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
    return Answer(OneType(shape.task_type(kind)))


ENDPOINTS = [register, list_types, get]
