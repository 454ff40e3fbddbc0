"""Queues: how full each is, how it moves, who serves it; and a button that stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote_plus

from dibs.codec import check_name
from dibs.model.checks import from_micros
from dibs.model.key import Scope
from dibs.model.task import State
from dibs.server.dashboard.page import Content, Named, Visit, page
from dibs.server.statistics.live_stats import Pulse

SHOWN = 500
"""Queues on the page."""

BAR = 1000.0
"""The width of a bar, in its own units."""

IN_BAR = (State.CLAIMED, State.PENDING, State.SCHEDULED, State.BLOCKED, State.FAILED)
"""What a bar shows: all but what has come to its end, which would hide the rest."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar."""

    state: State
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Row:
    """A queue as the page shows it."""

    name: str
    depth: dict[str, int]
    rates: dict[str, float]
    oldest: float | None
    workers: int
    paused_at: datetime | None

    def tasks(self, state: str | None = None) -> str:
        """The address of its tasks."""
        return f"/tasks?queue={quote_plus(self.name)}" + (f"&state={state}" if state else "")

    @property
    def dead_letter(self) -> str:
        """The address of its dead letter."""
        return f"/dead?queue={quote_plus(self.name)}"

    def bar(self, fullest: int) -> list[Part]:
        """The parts of its bar, as long as it is full beside the fullest."""
        return list(_parts(self.depth, max(fullest, 1)))


@page("GET", "/queues", Scope.READ)
async def queues(visit: Visit) -> Content:
    """Every queue that holds a task or has been paused."""
    await visit.service.pulse.look_in()
    board = await visit.service.pulse.call_roll()  # fresh: somebody may have pressed a button just now
    names = [name for name in board.queues() if visit.caller.serves(name)]
    rows = [_row(visit.service.pulse, name) for name in names[:SHOWN]]
    fullest = max((_open(row.depth) for row in rows), default=0)
    return await asyncio.to_thread(  # so many rows take a while to write
        visit.render,
        "queues.html",
        rows=rows,
        hidden=len(names[SHOWN:]),
        fullest=fullest,
        known=board.known,
        at=None if board.known or not rows else from_micros(board.at),
        states=IN_BAR,
    )


@page("POST", "/queues/pause", Scope.ADMIN, form=Named)
async def pause(visit: Visit) -> Content:
    """Let nobody claim from the queue."""
    name = _named(visit)
    await visit.run(visit.service.store.registry.pause(name))
    return visit.back("/queues", f"{name} is paused: running tasks go on, no further task is claimed.")


@page("POST", "/queues/resume", Scope.ADMIN, form=Named)
async def resume(visit: Visit) -> Content:
    """Let the queue be claimed from again."""
    name = _named(visit)
    await visit.run(visit.service.store.registry.resume(name))
    return visit.back("/queues", f"{name} is resumed: its tasks can be claimed again.")


def _named(visit: Visit) -> str:
    name = check_name(visit.body.name, "The queue")
    visit.caller.check_queue(name)
    return name


def _row(pulse: Pulse, name: str) -> Row:
    of, board = [name], pulse.board
    depth = {**board.of(of), State.FAILED: board.dead(of)}  # what is left to be dealt with
    return Row(name, depth, pulse.rates(of), board.oldest(of), board.living.serving(name), board.paused.get(name))


def _open(depth: dict[str, int]) -> int:
    return sum(depth[state] for state in IN_BAR)


def _parts(depth: dict[str, int], fullest: int) -> Iterator[Part]:
    x = 0.0
    for state in IN_BAR:
        if count := depth[state]:
            width = max(count / fullest * BAR, 2.0)
            yield Part(state, count, round(x, 1), round(width, 1))
            x += width


PAGES = [queues, pause, resume]
