"""Tasks: put them in, look at them, take them back."""

from __future__ import annotations

import msgspec

from dibs import procedures
from dibs.errors import TaskNotFound
from dibs.model.key import Scope
from dibs.model.search import BulkResult, TaskFilter, TaskMatch, check_not_everything
from dibs.observe import tracing
from dibs.server.endpoint import TRACEPARENT, Answer, Call, endpoint
from dibs.store.operation import drive_async
from dibs.wire import tasks as wire
from dibs.wire.claims import PeekBody
from dibs.wire.fields import Empty
from dibs.wire.history import OneHistory

TAG = "tasks"
LOOK = 1.0
"""Seconds for which one request searches or changes tasks: a client that continues at once stays below the standard
limit of 100 requests a minute."""

EXAMPLE = {"task_type": "youtube_video_scrape", "params": {"video_id": "abc123"}, "priority": 5}


@endpoint(
    "POST",
    "/api/tasks",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.NewTaskBody,
    answers={
        201: (wire.Created, "The task is stored, durably."),
        200: (wire.Created, "The key was used before: this is it."),
    },
    refuses={409: "The idempotency key belongs to a task of this queue with another type or other params."},
    examples={"a task": EXAMPLE, "in an hour": {**EXAMPLE, "delay_seconds": 3600, "idempotency_key": "video-abc123"}},
    headers=(TRACEPARENT,),
)
async def create(call: Call) -> Answer:
    """Enqueue a task.

    The task is durable when the answer arrives. With an `idempotency_key` it is safe to repeat the request: the same
    key with the same type and params answers with the existing task. Each queue has its own keys.
    """
    new = tracing.with_trace(call.body.to_model(), call.trace)
    call.caller.check_queue(new.queue)
    task = await call.service.coalesced.enqueue(new, call.caller.by)
    return Answer(wire.Created.from_model(task), 200 if task.deduplicated else 201)


@endpoint(
    "POST",
    "/api/tasks/batch",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.BatchBody,
    answers={201: (wire.CreatedBatch, "All are stored, durably."), 200: (wire.CreatedBatch, "All were there already.")},
    refuses={409: "An idempotency key belongs to a task with another type or other params; nothing was stored."},
    examples={"two tasks": {"tasks": [EXAMPLE, {**EXAMPLE, "params": {"video_id": "def456"}}]}},
    headers=(TRACEPARENT,),
)
async def create_batch(call: Call) -> Answer:
    """Enqueue up to 1000 tasks in one transaction, all or none."""
    new = tracing.tasks_with_trace(call.body.to_model(), call.trace)
    for each in new:
        call.caller.check_queue(each.queue)
    tasks = await call.run(call.service.store.queue.enqueue(new))
    return Answer(wire.CreatedBatch.from_model(tasks), 200 if all(task.deduplicated for task in tasks) else 201)


@endpoint(
    "GET", "/api/tasks/{id:int}", Scope.READ, tag=TAG, answers={200: (wire.OneTask, "The task.")}, refuses={404: ""}
)
async def get(call: Call) -> Answer:
    """One task."""
    task = await call.run(call.service.store.tasks.get(call.task_id))
    if task is None or not call.caller.serves(task.queue):
        raise TaskNotFound(call.task_id)
    return Answer(wire.OneTask.from_model(task))


@endpoint("GET", "/api/tasks", Scope.READ, tag=TAG, query=wire.ListQuery, answers={200: (wire.Page, "A page.")})
async def list_tasks(call: Call) -> Answer:
    """Tasks, newest first, page by page.

    With `worker`, `since`, `until` or `text` the server looks through the tasks for about a second. A page then may
    have fewer tasks than `limit`, or none, and still a `next_cursor`: continue with it until it is null.
    """
    query: wire.ListQuery = call.query or wire.ListQuery()
    which = _matching(call, query)
    if which.needs_search:
        plan = procedures.find(call.service.store, which, query.cursor, query.limit, LOOK)
        found = await drive_async(plan, call.run)  # type: ignore[arg-type]  # this plan never waits
        return Answer(wire.Page.from_model(found))
    listed = TaskFilter(**which.filters(), limit=query.limit, cursor=query.cursor)
    tasks = await call.run(call.service.store.tasks.list_tasks(listed))
    return Answer(wire.Page.from_models(tasks, query.limit))


def _matching(call: Call, asked: wire.ListQuery | wire.MatchBody) -> TaskMatch:
    """The filters of a request, limited to the queues of the caller."""
    if asked.queue is not None:
        call.caller.check_queue(asked.queue)
    return asked.to_model(call.caller.queues if asked.queue is None else None)


@endpoint(
    "GET",
    "/api/tasks/{id:int}/history",
    Scope.READ,
    tag=TAG,
    answers={200: (OneHistory, "In the order in which it happened.")},
    refuses={404: ""},
)
async def history(call: Call) -> Answer:
    """Everything that happened to a task. It outlives the task."""
    await call.check_visible(call.task_id)
    entries = await call.run(call.service.store.history.task_history(call.task_id))
    if not entries:
        raise TaskNotFound(call.task_id)
    return Answer(OneHistory.from_model(entries))


@endpoint(
    "GET",
    "/api/tasks/{id:int}/explain",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.OneExplanation, "As of now.")},
    refuses={404: ""},
)
async def explain(call: Call) -> Answer:
    """Why is this task not running?"""
    await call.check_visible(call.task_id)
    explaining = call.service.store.tasks.explain(call.task_id, call.caller.queues)
    return Answer(wire.OneExplanation.from_model(await call.run(explaining)))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/cancel",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedTask, "Cancelled, or asked to stop.")},
    refuses={404: "", 409: "The task is finished."},
)
async def cancel(call: Call) -> Answer:
    """Cancel a waiting task at once; ask the worker of a running one to stop."""
    await call.check_visible(call.task_id)
    task = await call.run(call.service.store.tasks.cancel(call.task_id, call.caller.queues))
    return Answer(wire.ChangedTask.from_model(task))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/retry",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedTask, "Pending, with all its attempts.")},
    refuses={404: "", 409: "The task is neither failed nor cancelled nor scheduled."},
)
async def retry(call: Call) -> Answer:
    """Send a failed, cancelled or scheduled task back to be claimed now."""
    await call.check_visible(call.task_id)
    task = await call.run(call.service.store.tasks.retry(call.task_id, call.caller.queues))
    return Answer(wire.ChangedTask.from_model(task))


@endpoint(
    "POST",
    "/api/tasks/cancel",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.MatchBody,
    answers={200: (wire.MovedTasks, "How many were cancelled or asked to stop.")},
    examples={"all of a type": {"task_type": "youtube_video_scrape", "status": "pending"}},
)
async def cancel_matching(call: Call) -> Answer:
    """Cancel all tasks that match, newest first.

    One request works for about a second: repeat it with `next_cursor` as `cursor` until that is null. Tasks that have
    ended are left as they are.
    """
    which = _acting_on(call)
    return await _moved(call, procedures.cancel_some(call.service.store, which, call.body.cursor, LOOK))


@endpoint(
    "POST",
    "/api/tasks/retry",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.MatchBody,
    answers={200: (wire.MovedTasks, "How many are pending again.")},
    examples={"those of one error": {"status": "failed", "text": "503 Service Unavailable"}},
)
async def retry_matching(call: Call) -> Answer:
    """Retry all tasks that match and are failed, cancelled or scheduled, newest first, with all their attempts.

    One request works for about a second: repeat it with `next_cursor` as `cursor` until that is null.
    """
    which = _acting_on(call)
    return await _moved(call, procedures.retry_some(call.service.store, which, call.body.cursor, LOOK))


def _acting_on(call: Call) -> TaskMatch:
    which = _matching(call, call.body)
    check_not_everything(which)
    # A queue in the filter narrows the look; what may be changed stays limited to the queues of the caller.
    return msgspec.structs.replace(which, queues=call.caller.queues)


async def _moved(call: Call, plan: procedures.Procedure[BulkResult]) -> Answer:
    moved = await drive_async(plan, call.run)  # type: ignore[arg-type]  # this plan never waits
    return Answer(wire.MovedTasks.from_model(moved))


@endpoint(
    "POST",
    "/api/tasks/peek",
    Scope.READ,
    tag=TAG,
    body=PeekBody,
    answers={200: (wire.ManyTasks, "Best first.")},
    examples={"the next three": {"count": 3}},
)
async def peek(call: Call) -> Answer:
    """What would be claimed next. Only a look: somebody else may claim it first."""
    body: PeekBody = call.body
    tasks = await call.run(call.service.store.queue.peek(body.to_model(call.caller.narrow(body.queues))))
    return Answer(wire.ManyTasks.from_model(tasks))


ENDPOINTS = [
    create, get, create_batch, list_tasks, history, explain, cancel, retry, cancel_matching, retry_matching, peek
]  # fmt: skip
