"""The page of one task: state, worker, params, result, error, attempts, history, and why it is not running."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from dibs.errors import TaskNotFound
from dibs.model.history import RecentHistory
from dibs.model.key import Scope
from dibs.model.limit import limits_with_origin
from dibs.model.task import FINAL, SetAside, State, Task
from dibs.model.unique import describe_scope
from dibs.model.workflow import WORKFLOW_STEP, Workflow
from dibs.server.dashboard.attempts import attempts_of, timeline_of
from dibs.server.dashboard.change_form import form_of
from dibs.server.dashboard.page import PageRequest, PageResult, page
from dibs.server.dashboard.task_logs import log_panels
from dibs.server.dashboard.texts import excerpt, pretty, str_of, whole_error, whole_json
from dibs.wire.errors import RequestRefused

ENTRIES, MOST_ENTRIES = 200, 2000
"""Maximum number of history entries on the page, newest last; by default, and with `history=all`."""

PLAIN = (b"content-type", b"text/plain; charset=utf-8")
SANDBOX = (b"content-security-policy", b"default-src 'none'; sandbox")
_SCHEDULE_KEY = re.compile(r"schedule:(.+):(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")


class TaskPageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The length of the history on the page."""

    history: Literal["all"] | None = None


@page("GET", "/tasks/{id:int}", Scope.READ, query=TaskPageQuery)
async def one_task(request: PageRequest) -> PageResult:
    """Render the task; for a pruned task, its history."""
    store, task_id = request.service.store, request.task_id
    await request.check_visible(task_id)
    task = await request.run(store.tasks.get(task_id))
    history = await request.run(
        store.history.latest_history(task_id, MOST_ENTRIES if request.query.history else ENTRIES)
    )
    if task is None:
        return _show_pruned(request, history)
    context: dict[str, Any] = {
        "task": task,
        "reasons": (await request.run(store.tasks.explain(task_id, request.caller.queues))).reasons,
        "params": pretty(task.params),
        "result": None if task.raw_result is None else pretty(task.raw_result),
        "error": None if task.error is None else _error(task),
        "workflow": await _workflow(request, task),
        "logs": await log_panels(request, task_id),
        "limits": limits_with_origin(
            task.limits,
            await request.run(store.limits.get_type_settings(task.type)),
            await request.run(store.limits.get_queue(task.queue)),
        ),
        "key_scope": describe_scope(task),
        "schedule": _SCHEDULE_KEY.fullmatch(task.key or ""),
        "form": form_of(task) if request.may(Scope.ENQUEUE) else None,
        "type_is_paused": any(each.name == task.type for each in await request.run(store.registry.paused_types())),
        "may_pause_type": request.may(Scope.ADMIN) and request.caller.queues is None,
        "may_cancel": request.may(Scope.ENQUEUE) and _can_be_cancelled(task),
        "may_retry": request.may(Scope.ENQUEUE) and _can_be_retried(task),
        "may_discard": request.may(Scope.ADMIN) and task.state is State.FAILED and task.set_aside is None,
    }
    return request.render("task.html", **context, **_history_context(history))


def _show_pruned(request: PageRequest, history: RecentHistory) -> PageResult:
    if not history.entries:
        raise TaskNotFound(request.task_id)
    return request.render("task_pruned.html", id=request.task_id, **_history_context(history))


def _history_context(history: RecentHistory) -> dict[str, Any]:
    attempts = attempts_of(history.entries, datetime.now(UTC))
    return {"attempts": attempts, "timeline": timeline_of(attempts), "history": history, "most": MOST_ENTRIES}


def _error(task: Task) -> dict[str, Any]:
    assert task.error is not None
    return {"summary": excerpt(str_of(task.error)), "traceback": task.error.traceback and excerpt(task.error.traceback)}


async def _workflow(request: PageRequest, task: Task) -> Workflow | None:
    """Return the workflow of the task, if the visitor may see all its queues."""
    if task.workflow_id is None:
        return None
    found = await request.run(request.service.store.workflows.get_workflow(task.workflow_id))
    return found if found is not None and all(request.caller.serves(queue) for queue in found.queues) else None


def _can_be_cancelled(task: Task) -> bool:
    is_sub_workflow = task.type == WORKFLOW_STEP and task.state is State.CLAIMED
    return task.state not in FINAL and not task.cancel_requested and not is_sub_workflow


def _can_be_retried(task: Task) -> bool:
    ended = task.state in (State.FAILED, State.CANCELLED, State.SCHEDULED)
    return ended and task.set_aside is not SetAside.IGNORED


@page("GET", "/tasks/{id:int}/whole/{name:name}", Scope.READ)
async def whole(request: PageRequest) -> PageResult:
    """Return the complete params, result or error as a download that browsers do not render."""
    await request.check_visible(request.task_id)
    task = await request.run(request.service.store.tasks.get(request.task_id))
    if task is None:
        raise TaskNotFound(request.task_id)
    part = request.path["name"]
    text = _whole(task, part)
    if text is None:
        raise RequestRefused("not_found", f"Task {task.id} has no {part[:40]!r}.", hint="Use params, result or error.")
    kind = "txt" if part == "error" else "json"
    name = f'attachment; filename="task-{task.id}-{quote(part)}.{kind}"'.encode()
    return PageResult(text.encode(errors="replace"), 200, (PLAIN, (b"content-disposition", name), SANDBOX))


def _whole(task: Task, part: str) -> str | None:
    if part == "params":
        return whole_json(task.params)
    if part == "result" and task.raw_result is not None:
        return whole_json(task.raw_result)
    return whole_error(task.error) if part == "error" and task.error is not None else None


@page("POST", "/tasks/{id:int}/cancel", Scope.ENQUEUE)
async def cancel(request: PageRequest) -> PageResult:
    """Cancel the task, or ask its worker to stop."""
    await request.check_visible(request.task_id)
    task = await request.run(request.service.store.tasks.cancel(request.task_id, request.caller.queues))
    notice = "Cancelled." if task.state is State.CANCELLED else "The worker was asked to stop."
    return request.redirect_with_notice(f"/tasks/{task.id}", notice)


@page("POST", "/tasks/{id:int}/retry", Scope.ENQUEUE)
async def retry(request: PageRequest) -> PageResult:
    """Retry the task: it becomes pending."""
    await request.check_visible(request.task_id)
    task = await request.run(request.service.store.tasks.retry(request.task_id, request.caller.queues))
    return request.redirect_with_notice(
        f"/tasks/{task.id}", f"Retried: the task is {task.state}, with all its attempts."
    )


@page("POST", "/tasks/{id:int}/discard", Scope.ADMIN)
async def discard(request: PageRequest) -> PageResult:
    """Remove the task from the dead letter."""
    await request.check_visible(request.task_id)
    task = await request.run(request.service.store.tasks.discard(request.task_id, request.caller.queues))
    return request.redirect_with_notice(
        f"/tasks/{task.id}", "Discarded: the task stays failed and is removed from the dead letter."
    )


@page("POST", "/tasks/{id:int}/pause-type", Scope.ADMIN)
async def pause_type(request: PageRequest) -> PageResult:
    """Pause the type of the task: no task of this type is claimed."""
    name = await _type_of(request)
    await request.run(request.service.store.registry.pause_type(name))
    notice = f"Task type {name} is paused: claimed tasks continue, no further task of this type is claimed."
    return request.redirect_with_notice(f"/tasks/{request.task_id}", notice)


@page("POST", "/tasks/{id:int}/resume-type", Scope.ADMIN)
async def resume_type(request: PageRequest) -> PageResult:
    """Resume the type of the task: its tasks are claimed again."""
    name = await _type_of(request)
    await request.run(request.service.store.registry.resume_type(name))
    return request.redirect_with_notice(
        f"/tasks/{request.task_id}", f"Task type {name} is resumed: its tasks are claimed again."
    )


async def _type_of(request: PageRequest) -> str:
    request.caller.check_whole_store()  # a type is in all queues
    task = await request.run(request.service.store.tasks.get(request.task_id))
    if task is None:
        raise TaskNotFound(request.task_id)
    return task.type


PAGES = [one_task, whole, cancel, retry, discard, pause_type, resume_type]
