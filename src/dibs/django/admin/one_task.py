"""The page of a task: state and reasons, params, result, error, attempts, history, logs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from django.utils.html import format_html

from dibs.client import Dibs
from dibs.django.admin.html import (
    Html,
    badge,
    excerpt,
    lines,
    link,
    list_url,
    listed,
    moment,
    object_url,
    pre,
    soft,
    text,
)
from dibs.django.admin.parts import ListTable, ObjectPage, PageSection
from dibs.django.models import Limit, Task, Worker, Workflow
from dibs.errors import TaskNotFound
from dibs.model import task as model
from dibs.model.history import HistoryEntry
from dibs.model.logs import LogFilter, LogPage
from dibs.model.unique import describe_scope
from dibs.server.dashboard.attempts import AttemptView, attempts_of
from dibs.server.dashboard.texts import Excerpt, pretty, seconds, shorten, str_of
from dibs.server.dashboard.texts import excerpt as cut

ENTRIES = 200
"""Maximum number of entries of the history on the page, the newest ones."""

ATTEMPTS = 50
LOG_LINES = 500

TASK_HEADINGS = {
    "ignored": "failed, ignored by its workflow",
    "discarded": "failed, discarded",
}


def page_of(request: Any, app: Dibs, task_id: int, site: str) -> ObjectPage:
    """Return the page of a task; for a pruned task, its history."""
    task = app.get(task_id)
    history = app.history(task_id)
    if task is None:
        return _pruned(task_id, history)
    sections = [
        PageSection("State", facts=list(_state(app, task, site))),
        PageSection("Task", facts=list(_facts(task, site))),
        PageSection("Params", content=value(pretty(task.params))),
        PageSection("Result", content=_result(task)),
        *_error(task),
        *_attempts(history),
        *_logs(app, task, request.GET.get("logs")),
        _history(history),
    ]
    return ObjectPage(f"Task {task.id}", task, sections)


def _pruned(task_id: int, history: Sequence[HistoryEntry]) -> ObjectPage:
    if not history:
        raise TaskNotFound(task_id)
    note = PageSection("State", facts=[("State", soft("The task was pruned after its retention; its history stays."))])
    subject = None
    return ObjectPage(f"Task {task_id}", subject, [note, *_attempts(history), _history(history)])


def _state(app: Dibs, task: model.Task, site: str) -> Iterator[tuple[str, Html]]:
    yield "State", badge(task.state, TASK_HEADINGS.get(str(task.set_aside), task.state))
    if task.cancel_requested and not task.finished:
        yield "Cancellation", text("The worker was asked to stop.")
    reasons = app.explain(task.id).reasons
    if reasons:
        yield "Explanation", lines(text(reason.message, 600) for reason in reasons)
    if task.worker_id is not None:
        yield "Worker", link(list_url(site, Worker), task.worker_id)
    if task.lease_until is not None:
        yield "Lease until", moment(task.lease_until)
    if task.progress is not None:
        yield "Progress", text(f"{task.progress} % {task.progress_message or ''}", 500)


def _facts(task: model.Task, site: str) -> Iterator[tuple[str, Html]]:
    yield "Type", link(list_url(site, Task, type=task.type), task.type)
    yield "Queue", link(list_url(site, Task, queue=task.queue), task.queue)
    yield "Attempts", text(f"{task.attempts} of {task.max_attempts}")
    yield "Priority", text(task.priority)
    yield "Created", moment(task.created_at)
    if task.state is model.State.SCHEDULED:
        yield "Due", moment(task.run_at)
    for label, at in {"Expires": task.expires_at, "Claimed": task.claimed_at, "Finished": task.finished_at}.items():
        if at is not None:
            yield label, moment(at)
    if task.timeout is not None:
        yield "Timeout", text(seconds(task.timeout))
    if task.key is not None:
        yield "Key", lines([text(task.key, 255), soft(describe_scope(task) or "")])
    if task.tags:
        yield "Tags", listed(link(list_url(site, Task, tags=tag), tag) for tag in task.tags)
    if task.group is not None:
        yield "Group", text(task.group, 255)
    if task.limits:
        yield "Limits", listed(link(object_url(site, Limit, name), name) for name in task.limits)
    if task.workflow_id is not None:
        yield "Workflow", link(object_url(site, Workflow, task.workflow_id), task.workflow_id)
    yield "Token", text(task.token)


def value(found: Excerpt) -> Html:
    """Return the beginning of a value, and where all of it can be read."""
    return excerpt(found, "The command dibs tasks show prints all of it.")


def _result(task: model.Task) -> Html:
    if task.raw_result is None:
        return soft("The handler returned nothing." if task.state is model.State.COMPLETED else "None.")
    return value(pretty(task.raw_result))


def _error(task: model.Task) -> Iterator[PageSection]:
    if task.error is None:
        return
    parts = [text(str_of(task.error), 2000)]
    if task.error.traceback:
        parts.append(value(cut(task.error.traceback)))
    yield PageSection("Permanent error" if task.error.permanent else "Error", content=lines(parts))


def _attempts(history: Sequence[HistoryEntry]) -> Iterator[PageSection]:
    attempts = [each for each in attempts_of(history, datetime.now(UTC)) if each.run is not None][-ATTEMPTS:]
    if attempts:
        rows = [_attempt(each) for each in attempts]
        yield PageSection("Attempts", table=ListTable(("Attempt", "Worker", "Waited", "Ran", "Outcome", "Error"), rows))


def _attempt(attempt: AttemptView) -> list[Html]:
    assert attempt.run is not None
    error = attempt.error or {}
    words = ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
    return [
        text(attempt.number),
        text(attempt.worker),
        text(seconds(attempt.waited)),
        text(seconds(attempt.run.seconds)),
        badge(attempt.run.kind, attempt.outcome or "running"),
        text(words, 300) if words else soft(""),
    ]


def _history(history: Sequence[HistoryEntry]) -> PageSection:
    left_out = len(history) - ENTRIES
    note = soft(f"{left_out:,} older entries are not shown.") if left_out > 0 else ""
    headings = ("Time", "Event", "State", "Worker", "Token", "By", "Detail")
    return PageSection("History", table=ListTable(headings, [_entry(each) for each in history[-ENTRIES:]]), note=note)


def _entry(entry: HistoryEntry) -> list[Html]:
    detail = "" if not entry.detail else shorten(json.dumps(entry.detail, ensure_ascii=False, default=str), 300)
    return [
        moment(entry.at),
        text(entry.event.value),
        badge(entry.to_state),
        text(entry.worker_id),
        text(entry.token),
        text(entry.by),
        text(detail, 300),
    ]


def _logs(app: Dibs, task: model.Task, after: str | None) -> Iterator[PageSection]:
    """Yield the log lines of the newest attempt, or those after the line `after`."""
    which = LogFilter(after=after or f"{max(task.token - 1, 0)}-999999999", limit=LOG_LINES)
    page: LogPage = app._run(app._store.logs.log_page(task.id, which))
    first = link("?logs=0-0#logs", "From the first line")
    if page.lines:
        shown = "\n".join(f"{each.at:%H:%M:%S.%f} {each.level:<8} {each.message}" for each in page.lines)
        more = f"?logs={page.lines[-1].id}#logs"
        following = format_html(' <a href="{}">Next lines</a>', more) if len(page.lines) == LOG_LINES else ""
        title = f"Logs of attempt {page.lines[0].attempt}" if after is None else "Logs"
        yield PageSection(title, content=pre(shown), note=format_html("{}{}", first, following))
    elif task.token > 1 or after is not None:
        yield PageSection("Logs", content=soft("There is no line."), note=first)
