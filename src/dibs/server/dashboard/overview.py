"""The overview page: task counts, rates, charts and the newest failed tasks."""

from __future__ import annotations

from typing import Literal

import msgspec

from dibs.model.checks import from_micros
from dibs.model.key import Scope
from dibs.model.search import TaskSearch, TaskSummary
from dibs.server.dashboard.page import PageRequest, PageResult, page
from dibs.server.statistics.queue_depths import FLOWS, STATES
from dibs.server.statistics.trends import WINDOWS

FAILURES = 6
"""Number of failed tasks on the page, newest first."""


class OverviewQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The time window of the charts."""

    window: Literal["15m", "1h", "24h", "7d"] = "15m"


@page("GET", "/", Scope.READ, query=OverviewQuery)
async def overview(request: PageRequest) -> PageResult:
    """Render the figures; a script draws the charts."""
    stats, queues = request.service.live_stats, request.caller.queues
    depths = await stats.for_page()
    depth, workers = depths.of(queues), len(depths.active_workers.of(queues))
    return request.render(
        "overview.html",
        window=request.query.window,
        windows=list(WINDOWS),
        known=depths.has_data(queues),
        at=None if depths.known or not depths.has_data(queues) else from_micros(depths.at),
        is_empty=depths.known and not any(depth.values()) and not workers,
        depth=depth,
        dead=depths.dead(queues),
        rates=stats.rates(queues),
        oldest=depths.oldest(queues),
        workers=workers,
        paused=[name for name in sorted(depths.paused) if request.caller.serves(name)],
        paused_types=sorted(depths.paused_types) if queues is None else [],
        failures=await _failures(request),
    )


@page("GET", "/charts", Scope.READ, query=OverviewQuery)
async def charts(request: PageRequest) -> PageResult:
    """Return the points of the charts as JSON."""
    await request.service.live_stats.for_page()
    points = await request.service.live_stats.history(request.query.window, request.caller.queues)
    window = WINDOWS[request.query.window]
    return request.json(
        {"span": window.span / 1e6, "step": window.bucket / 1e6, "states": STATES, "flows": FLOWS, "points": points}
    )


async def _failures(request: PageRequest) -> list[TaskSummary]:
    criteria = TaskSearch(dead=True, queues=request.caller.queues, limit=FAILURES)
    return (await request.run(request.service.store.tasks.search(criteria))).tasks


PAGES = [overview, charts]
