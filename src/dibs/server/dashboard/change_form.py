"""The form that changes a task that has not started: its fields, and the changes that a submitted form asks for."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

import msgspec

from dibs.encoded import is_encoded
from dibs.errors import InvalidValue, TaskNotFound, WrongState
from dibs.json_values import fingerprint
from dibs.model.change import TaskChange
from dibs.model.checks import read_duration
from dibs.model.key import Scope
from dibs.model.task import WAITING, State, Task
from dibs.model.workflow import WORKFLOW_STEP
from dibs.server.dashboard.page import PageRequest, PageResult, page
from dibs.server.dashboard.texts import pretty
from dibs.server.endpoint import decode_json

EDITABLE = 5000
"""The largest number of characters of params that the form shows; the command line changes larger ones."""

_PARAMS = msgspec.json.Decoder(dict[str, Any])


class ChangeForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of the form; an empty field is missing. `seen`: the values of the task when the form was rendered."""

    seen: str = ""
    priority: int | None = None
    queue: str | None = None
    due: str | None = None
    tags: str = ""
    group: str = ""
    params: str | None = None

    def changes(self, task: Task) -> dict[str, Any]:
        """Return the fields that differ from the task, as arguments of TaskChange."""
        given: dict[str, Any] = {"priority": self.priority, "queue": self.queue, "params": _read_params(self.params)}
        given["tags"] = [tag.strip() for tag in self.tags.split(",") if tag.strip()]
        if given["params"] is not None and _same_params(task, given["params"]):
            del given["params"]
        if (group := self.group.strip()) != (task.group or ""):
            given["group"] = group
        changed = {name: value for name, value in given.items() if value not in (None, getattr(task, name))}
        return changed if self.due is None else changed | _read_due(self.due)


def form_of(task: Task) -> dict[str, Any] | None:
    """Return what the template needs to show the form; None for a task that cannot be changed."""
    if task.state not in WAITING or task.type == WORKFLOW_STEP:
        return None
    params = pretty(task.params)
    return {
        "seen": _values_of(task),
        "params": params.text if len(params.text) <= EDITABLE and not is_encoded(task.params) else None,
        "encoded": is_encoded(task.params),
        "queue": task.workflow_id is None,
        "due": task.state is not State.BLOCKED,
    }


def _values_of(task: Task) -> str:
    """Return a text that differs for other values of the task."""
    values = task.priority, task.queue, task.run_at, task.tags, task.group, task.params
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()[:16]


def _same_params(task: Task, params: dict[str, Any]) -> bool:
    return fingerprint(task.type, params) == fingerprint(task.type, task.params)


def _read_params(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    params: dict[str, Any] = decode_json(_PARAMS, text.encode(errors="surrogatepass"))
    return params


def _read_due(text: str) -> dict[str, Any]:
    """Return the due time as a delay from now, or as a time."""
    text = text.strip()
    if text[-1:] in "smhdw":
        return {"delay": read_duration(text)}
    try:
        return {"run_at": datetime.fromisoformat(text)}
    except ValueError:
        hint = "Write 0s for now, 10m, 2h or 1d from now, or a time with its zone: 2030-01-31T08:00Z."
        raise InvalidValue(f"{text!r} is not a due time.", hint=hint) from None


@page("POST", "/tasks/{id:int}/change", Scope.ENQUEUE, form=ChangeForm)
async def change(request: PageRequest) -> PageResult:
    """Change the task, unless it was changed since the form was rendered."""
    await request.check_visible(request.task_id)
    task = await request.run(request.service.store.tasks.get(request.task_id))
    if task is None:
        raise TaskNotFound(request.task_id)
    form: ChangeForm = request.body
    if task.state in WAITING and form.seen != _values_of(task):
        hint = "Reload the page, and make your changes again."
        message = f"Task {task.id} was changed since this form was opened."
        raise WrongState(message, task_id=task.id, state=task.state, hint=hint)
    changes = form.changes(task)
    if not changes:
        return request.redirect_with_notice(f"/tasks/{task.id}", "Nothing was changed: every value is as before.")
    if "queue" in changes:
        request.caller.check_queue(changes["queue"])
    store = request.service.store
    changed = await request.run(store.tasks.change(task.id, TaskChange(**changes), request.caller.queues))
    names = ", ".join("due time" if name in ("delay", "run_at") else name for name in changes)
    return request.redirect_with_notice(f"/tasks/{task.id}", f"Changed: {names}. The task is {changed.state}.")


PAGES = [change]
