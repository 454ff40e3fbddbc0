"""The dead letter: tasks that failed for good. They are listed, sent back, or discarded, by filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from dibs import procedures, shape
from dibs.body.fields import Body, Empty, Name, TaskId
from dibs.model.claim import MAX_BATCH
from dibs.model.key import Scope
from dibs.model.search import DeadFilter, TaskFilter
from dibs.server.api.tasks import ChangedTask
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.store.operation import drive_async

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


class DeadQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks of the dead letter to list; all filters must fit."""

    queue: Annotated[Name, Meta(description="Only those of this queue.")] | None = None
    task_type: Annotated[Name, Meta(description="Only those of this type.")] | None = None
    error: Annotated[Name, Meta(description="Text in the error's type or message.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH, description="Tasks on a page.")] = 100
    cursor: Annotated[TaskId, Meta(description="`next_cursor` of the page before.")] | None = None


class DiscardBody(RedriveBody, frozen=True):
    """Which tasks of the dead letter to discard; all filters must fit. With `ids`: of these tasks only."""

    ids: Annotated[list[TaskId], Meta(max_length=MAX_BATCH, description="None but these tasks.")] | None = None


class Discarded(msgspec.Struct, frozen=True):
    """How many left the dead letter; as many as `limit`: there may be more."""

    success: bool
    discarded: int


@endpoint("GET", "/api/dead-letter", Scope.READ, tag=TAG, query=DeadQuery, answers={200: (shape.PageShape, "A page.")})
async def list_dead(call: Call) -> Answer:
    """The tasks of the dead letter, newest first, page by page.

    These are the failed tasks, without steps whose failure was ignored by their workflow and without discarded tasks.
    """
    query: DeadQuery = call.query or DeadQuery()
    if query.queue is not None:
        call.caller.check_queue(query.queue)
    which = TaskFilter(
        dead=True, queue=query.queue, type=query.task_type, error=query.error, limit=query.limit, cursor=query.cursor,
        queues=call.caller.queues if query.queue is None else None
    )  # fmt: skip
    tasks = await call.run(call.service.store.tasks.list_tasks(which))
    return Answer(shape.page(tasks, query.limit))


@endpoint(
    "POST",
    "/api/dead-letter/discard",
    Scope.ADMIN,
    tag=TAG,
    body=DiscardBody,
    body_optional=True,
    answers={200: (Discarded, "They stay failed, and are not in the dead letter any more.")},
    examples={
        "those of one error": {"task_type": "youtube_video_scrape", "error": "404", "limit": 500},
        "these two": {"ids": [123, 124]},
    },
)
async def discard(call: Call) -> Answer:
    """Discard tasks of the dead letter, batch by batch: those with the `ids`, or all that match.

    A discarded task stays failed. Its history keeps it, retention prunes it as usual, and it can still be retried by
    its id.
    """
    done = 0
    for queue in _queues(call):
        if done < call.body.limit:
            done += await _discard(call, queue, call.body.limit - done)
    return Answer(Discarded(True, done))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/discard",
    Scope.ADMIN,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (ChangedTask, "It stays failed, and is not in the dead letter any more.")},
    refuses={404: "", 409: "The task is not in the dead letter."},
)
async def discard_one(call: Call) -> Answer:
    """Discard one task of the dead letter. A task that was discarded before stays as it is."""
    await call.check_visible(call.task_id)
    task = await call.run(call.service.store.tasks.discard(call.task_id, call.caller.queues))
    return Answer(ChangedTask(True, shape.task(task)))


async def _discard(call: Call, queue: str | None, limit: int) -> int:
    which = DeadFilter(queue=queue, type=call.body.task_type, error=call.body.error)
    plan = procedures.discard(call.service.store, call.body.ids, which, limit)
    return await drive_async(plan, call.run)  # type: ignore[arg-type]  # this plan never waits


def _queues(call: Call) -> Sequence[str | None]:
    """The queue that is named, or each that the caller may see; None for all at once."""
    return call.caller.narrow(None if call.body.queue is None else [call.body.queue]) or [None]


async def _redrive(call: Call, queue: str | None, limit: int) -> int:
    which = DeadFilter(queue=queue, type=call.body.task_type, error=call.body.error, only=call.caller.queues)
    plan = procedures.redrive(call.service.store, which, limit)
    return await drive_async(plan, call.run)  # type: ignore[arg-type]  # this plan never waits


ENDPOINTS = [list_dead, redrive, discard, discard_one]
