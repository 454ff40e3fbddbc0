"""Tasks: enqueue, read, search, change, cancel and retry them."""

from __future__ import annotations

import msgspec

from dibs import procedures
from dibs.errors import TaskNotFound
from dibs.model import search
from dibs.model.key import Scope
from dibs.model.search import BulkResult, TaskFilter, TaskMatch, check_not_everything
from dibs.observe import tracing
from dibs.server.api.limits import check_new_tasks
from dibs.server.endpoint import TRACEPARENT, Answer, Call, endpoint
from dibs.store.operation import drive_async
from dibs.wire import tasks as wire
from dibs.wire.claims import PeekBody
from dibs.wire.fields import Empty
from dibs.wire.history import OneHistory

TAG = "tasks"
SEARCH_SECONDS = 1.0
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
        201: (wire.Created, "The task is stored durably."),
        200: (
            wire.Created,
            "The idempotency key is in use: this is the existing task, replaced if you asked for that.",
        ),
    },
    refuses={
        409: "The idempotency key belongs to a task of this queue with another type or other params, or on_conflict is "
        "raise."
    },
    examples={"a task": EXAMPLE, "in an hour": {**EXAMPLE, "delay_seconds": 3600, "idempotency_key": "video-abc123"}},
    headers=(TRACEPARENT,),
)
async def create(call: Call) -> Answer:
    """Enqueue a task.

    The task is durable when the answer arrives. With an `idempotency_key` the request can be repeated safely: the same
    key with the same type and params returns the existing task. Each queue has its own idempotency keys.

    `key_scope` or `key_for_seconds` limit how long the task has its key, and `on_conflict` decides what happens if a
    task has it. With `replace`, a task that has not started gets the new params, priority, due time, expiry, tags,
    group and limits; the answer has `replaced`. A key that ends does not make a repetition safe by itself: send a
    `request_id` as well.
    """
    new = tracing.with_trace(call.body.to_model(), call.trace)
    await check_new_tasks(call, [new])
    task = await call.service.coalesced.enqueue(new, call.caller.by)
    return Answer(wire.Created.from_model(task), 200 if task.deduplicated else 201)


@endpoint(
    "POST",
    "/api/tasks/batch",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.BatchBody,
    answers={
        201: (wire.CreatedBatch, "All tasks are stored durably."),
        200: (wire.CreatedBatch, "All tasks existed before."),
    },
    refuses={409: "An idempotency key belongs to a task with another type or other params; nothing was stored."},
    examples={"two tasks": {"tasks": [EXAMPLE, {**EXAMPLE, "params": {"video_id": "def456"}}]}},
    headers=(TRACEPARENT,),
)
async def create_batch(call: Call) -> Answer:
    """Enqueue up to 1000 tasks in one transaction, all or none."""
    new = tracing.tasks_with_trace(call.body.to_model(), call.trace)
    await check_new_tasks(call, new)
    tasks = await call.run(call.service.store.queue.enqueue(new))
    return Answer(wire.CreatedBatch.from_model(tasks), 200 if all(task.deduplicated for task in tasks) else 201)


@endpoint(
    "GET", "/api/tasks/{id:int}", Scope.READ, tag=TAG, answers={200: (wire.OneTask, "The task.")}, refuses={404: ""}
)
async def get(call: Call) -> Answer:
    """Read a task."""
    task = await call.run(call.service.store.tasks.get(call.task_id))
    if task is None or not call.caller.serves(task.queue):
        raise TaskNotFound(call.task_id)
    return Answer(wire.OneTask.from_model(task))


@endpoint(
    "POST",
    "/api/tasks/read",
    Scope.READ,
    tag=TAG,
    body=wire.ReadManyBody,
    answers={200: (wire.FoundTasks, "The tasks that exist; repeat the request with `left` until that is empty.")},
    examples={"two tasks": {"ids": [123, 124]}},
)
async def get_many(call: Call) -> Answer:
    """Read up to 1000 tasks by their ids."""
    found = await call.run(call.service.store.tasks.get_many(call.body.ids, call.caller.queues))
    return Answer(wire.FoundTasks.from_model(found))


@endpoint(
    "POST",
    "/api/tasks/states",
    Scope.READ,
    tag=TAG,
    body=wire.StatesBody,
    answers={200: (wire.TaskStates, "The ids of the tasks in each state.")},
    examples={"two tasks": {"ids": [123, 124]}},
)
async def states(call: Call) -> Answer:
    """Read the states of up to 10,000 tasks, to wait for all of them with few requests."""
    found = await call.run(call.service.store.tasks.states(call.body.ids, call.caller.queues))
    return Answer(wire.TaskStates.from_model(found))


@endpoint(
    "GET", "/api/tasks", Scope.READ, tag=TAG, query=wire.ListQuery, answers={200: (wire.Page, "A page of tasks.")}
)
async def list_tasks(call: Call) -> Answer:
    """List tasks, newest first, page by page.

    With `worker`, `since`, `until` or `text` the server searches the tasks for about a second. A page may then have
    fewer tasks than `limit`, or none, and still a `next_cursor`: continue with it until it is null. A page of large
    tasks ends early as well, after about 4 MB of params, results and errors.
    """
    query: wire.ListQuery = call.query or wire.ListQuery()
    which = _matching(call, query)
    if which.needs_search:
        procedure = procedures.find(call.service.store, which, query.cursor, query.limit, SEARCH_SECONDS)
        found = await drive_async(procedure, call.run)  # type: ignore[arg-type]  # this procedure never waits
        return Answer(wire.Page.from_model(found))
    listed = TaskFilter(**which.filters(), limit=query.limit, cursor=query.cursor)
    page = await call.run(call.service.store.tasks.list_tasks(listed, search.PAGE_CONTENT))
    return Answer(wire.Page.from_model(page))


def _matching(call: Call, query: wire.ListQuery | wire.MatchBody) -> TaskMatch:
    """Return the filters of a request, limited to the queues of the caller."""
    if query.queue is not None:
        call.caller.check_queue(query.queue)
    return query.to_model(call.caller.queues if query.queue is None else None)


@endpoint(
    "GET",
    "/api/tasks/{id:int}/history",
    Scope.READ,
    tag=TAG,
    answers={200: (OneHistory, "The entries in order.")},
    refuses={404: ""},
)
async def history(call: Call) -> Answer:
    """Read the history of a task. It is kept longer than the task."""
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
    answers={200: (wire.OneExplanation, "The reasons at this time.")},
    refuses={404: ""},
)
async def explain(call: Call) -> Answer:
    """Explain why a task is not running."""
    await call.check_visible(call.task_id)
    explaining = call.service.store.tasks.explain(call.task_id, call.caller.queues)
    return Answer(wire.OneExplanation.from_model(await call.run(explaining)))


@endpoint(
    "PATCH",
    "/api/tasks/{id:int}",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.ChangeBody,
    answers={200: (wire.ChangedTask, "The task has the new values.")},
    refuses={
        404: "",
        409: "A claim came first (`already_started`), the task is finished (`wrong_state`), or another task has its"
        " idempotency key in the new queue (`key_conflict`).",
    },
    examples={
        "sooner": {"priority": 9, "delay_seconds": 0},
        "another queue": {"queue": "mail"},
        "another group": {"group": "acme"},
    },
)
async def change(call: Call) -> Answer:
    """Change a task that has not started: its priority, due time, queue, params, tags or group.

    The next worker that claims the task gets the new values. `params` and `tags` replace all params and tags. A change
    after which a limit per group would have no group is refused. If the answer is lost, read the task before you repeat
    the request.
    """
    change = call.body.to_model()
    if change.queue is not None:
        call.caller.check_queue(change.queue)
    task = await call.run(call.service.store.tasks.change(call.task_id, change, call.caller.queues))
    return Answer(wire.ChangedTask.from_model(task))


@endpoint(
    "POST",
    "/api/tasks/change",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.ChangeMatchingBody,
    answers={200: (wire.MovedTasks, "The number of tasks that were changed.")},
    examples={"a type first": {"task_type": "youtube_video_scrape", "changes": {"priority": 9}}},
)
async def change_matching(call: Call) -> Answer:
    """Change all tasks that match and have not started, newest first: priority, due time, queue, tags or group.

    One request works for about a second: repeat it with `next_cursor` as `cursor` until that is null. Claimed and
    finished tasks do not change, nor does a task whose idempotency key is taken in its new queue, or one that a limit
    per group would find without a group.
    """
    which, change = _tasks_to_change(call), call.body.changes.to_model()
    if change.queue is not None:
        call.caller.check_queue(change.queue)
    some = procedures.change_some(call.service.store, change, which, call.body.cursor, SEARCH_SECONDS)
    return await _changed(call, some)


@endpoint(
    "POST",
    "/api/tasks/{id:int}/cancel",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedTask, "The task was cancelled, or its worker is asked to stop it.")},
    refuses={404: "", 409: "The task is finished."},
)
async def cancel(call: Call) -> Answer:
    """Cancel a task. A waiting task is cancelled at once; the worker of a claimed task is asked to stop it."""
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
    answers={200: (wire.ChangedTask, "The task is pending, with all its attempts.")},
    refuses={404: "", 409: "The task is neither failed nor cancelled nor scheduled."},
)
async def retry(call: Call) -> Answer:
    """Retry a failed, cancelled or scheduled task: it can be claimed now."""
    await call.check_visible(call.task_id)
    task = await call.run(call.service.store.tasks.retry(call.task_id, call.caller.queues))
    return Answer(wire.ChangedTask.from_model(task))


@endpoint(
    "POST",
    "/api/tasks/cancel",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.MatchBody,
    answers={200: (wire.MovedTasks, "The number of tasks that were cancelled or asked to stop.")},
    examples={"all tasks of a type": {"task_type": "youtube_video_scrape", "status": "pending"}},
)
async def cancel_matching(call: Call) -> Answer:
    """Cancel all tasks that match, newest first.

    One request works for about a second: repeat it with `next_cursor` as `cursor` until that is null. Finished
    tasks do not change.
    """
    which = _tasks_to_change(call)
    return await _changed(call, procedures.cancel_some(call.service.store, which, call.body.cursor, SEARCH_SECONDS))


@endpoint(
    "POST",
    "/api/tasks/retry",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.MatchBody,
    answers={200: (wire.MovedTasks, "The number of tasks that are pending again.")},
    examples={"tasks with one error": {"status": "failed", "text": "503 Service Unavailable"}},
)
async def retry_matching(call: Call) -> Answer:
    """Retry all tasks that match and are failed, cancelled or scheduled, newest first, with all their attempts.

    One request works for about a second: repeat it with `next_cursor` as `cursor` until that is null.
    """
    which = _tasks_to_change(call)
    return await _changed(call, procedures.retry_some(call.service.store, which, call.body.cursor, SEARCH_SECONDS))


def _tasks_to_change(call: Call) -> TaskMatch:
    """Return the filters of a request that changes tasks. Refuse a request without any filter."""
    which = _matching(call, call.body)
    check_not_everything(which)
    # A queue in the filter narrows the search; the changes stay limited to the queues of the caller.
    return msgspec.structs.replace(which, queues=call.caller.queues)


async def _changed(call: Call, procedure: procedures.Procedure[BulkResult]) -> Answer:
    moved = await drive_async(procedure, call.run)  # type: ignore[arg-type]  # this procedure never waits
    return Answer(wire.MovedTasks.from_model(moved))


@endpoint(
    "POST",
    "/api/tasks/peek",
    Scope.READ,
    tag=TAG,
    body=PeekBody,
    answers={200: (wire.ManyTasks, "In the order in which they would be claimed.")},
    examples={"the next three": {"count": 3}},
)
async def peek(call: Call) -> Answer:
    """Read the tasks that a claim would take next, without claiming them: about 4 MB of params at most."""
    body: PeekBody = call.body
    filters = body.to_model(call.caller.narrow(body.queues))
    tasks = await call.run(call.service.store.queue.peek(filters, search.PAGE_CONTENT))
    return Answer(wire.ManyTasks.from_model(tasks))


ENDPOINTS = [
    create, get, create_batch, get_many, states, list_tasks, history, explain, change, cancel, retry, change_matching,
    cancel_matching, retry_matching, peek
]  # fmt: skip
