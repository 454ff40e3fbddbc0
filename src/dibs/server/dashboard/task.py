"""One task: where it stands, who holds it, what it was given and came to, every attempt, and why it does not run."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from dibs.errors import TaskNotFound
from dibs.model.history import RecentHistory
from dibs.model.key import Scope
from dibs.model.task import FINAL, SetAside, State, Task
from dibs.model.workflow import WORKFLOW_STEP, Workflow
from dibs.server.dashboard.attempts import attempts_of, line_of
from dibs.server.dashboard.page import Content, Visit, page
from dibs.server.dashboard.texts import excerpt, pretty, str_of, whole_error, whole_json
from dibs.wire.errors import RequestRefused

ENTRIES, MOST_ENTRIES = 200, 2000
"""Entries of the history on a page, the last ones; and where all are asked for."""

PLAIN = (b"content-type", b"text/plain; charset=utf-8")
CLOSED = (b"content-security-policy", b"default-src 'none'; sandbox")
_TICK = re.compile(r"schedule:(.+):(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")


class Shown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of the history."""

    history: Literal["all"] | None = None


@page("GET", "/tasks/{id:int}", Scope.READ, query=Shown)
async def one_task(visit: Visit) -> Content:
    """The task, or what its history still tells of it."""
    store, task_id = visit.service.store, visit.task_id
    await visit.check_visible(task_id)
    task = await visit.run(store.tasks.get(task_id))
    past = await visit.run(store.history.latest_history(task_id, MOST_ENTRIES if visit.query.history else ENTRIES))
    if task is None:
        return _show_pruned(visit, past)
    context: dict[str, Any] = {
        "task": task,
        "reasons": (await visit.run(store.tasks.explain(task_id, visit.caller.queues))).reasons,
        "params": pretty(task.params),
        "result": None if task.result is None else pretty(task.result),
        "error": None if task.error is None else _error(task),
        "workflow": await _workflow(visit, task),
        "schedule": _TICK.fullmatch(task.key or ""),
        "cancels": visit.may(Scope.ENQUEUE) and _can_be_cancelled(task),
        "retries": visit.may(Scope.ENQUEUE) and _can_be_retried(task),
        "discards": visit.may(Scope.ADMIN) and task.state is State.FAILED and task.set_aside is None,
    }
    return visit.render("task.html", **context, **_past(past))


def _show_pruned(visit: Visit, past: RecentHistory) -> Content:
    if not past.entries:
        raise TaskNotFound(visit.task_id)
    return visit.render("task_gone.html", id=visit.task_id, **_past(past))


def _past(past: RecentHistory) -> dict[str, Any]:
    attempts = attempts_of(past.entries, datetime.now(UTC))
    return {"attempts": attempts, "line": line_of(attempts), "past": past, "most": MOST_ENTRIES}


def _error(task: Task) -> dict[str, Any]:
    assert task.error is not None
    return {"said": excerpt(str_of(task.error)), "traceback": task.error.traceback and excerpt(task.error.traceback)}


async def _workflow(visit: Visit, task: Task) -> Workflow | None:
    """The workflow that it is a step of, if the visitor may see all of it."""
    if task.workflow_id is None:
        return None
    found = await visit.run(visit.service.store.workflows.get_workflow(task.workflow_id))
    return found if found is not None and all(visit.caller.serves(queue) for queue in found.queues) else None


def _can_be_cancelled(task: Task) -> bool:
    stands_for_a_workflow = task.type == WORKFLOW_STEP and task.state is State.CLAIMED
    return task.state not in FINAL and not task.cancel_requested and not stands_for_a_workflow


def _can_be_retried(task: Task) -> bool:
    ended = task.state in (State.FAILED, State.CANCELLED, State.SCHEDULED)
    return ended and task.set_aside is not SetAside.IGNORED


@page("GET", "/tasks/{id:int}/whole/{name:name}", Scope.READ)
async def whole(visit: Visit) -> Content:
    """The params, the result or the error, all of it, as a file that no browser takes for a page."""
    await visit.check_visible(visit.task_id)
    task = await visit.run(visit.service.store.tasks.get(visit.task_id))
    if task is None:
        raise TaskNotFound(visit.task_id)
    part = visit.path["name"]
    text = _whole(task, part)
    if text is None:
        raise RequestRefused(
            "not_found", f"Task {task.id} has no such part.", hint="There are params, result and error."
        )
    kind = "txt" if part == "error" else "json"
    name = f'attachment; filename="task-{task.id}-{quote(part)}.{kind}"'.encode()
    return Content(text.encode(errors="replace"), 200, (PLAIN, (b"content-disposition", name), CLOSED))


def _whole(task: Task, part: str) -> str | None:
    if part == "params":
        return whole_json(task.params)
    if part == "result" and task.result is not None:
        return whole_json(task.result)
    return whole_error(task.error) if part == "error" and task.error is not None else None


@page("POST", "/tasks/{id:int}/cancel", Scope.ENQUEUE)
async def cancel(visit: Visit) -> Content:
    """Cancel it, or ask its worker to stop."""
    await visit.check_visible(visit.task_id)
    task = await visit.run(visit.service.store.tasks.cancel(visit.task_id, visit.caller.queues))
    said = "Cancelled." if task.state is State.CANCELLED else "Its worker is asked to stop."
    return visit.back(f"/tasks/{task.id}", said)


@page("POST", "/tasks/{id:int}/retry", Scope.ENQUEUE)
async def retry(visit: Visit) -> Content:
    """Send it back to be claimed now."""
    await visit.check_visible(visit.task_id)
    task = await visit.run(visit.service.store.tasks.retry(visit.task_id, visit.caller.queues))
    return visit.back(f"/tasks/{task.id}", f"It is {task.state}, with all its attempts.")


@page("POST", "/tasks/{id:int}/discard", Scope.ADMIN)
async def discard(visit: Visit) -> Content:
    """Take it out of the dead letter."""
    await visit.check_visible(visit.task_id)
    task = await visit.run(visit.service.store.tasks.discard(visit.task_id, visit.caller.queues))
    return visit.back(f"/tasks/{task.id}", "Discarded: it stays failed, and is not in the dead letter any more.")


PAGES = [one_task, whole, cancel, retry, discard]
