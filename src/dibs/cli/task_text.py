"""Print all fields of a task, and its history, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from dibs.cli import text
from dibs.cli.output import Column, Output
from dibs.model.history import HistoryEntry
from dibs.model.task import Failure, State, Task
from dibs.model.unique import describe_scope

HISTORY_COLUMNS = (
    Column("at (UTC)"),
    Column("event"),
    Column("from", by_state=True),
    Column("to", by_state=True),
    Column("token", right=True),
    Column("worker"),
    Column("by"),
    Column("detail", stretch=True),
)
BAR = 20


def show_task(output: Output, task: Task, limits: Sequence[tuple[str, str]], log_lines: int) -> None:
    """Print all fields of a task. `limits`: those that apply to it, each with its origin. `log_lines`: how many its
    handlers have logged."""
    logs = [("logs", f"{text.count(log_lines, 'line')}: dibs tasks logs {task.id}")] if log_lines else []
    output.print_fields([*_state_fields(task, limits), *_time_fields(task), *_data_fields(task), *logs])


def show_history(output: Output, entries: Sequence[HistoryEntry]) -> None:
    """Print history entries in order."""
    if not output.as_json:
        output.print_table(HISTORY_COLUMNS, [_entry(entry) for entry in entries])


def bar(percent: int, width: int = BAR) -> str:
    """Return a progress bar."""
    filled = percent * width // 100
    return "█" * filled + "░" * (width - filled)


def progress(task: Task) -> str:
    """Return the progress of the task as text: a bar and the message of its handler."""
    if task.progress is None:
        return ""
    message = f" {text.line(task.progress_message)}" if task.progress_message else ""
    return f"{bar(task.progress)} {task.progress} %{message}"


def _entry(entry: HistoryEntry) -> tuple[object, ...]:
    detail = "" if entry.detail is None else text.compact(entry.detail)
    moves = entry.event.value, entry.from_state or "", entry.to_state.value, entry.token
    return f"{entry.at:%Y-%m-%d %H:%M:%S.%f}", *moves, entry.worker_id or "", entry.by or "", detail


def _state_fields(task: Task, limits: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    yield "id", str(task.id)
    yield "type", text.line(task.type) + (f" (version {task.type_version})" if task.type_version else "")
    yield "state", task.state.value
    if task.cancel_requested:
        yield "cancel", "requested"
    yield "queue", text.line(task.queue)
    yield "priority", str(task.priority)
    yield "attempts", f"{task.attempts} of {task.max_attempts}"
    if task.state is State.FAILED and task.error is not None and task.error.permanent:
        yield "failure", "permanent: no further attempt was made"
    if task.dropped:
        yield "dropped", f"{text.count(task.dropped, 'time')} by workers that died before the attempt started"
    yield "token", str(task.token)
    if task.worker_id:
        yield "worker", text.line(task.worker_id)
    if task.key:
        scope = describe_scope(task)
        yield "key", text.line(task.key) + (f" ({scope})" if scope else "")
    yield from _labels(task, limits)
    if task.workflow_id:
        yield "workflow", str(task.workflow_id)
    if task.timeout:
        yield "timeout", f"{task.timeout:g} s"


def _time_fields(task: Task) -> Iterator[tuple[str, str]]:
    now = datetime.now(UTC)
    for name, at in (
        ("created", task.created_at),
        ("run at", None if task.finished else task.run_at),
        ("expires at", task.expires_at),
        ("claimed", task.claimed_at),
        ("lease until", task.lease_until),
        ("finished", task.finished_at),
    ):
        if at is not None:
            yield name, f"{at:%Y-%m-%d %H:%M:%S.%f} UTC ({text.relative(at, now)})"


def _data_fields(task: Task) -> Iterator[tuple[str, str]]:
    if shown := progress(task):
        yield "progress", shown
    yield "params", text.pretty(task.params)
    if task.raw_result is not None:
        yield "result", text.pretty(task.raw_result)
    if task.error is not None:
        yield "error", _error(task.error)


def _error(error: Failure) -> str:
    summary = f"{error.type}: {error.message}"
    trace = (error.traceback or "").rstrip()
    return text.lines(
        trace if summary in trace else f"{summary}\n{trace}".rstrip()
    )  # a traceback ends in the same text


def _labels(task: Task, limits: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    if task.tags:
        yield "tags", text.line(", ".join(task.tags))
    if task.group is not None:
        yield "group", text.line(task.group)
    if limits:
        yield "limits", text.line(", ".join(f"{name}{_ORIGINS[origin]}" for name, origin in limits))


_ORIGINS = {"task": "", "type": " (of its type)", "queue": " (of its queue)"}
