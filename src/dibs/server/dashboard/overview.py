"""The overview: how full the store is, what goes on in it, how it went."""

from __future__ import annotations

from typing import Literal

import msgspec

from dibs.model.checks import from_micros
from dibs.model.key import Scope
from dibs.model.search import TaskSearch, TaskSummary
from dibs.server.dashboard.page import Content, Visit, page
from dibs.server.statistics.queue_depths import FLOWS, STATES
from dibs.server.statistics.trends import WINDOWS

FAILURES = 6
"""Tasks of the dead letter that are shown, the newest."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far to look back."""

    window: Literal["15m", "1h", "24h", "7d"] = "15m"


@page("GET", "/", Scope.READ, query=Asked)
async def overview(visit: Visit) -> Content:
    """Figures, and the charts that the page's script draws."""
    pulse, queues = visit.service.pulse, visit.caller.queues
    board = await pulse.look_in()
    depth, workers = board.of(queues), len(board.living.of(queues))
    return visit.render(
        "overview.html",
        window=visit.query.window,
        windows=list(WINDOWS),
        known=board.tells_of(queues),
        at=None if board.known or not board.tells_of(queues) else from_micros(board.at),
        is_empty=board.known and not any(depth.values()) and not workers,
        depth=depth,
        dead=board.dead(queues),
        rates=pulse.rates(queues),
        oldest=board.oldest(queues),
        workers=workers,
        paused=[name for name in sorted(board.paused) if visit.caller.serves(name)],
        failures=await _failures(visit),
    )


@page("GET", "/charts", Scope.READ, query=Asked)
async def charts(visit: Visit) -> Content:
    """The points of the charts."""
    await visit.service.pulse.look_in()
    points = await visit.service.pulse.history(visit.query.window, visit.caller.queues)
    window = WINDOWS[visit.query.window]
    return visit.json(
        {"span": window.span / 1e6, "step": window.bucket / 1e6, "states": STATES, "flows": FLOWS, "points": points}
    )


async def _failures(visit: Visit) -> list[TaskSummary]:
    which = TaskSearch(dead=True, queues=visit.caller.queues, limit=FAILURES)
    return (await visit.run(visit.service.store.tasks.search(which))).tasks


PAGES = [overview, charts]
