"""A snapshot drawn for a terminal of any size: every section gives way before the frame would scroll."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dibs.cli import text
from dibs.cli.options import STATES
from dibs.cli.output import STYLES, Column, rich_table
from dibs.cli.snapshot import Snapshot
from dibs.cli.task_text import bar
from dibs.model.registry import QueueInfo, WorkerInfo
from dibs.model.task import Task

HEADER = 3
WIDE = 100
Row = Sequence[object]
Section = tuple[Sequence[Column], list[Row]]

SHORT = dict(zip(STATES, ("sched", "blocked", "pending", "claimed", "done", "failed", "cancel"), strict=True))
WORKERS = (Column("worker"), Column("state", by_state=True), Column("heartbeat"), Column("holds", stretch=True))
RUNNING = (
    Column("running", right=True),
    Column("type"),
    Column("worker"),
    Column("for", right=True),
    Column("progress", stretch=True),
)
FAILURES = (Column("failed", right=True), Column("type"), Column("when"), Column("error", stretch=True))


def draw(seen: Snapshot, sparkline: str, width: int, height: int, *, paused: bool = False) -> RenderableType:
    """The whole frame."""
    parts = sections(seen, width)
    room = share(height - HEADER, [len(rows) for _, rows in parts])
    tables = [_section(columns, rows, room) for (columns, rows), room in zip(parts, room, strict=True) if room]
    return Group(*_header(seen, sparkline, width, paused), *tables)


def sections(seen: Snapshot, width: int) -> list[Section]:
    """The tables below the header."""
    return [
        _queues(seen, width),
        (WORKERS, [_worker(worker) for worker in sorted(seen.workers, key=lambda worker: not worker.holds)]),
        (RUNNING, [_running(task, seen) for task in seen.running]),
        (FAILURES, [_failure(task, seen) for task in seen.failures]),
    ]


def share(height: int, wanted: Sequence[int]) -> list[int]:
    """Lines for each section: its title, a blank line and at least one row, then what is left, one by one in turn."""
    room = [1 if rows else 0 for rows in wanted]
    left = height - sum(room) * 3
    while left > 0 and (hungry := [place for place, rows in enumerate(wanted) if 0 < room[place] < rows]):
        for place in hungry[:left]:
            room[place] += 1
        left -= len(hungry[:left])
    return room


def _header(seen: Snapshot, sparkline: str, width: int, paused: bool) -> list[RenderableType]:
    return [
        _ends(width, Text(f"dibs top  {seen.url}", "bold"), _clock(seen, paused)),
        depth(seen),
        _ends(width, speed(seen), Text(sparkline[-width // 3 :], "green")),
    ]


def _ends(width: int, left: Text, right: Text) -> Table:
    line = Table.grid(expand=True)
    line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    line.add_column(no_wrap=True, justify="right")
    line.add_row(left, Text("  ").append(right))
    line.width = width
    return line


def _clock(seen: Snapshot, paused: bool) -> Text:
    return Text("paused, p goes on", "bold yellow") if paused else Text(f"{seen.at:%H:%M:%S} UTC  q quits", "dim")


def depth(seen: Snapshot) -> Text:
    """How many tasks there are in each state."""
    parts: list[tuple[str, str]] = []
    for state in STATES:
        if number := seen.stats.depth.get(state, 0):
            parts += [(f"{number:,} ", "bold"), (f"{state}   ", STYLES[state])]
    return Text.assemble(*parts or [("no tasks", "dim")], no_wrap=True, overflow="ellipsis")


def speed(seen: Snapshot) -> Text:
    """How fast tasks end, and how long the oldest has been waiting."""
    oldest = seen.stats.oldest_pending_age
    waiting = "nothing waits" if oldest is None else f"the oldest waits for {text.duration(oldest)}"
    return Text(f"{seen.per_second:,.1f} finished/s over a minute, {waiting}", no_wrap=True, overflow="ellipsis")


def _section(columns: Sequence[Column], rows: Sequence[Row], room: int) -> RenderableType:
    shown = rows if len(rows) <= room else rows[: max(1, room - 1)]
    table = rich_table(columns, shown, expand=True)
    if len(shown) < min(room, len(rows)):
        more = f"… {len(rows) - len(shown)} more"
        place = next(place for place, column in enumerate(columns) if not column.right)
        table.add_row(*[""] * place, Text(more, "dim"), *[""] * (len(columns) - place - 1))
    return Padding(table, (1, 0, 0, 0))


def _queues(seen: Snapshot, width: int) -> Section:
    """All states where there is room for them, otherwise those in which there are tasks."""
    wide = width >= WIDE
    states = [state for state in STATES if wide or seen.stats.depth.get(state)]
    titles = states if wide else [SHORT[state] for state in states]
    columns = (Column("queue", stretch=True), Column("", by_state=True), *(Column(each, right=True) for each in titles))
    return columns, [_queue(queue, states) for queue in seen.queues]


def _queue(queue: QueueInfo, states: list[str]) -> Row:
    return queue.name, "paused" if queue.paused else "", *(f"{queue.depth.get(state, 0):,}" for state in states)


def _worker(worker: WorkerInfo) -> Row:
    return worker.id, worker.state.value, text.relative(worker.heartbeat_at), " ".join(map(str, worker.holds)) or "-"


def _running(task: Task, seen: Snapshot) -> Row:
    spent = text.duration(max(0, (seen.at - task.claimed_at).total_seconds())) if task.claimed_at else ""
    so_far = "" if task.progress is None else f"{bar(task.progress, 10)} {task.progress:3} % "
    return task.id, task.type, task.worker_id or "", spent, so_far + (task.progress_message or "")


def _failure(task: Task, seen: Snapshot) -> Row:
    error = f"{task.error.type}: {task.error.message}" if task.error else ""
    return task.id, task.type, text.relative(task.finished_at, seen.at), error
