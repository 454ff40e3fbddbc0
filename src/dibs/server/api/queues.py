"""Queues: how full each is, and whether anybody may claim from it."""

from __future__ import annotations

from dibs.codec import check_name
from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.admin import Gated, Queues
from dibs.wire.fields import Empty

TAG = "queues"


@endpoint("GET", "/api/queues", Scope.READ, tag=TAG, answers={200: (Queues, "By name.")})
async def list_queues(call: Call) -> Answer:
    """Every queue with its depth by state."""
    queues = await call.run(call.service.store.registry.queues())
    return Answer(Queues.from_model([info for info in queues if call.caller.serves(info.name)]))


@endpoint(
    "POST",
    "/api/queues/{name:name}/pause",
    Scope.ADMIN,
    tag=TAG,
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
    tag=TAG,
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


ENDPOINTS = [list_queues, pause, resume]
