"""The dead letter: tasks that failed for good. List, retry or discard them by filter."""

from __future__ import annotations

from collections.abc import Sequence

from dibs import procedures
from dibs.model import search
from dibs.model.key import Scope
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.store.operation import drive_async
from dibs.wire import tasks as wire
from dibs.wire.fields import Empty

TAG = "dead letter"


@endpoint(
    "POST",
    "/api/dead-letter/redrive",
    Scope.ADMIN,
    tag=TAG,
    body=wire.RedriveBody,
    body_optional=True,
    answers={200: (wire.Redriven, "The number of tasks that are pending again, with all their attempts.")},
    examples={"tasks with one error": {"task_type": "youtube_video_scrape", "error": "503", "limit": 500}},
)
async def redrive(call: Call) -> Answer:
    """Retry the tasks of the dead letter that match, batch by batch."""
    body: wire.RedriveBody = call.body
    done = 0
    for queue in _queues(call):
        if done < body.limit:
            done += await _redrive(call, queue, body.limit - done)
    return Answer(wire.Redriven.from_model(done))


@endpoint("GET", "/api/dead-letter", Scope.READ, tag=TAG, query=wire.DeadQuery, answers={200: (wire.Page, "A page.")})
async def list_dead(call: Call) -> Answer:
    """List the tasks of the dead letter, newest first, page by page: continue with `next_cursor` until it is null.

    A page of large tasks may have fewer tasks than `limit`: it ends after about 4 MB of params, results and errors.
    The dead letter has all failed tasks, except discarded tasks and steps whose failure their workflow ignored.
    """
    query: wire.DeadQuery = call.query or wire.DeadQuery()
    if query.queue is not None:
        call.caller.check_queue(query.queue)
    which = query.to_model(call.caller.queues if query.queue is None else None)
    page = await call.run(call.service.store.tasks.list_tasks(which, search.PAGE_CONTENT))
    return Answer(wire.Page.from_model(page))


@endpoint(
    "POST",
    "/api/dead-letter/discard",
    Scope.ADMIN,
    tag=TAG,
    body=wire.DiscardBody,
    body_optional=True,
    answers={200: (wire.Discarded, "The number of tasks that left the dead letter; they stay failed.")},
    examples={
        "tasks with one error": {"task_type": "youtube_video_scrape", "error": "404", "limit": 500},
        "two tasks by id": {"ids": [123, 124]},
    },
)
async def discard(call: Call) -> Answer:
    """Discard tasks of the dead letter, batch by batch: the tasks in `ids`, or all tasks that match.

    A discarded task stays failed and keeps its history. It is pruned by retention as usual, and can still be retried by
    its id.
    """
    done = 0
    for queue in _queues(call):
        if done < call.body.limit:
            done += await _discard(call, queue, call.body.limit - done)
    return Answer(wire.Discarded.from_model(done))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/discard",
    Scope.ADMIN,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedTask, "The task left the dead letter; it stays failed.")},
    refuses={404: "", 409: "The task is not in the dead letter."},
)
async def discard_one(call: Call) -> Answer:
    """Discard one task of the dead letter. A task that was discarded before does not change."""
    await call.check_visible(call.task_id)
    task = await call.run(call.service.store.tasks.discard(call.task_id, call.caller.queues))
    return Answer(wire.ChangedTask.from_model(task))


async def _discard(call: Call, queue: str | None, limit: int) -> int:
    procedure = procedures.discard(call.service.store, call.body.ids, call.body.to_model(queue), limit)
    return await drive_async(procedure, call.run)  # type: ignore[arg-type]  # this procedure never waits


def _queues(call: Call) -> Sequence[str | None]:
    """Return the queue of the request, or all queues of the caller; [None] for all queues of the store."""
    return call.caller.narrow(None if call.body.queue is None else [call.body.queue]) or [None]


async def _redrive(call: Call, queue: str | None, limit: int) -> int:
    procedure = procedures.redrive(call.service.store, call.body.to_model(queue, call.caller.queues), limit)
    return await drive_async(procedure, call.run)  # type: ignore[arg-type]  # this procedure never waits


ENDPOINTS = [list_dead, redrive, discard, discard_one]
