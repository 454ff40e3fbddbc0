"""The dead letter: tasks whose attempts are spent, sent back by filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from dibs import plans
from dibs.body.fields import Body, Name
from dibs.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.store.operation import drive_async
from dibs.store.operations.managing import DeadFilter

TAG = "dead letter"
MOST = 10_000


class RedriveBody(Body, frozen=True):
    """Which tasks of the dead letter; all filters must fit."""

    queue: Name | None = None
    task_type: Name | None = None
    error: Annotated[Name, Meta(description="Text in the error's type or message.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST, description="At most so many, the oldest failures first.")] = 1000


class Redriven(msgspec.Struct, frozen=True):
    """How many are pending again; as many as `limit`: there may be more."""

    success: bool
    redriven: int


@endpoint(
    "POST",
    "/api/dead-letter/redrive",
    Scope.ADMIN,
    tag=TAG,
    body=RedriveBody,
    body_optional=True,
    answers={200: (Redriven, "They are pending, with all their attempts.")},
    examples={"those of one error": {"task_type": "youtube_video_scrape", "error": "503", "limit": 500}},
)
async def redrive(call: Call) -> Answer:
    """Send tasks of the dead letter back to be claimed, batch by batch."""
    body: RedriveBody = call.body
    done = 0
    for queue in _queues(call):
        if done < body.limit:
            done += await _redrive(call, queue, body.limit - done)
    return Answer(Redriven(True, done))


def _queues(call: Call) -> Sequence[str | None]:
    """The queue that is named, or each that the caller may see; None for all at once."""
    return call.caller.narrow(None if call.body.queue is None else [call.body.queue]) or [None]


async def _redrive(call: Call, queue: str | None, limit: int) -> int:
    which = DeadFilter(queue=queue, type=call.body.task_type, error=call.body.error, only=call.caller.queues)
    plan = plans.redrive(call.service.store, which, limit)
    return await drive_async(plan, call.run)  # type: ignore[arg-type]  # this plan never waits


ENDPOINTS = [redrive]
