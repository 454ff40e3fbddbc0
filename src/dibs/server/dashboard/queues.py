"""The queues page: depth, rates and workers of each queue, with actions to pause and resume it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote_plus

from dibs.json_values import check_name
from dibs.model.checks import from_micros
from dibs.model.key import Scope
from dibs.model.task import State
from dibs.server.dashboard.page import NameForm, PageRequest, PageResult, page
from dibs.server.statistics.live_stats import LiveStats

SHOWN = 500
"""Maximum number of queues on the page."""

BAR = 1000.0
"""The width of a bar, in SVG units."""

IN_BAR = (State.CLAIMED, State.PENDING, State.SCHEDULED, State.BLOCKED, State.FAILED)
"""The states in a bar. Completed and cancelled tasks are left out: they would dwarf the others."""


@dataclass(frozen=True, slots=True)
class QueueBarSegment:
    """The segment of a bar for one state."""

    state: State
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A row of the table: a queue."""

    name: str
    depth: dict[str, int]
    rates: dict[str, float]
    oldest: float | None
    workers: int
    paused_at: datetime | None
    resuming: bool

    def tasks(self, state: str | None = None) -> str:
        """Return the URL of the queue's tasks."""
        return f"/tasks?queue={quote_plus(self.name)}" + (f"&state={state}" if state else "")

    @property
    def dead_letter(self) -> str:
        """The URL of the queue's dead letter."""
        return f"/dead?queue={quote_plus(self.name)}"

    def bar(self, fullest: int) -> list[QueueBarSegment]:
        """Return the segments of the bar. `fullest`: the number of tasks that a full bar shows."""
        return list(_segments(self.depth, max(fullest, 1)))


@page("GET", "/queues", Scope.READ)
async def queues(request: PageRequest) -> PageResult:
    """Render all queues that have tasks or are paused."""
    await request.service.live_stats.for_page()
    depths = await request.service.live_stats.refresh_workers()  # read now: the user may have just paused a queue
    names = [name for name in depths.queues() if request.caller.serves(name)]
    rows = [_row(request.service.live_stats, name) for name in names[:SHOWN]]
    fullest = max((_open(row.depth) for row in rows), default=0)
    return await asyncio.to_thread(  # rendering many rows takes long
        request.render,
        "queues.html",
        rows=rows,
        paused_types=[] if request.caller.queues is not None else sorted(depths.paused_types),
        hidden=len(names[SHOWN:]),
        fullest=fullest,
        known=depths.known,
        at=None if depths.known or not rows else from_micros(depths.at),
        states=IN_BAR,
    )


@page("POST", "/queues/pause", Scope.ADMIN, form=NameForm)
async def pause(request: PageRequest) -> PageResult:
    """Pause the queue: its tasks are not claimed."""
    name = _queue_name(request)
    await request.run(request.service.store.registry.pause(name))
    return request.redirect_with_notice(
        "/queues", f"Queue {name} is paused: claimed tasks continue, no further task is claimed."
    )


@page("POST", "/queues/resume", Scope.ADMIN, form=NameForm)
async def resume(request: PageRequest) -> PageResult:
    """Resume the queue: its tasks are claimed again."""
    name = _queue_name(request)
    await request.run(request.service.store.registry.resume(name))
    return request.redirect_with_notice("/queues", f"Queue {name} is resumed: its tasks are claimed again.")


@page("POST", "/types/resume", Scope.ADMIN, form=NameForm)
async def resume_type(request: PageRequest) -> PageResult:
    """Resume the task type: its tasks are claimed again."""
    request.caller.check_whole_store()
    name = check_name(request.body.name, "The task type")
    await request.run(request.service.store.registry.resume_type(name))
    return request.redirect_with_notice("/queues", f"Task type {name} is resumed: its tasks are claimed again.")


def _queue_name(request: PageRequest) -> str:
    name = check_name(request.body.name, "The queue")
    request.caller.check_queue(name)
    return name


def _row(stats: LiveStats, name: str) -> QueueRow:
    of, depths = [name], stats.depths
    depth = {**depths.of(of), State.FAILED: depths.dead(of)}  # only tasks of the dead letter need attention
    return QueueRow(
        name=name,
        depth=depth,
        rates=stats.rates(of),
        oldest=depths.oldest(of),
        workers=depths.active_workers.serving(name),
        paused_at=depths.paused.get(name),
        resuming=name in depths.resuming,
    )


def _open(depth: dict[str, int]) -> int:
    return sum(depth[state] for state in IN_BAR)


def _segments(depth: dict[str, int], fullest: int) -> Iterator[QueueBarSegment]:
    x = 0.0
    for state in IN_BAR:
        if count := depth[state]:
            width = max(count / fullest * BAR, 2.0)
            yield QueueBarSegment(state, count, round(x, 1), round(width, 1))
            x += width


PAGES = [queues, pause, resume, resume_type]
