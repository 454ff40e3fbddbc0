"""The screen of `dibs top`: a header and four tables, which show fewer rows on a small terminal, so nothing scrolls."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dibs.cli import text
from dibs.cli.options import STATES
from dibs.cli.output import STYLES, Column, rich_table
from dibs.cli.snapshot import TopSnapshot
from dibs.cli.task_text import bar
from dibs.model.registry import QueueInfo, WorkerInfo
from dibs.model.task import Task

HEADER = 3
"""Lines of the header."""

WIDE = 100
"""Columns of a terminal on which the table of queues shows every state, with its full name."""

Cells = Sequence[object]
TableSection = tuple[Sequence[Column], list[Cells]]

SHORT = dict(zip(STATES, ("sched", "blocked", "pending", "claimed", "done", "failed", "cancel"), strict=True))
WORKERS = (Column("worker"), Column("state", by_state=True), Column("heartbeat"), Column("holds", stretch=True))
CLAIMED = (
    Column("claimed", right=True),
    Column("type"),
    Column("worker"),
    Column("for", right=True),
    Column("progress", stretch=True),
)
FAILURES = (Column("failed", right=True), Column("type"), Column("when"), Column("error", stretch=True))


def draw(snapshot: TopSnapshot, sparkline: str, width: int, height: int, *, paused: bool = False) -> RenderableType:
    """Return the whole screen."""
    parts = sections(snapshot, width)
    room = share(height - HEADER, [len(rows) for _, rows in parts])
    tables = [_section(columns, rows, room) for (columns, rows), room in zip(parts, room, strict=True) if room]
    return Group(*_header(snapshot, sparkline, width, paused), *tables)


def sections(snapshot: TopSnapshot, width: int) -> list[TableSection]:
    """Return the tables below the header."""
    return [
        _queues(snapshot, width),
        (WORKERS, [_worker(worker) for worker in sorted(snapshot.workers, key=lambda worker: not worker.holds)]),
        (CLAIMED, [_claimed(task, snapshot) for task in snapshot.claimed]),
        (FAILURES, [_failure(task, snapshot) for task in snapshot.failures]),
    ]


def share(height: int, wanted: Sequence[int]) -> list[int]:
    """Return the number of rows that each section shows. `wanted`: the number of rows that each section has.

    A section with rows gets three lines first: a blank line, its title and one row. The lines that are left go to the
    sections one by one, in turn, until every section shows all its rows.
    """
    room = [1 if rows else 0 for rows in wanted]
    left = height - sum(room) * 3
    while left > 0 and (unfilled := [index for index, rows in enumerate(wanted) if 0 < room[index] < rows]):
        for index in unfilled[:left]:
            room[index] += 1
        left -= len(unfilled[:left])
    return room


def _header(snapshot: TopSnapshot, sparkline: str, width: int, paused: bool) -> list[RenderableType]:
    return [
        _left_and_right(width, Text(f"dibs top  {snapshot.url}", "bold"), _clock(snapshot, paused)),
        depth(snapshot),
        _left_and_right(width, speed(snapshot), Text(sparkline[-width // 3 :], "green")),
    ]


def _left_and_right(width: int, left: Text, right: Text) -> Table:
    line = Table.grid(expand=True)
    line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    line.add_column(no_wrap=True, justify="right")
    line.add_row(left, Text("  ").append(right))
    line.width = width
    return line


def _clock(snapshot: TopSnapshot, paused: bool) -> Text:
    return (
        Text("paused: press p to resume", "bold yellow")
        if paused
        else Text(f"{snapshot.at:%H:%M:%S} UTC  q quits", "dim")
    )


def depth(snapshot: TopSnapshot) -> Text:
    """Return the number of tasks in each state."""
    parts: list[tuple[str, str]] = []
    for state in STATES:
        if number := snapshot.stats.depth.get(state, 0):
            parts += [(f"{number:,} ", "bold"), (f"{state}   ", STYLES[state])]
    return Text.assemble(*parts or [("no tasks", "dim")], no_wrap=True, overflow="ellipsis")


def speed(snapshot: TopSnapshot) -> Text:
    """Return the rate of finished tasks, and the age of the oldest pending task."""
    oldest = snapshot.stats.oldest_pending_age
    waiting = "no task is pending" if oldest is None else f"the oldest pending task waits for {text.duration(oldest)}"
    return Text(
        f"{snapshot.per_second:,.1f} finished/s over the last minute, {waiting}", no_wrap=True, overflow="ellipsis"
    )


def _section(columns: Sequence[Column], rows: Sequence[Cells], room: int) -> RenderableType:
    shown = rows if len(rows) <= room else rows[: max(1, room - 1)]
    table = rich_table(columns, shown, expand=True)
    if len(shown) < min(room, len(rows)):
        more = f"… {len(rows) - len(shown)} more"
        first_text = next(index for index, column in enumerate(columns) if not column.right)
        table.add_row(*[""] * first_text, Text(more, "dim"), *[""] * (len(columns) - first_text - 1))
    return Padding(table, (1, 0, 0, 0))


def _queues(snapshot: TopSnapshot, width: int) -> TableSection:
    """Return the queues with all states on a wide terminal, otherwise only with the states that have tasks."""
    wide = width >= WIDE
    states = [state for state in STATES if wide or snapshot.stats.depth.get(state)]
    titles = states if wide else [SHORT[state] for state in states]
    columns = (Column("queue", stretch=True), Column("", by_state=True), *(Column(each, right=True) for each in titles))
    return columns, [_queue(queue, states) for queue in snapshot.queues]


def _queue(queue: QueueInfo, states: list[str]) -> Cells:
    return queue.name, queue.condition, *(f"{queue.depth.get(state, 0):,}" for state in states)


def _worker(worker: WorkerInfo) -> Cells:
    return worker.id, worker.state.value, text.relative(worker.heartbeat_at), " ".join(map(str, worker.holds)) or "-"


def _claimed(task: Task, snapshot: TopSnapshot) -> Cells:
    spent = text.duration(max(0, (snapshot.at - task.claimed_at).total_seconds())) if task.claimed_at else ""
    progress = "" if task.progress is None else f"{bar(task.progress, 10)} {task.progress:3} % "
    return task.id, task.type, task.worker_id or "", spent, progress + (task.progress_message or "")


def _failure(task: Task, snapshot: TopSnapshot) -> Cells:
    error = f"{task.error.type}: {task.error.message}" if task.error else ""
    return task.id, task.type, text.relative(task.finished_at, snapshot.at), error
