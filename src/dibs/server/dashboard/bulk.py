"""Bulk actions on tasks: on selected tasks, or in small batches on all tasks that match a query.

The page requests one batch after the other and can stop between them. A batch starts below the last id of the previous
batch, so that no task is changed twice, and no task that was enqueued after the first batch is changed.
"""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from dibs.batch_size import BatchSize
from dibs.model.key import Scope
from dibs.model.search import TaskSearch, TaskSummary
from dibs.model.task import CANCELLABLE, RETRYABLE, State
from dibs.server.dashboard.page import PageRequest, PageResult, page, wants_json
from dibs.server.dashboard.search import TaskQuery, search_tasks
from dibs.store.operation import Operation
from dibs.wire.errors import RequestRefused

MAX_PICKED = 100
SCRIPT_SECONDS = 0.08
"""Seconds of work in a request of a script, which sends requests until all tasks are done."""

PAGE_SECONDS = 5.0
"""Seconds of work in a request of a browser without scripts."""

Action = Literal["retry", "cancel", "redrive", "discard"]
STATES = {
    "retry": RETRYABLE,
    "cancel": CANCELLABLE,
    "redrive": frozenset({State.FAILED}),
    "discard": frozenset({State.FAILED}),
}
DEAD_LETTER_ACTIONS = frozenset({"redrive", "discard"})
"""Actions on tasks of the dead letter only."""

NEEDS = {"retry": Scope.ENQUEUE, "cancel": Scope.ENQUEUE, "redrive": Scope.ADMIN, "discard": Scope.ADMIN}


class BulkRequest(TaskQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bulk action on the tasks with `ids`, or on all that match.

    `sure`: the user has confirmed. `to`: the page to return to after the action.
    """

    action: Action
    which: Literal["picked", "matching"] = "picked"
    ids: str = ""
    cursor: int | None = None
    sure: Literal["yes"] | None = None
    to: Literal["tasks", "dead"] = "tasks"

    @property
    def return_path(self) -> str:
        """The page to return to after the action."""
        if self.to == "tasks":
            return self.address()
        query = TaskQuery(queue=self.queue, type=None if self.alike else self.type, error=self.error)
        return query.address("/dead")

    def picked(self) -> list[int]:
        """Return the ids of the selected tasks, newest first."""
        ids = [part for part in self.ids.split(",") if part]
        if len(ids) > MAX_PICKED or not all(part.isdecimal() and len(part) < 19 for part in ids):
            raise RequestRefused("bad_request", f"The ids are not valid: a request takes up to {MAX_PICKED} task ids.")
        return sorted({int(part) for part in ids}, reverse=True)


class BatchResult(msgspec.Struct, frozen=True):
    """The result of a batch. `cursor`: where the next batch starts; None: all tasks are done."""

    moved: int
    looked: int
    cursor: int | None


@page("POST", "/tasks/bulk", Scope.ENQUEUE, Scope.ADMIN, form=BulkRequest)
async def bulk(request: PageRequest) -> PageResult:
    """Run a bulk action: one batch for a script; for a browser without scripts a confirmation page, then the action."""
    bulk_request: BulkRequest = request.body
    _check_scope(request, bulk_request.action)
    if wants_json(request.http[0]):
        return request.json(await run_bulk(request, bulk_request, SCRIPT_SECONDS))
    if bulk_request.sure is None:
        return request.render(
            "confirm.html",
            bulk_request=bulk_request,
            count=len(bulk_request.picked()),
            example=await _example(request, bulk_request),
        )
    done = await run_bulk(request, bulk_request, PAGE_SECONDS)
    return request.redirect_with_notice(bulk_request.return_path, summarize(bulk_request.action, done))


async def _example(request: PageRequest, bulk_request: BulkRequest) -> TaskSummary | None:
    """Return a task with the error of the query: the name of an error group alone does not describe it."""
    return next(iter((await search_tasks(request, bulk_request, None, 1)).tasks), None) if bulk_request.alike else None


async def run_bulk(request: PageRequest, bulk_request: BulkRequest, seconds: float) -> BatchResult:
    """Run the action for up to `seconds` seconds."""
    if bulk_request.which == "picked":
        return await _run_picked(request, bulk_request)
    return await _run_matching(request, bulk_request, seconds)


async def _run_picked(request: PageRequest, bulk_request: BulkRequest) -> BatchResult:
    ids = bulk_request.picked()
    visible = await request.visible(ids)
    allowed = [task_id for task_id in ids if visible is None or task_id in visible]
    if bulk_request.action in DEAD_LETTER_ACTIONS:
        allowed = [task_id for task_id in allowed if await _is_dead(request, task_id)]
    return BatchResult(
        await request.run(_operation(request, bulk_request.action, allowed)) if allowed else 0, len(ids), None
    )


async def _is_dead(request: PageRequest, task_id: int) -> bool:
    criteria = TaskSearch(id=task_id, dead=True)
    return bool((await request.run(request.service.store.tasks.search(criteria))).tasks)


async def _run_matching(request: PageRequest, bulk_request: BulkRequest, seconds: float) -> BatchResult:
    began, moved, looked, cursor, batches = time.monotonic(), 0, 0, bulk_request.cursor, BatchSize()
    query = (
        msgspec.structs.replace(bulk_request, dead="yes")
        if bulk_request.action in DEAD_LETTER_ACTIONS
        else bulk_request
    )
    while True:
        left = seconds - (time.monotonic() - began)
        found = await search_tasks(request, query, cursor, batches.size, min(max(left, seconds / 4), SCRIPT_SECONDS))
        start = time.monotonic()
        ids = [task.id for task in found.tasks if _is_changeable(task, bulk_request.action)]
        moved += await request.run(_operation(request, bulk_request.action, ids, query.state)) if ids else 0
        batches.took(time.monotonic() - start)
        looked, cursor = looked + found.looked, found.cursor
        if cursor is None or time.monotonic() - began >= seconds:
            # The number of inspected tasks would reveal to a limited key how many tasks other queues have.
            return BatchResult(moved, looked if request.caller.queues is None else 0, cursor)


def _is_changeable(task: TaskSummary, action: Action) -> bool:
    return task.state in STATES[action]


def _operation(request: PageRequest, action: Action, ids: list[int], state: State | None = None) -> Operation[int]:
    store, only = request.service.store, request.caller.queues
    if action == "discard":
        return store.tasks.discard_many(ids, only)
    return store.tasks.cancel_many(ids, only, state) if action == "cancel" else store.tasks.retry_many(ids, only, state)


def _check_scope(request: PageRequest, action: Action) -> None:
    """Check the scopes that the API requires: `enqueue` to retry and cancel, `admin` to redrive and discard."""
    request.caller.check_scopes(frozenset({NEEDS[action]}))


def summarize(action: Action, done: BatchResult) -> str:
    """Return a sentence that describes the result."""
    tasks = "1 task" if done.moved == 1 else f"{done.moved:,} tasks"
    sentence = {"cancel": f"Cancelled {tasks} or requested cancellation.", "discard": f"Discarded {tasks}."}.get(
        action, f"Retried {tasks}."
    )
    return sentence if done.cursor is None else f"{sentence} More tasks may match: repeat the action to continue."


PAGES = [bulk]
