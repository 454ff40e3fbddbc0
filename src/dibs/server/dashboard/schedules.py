"""Schedules: when each ticks next, what became of its last tick, and how busy the coming day is.

To a key that is limited to queues, the schedules of other queues do not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

import msgspec

from dibs.model.key import Scope
from dibs.model.schedule import Schedule
from dibs.server.api.schedules import do
from dibs.server.dashboard.page import Content, Named, Visit, page
from dibs.server.dashboard.timetable import coming, density, hours, in_words, quarter

SHOWN = 100
"""Schedules on a page."""


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a page begins: after the schedule of this name. Or which schedule is to be on it."""

    after: str | None = None
    show: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    plan: Schedule
    words: str | None
    ticks: Sequence[datetime]


@dataclass(frozen=True, slots=True)
class Column:
    """A quarter of an hour of the chart, in a picture that is 100 high."""

    x: int
    y: float
    height: float
    title: str


@page("GET", "/schedules", Scope.READ, query=Wish)
async def schedules(visit: Visit) -> Content:
    """All schedules, by name."""
    plans = [
        plan
        for plan in await visit.run(visit.service.store.schedules.list_schedules())
        if visit.caller.serves(plan.queue)
    ]
    after = visit.query.after or _before(plans, visit.query.show)
    shown = [plan for plan in plans if after is None or plan.name > after]
    now = datetime.now(UTC)
    # Not on the event loop: the next ticks of a rare date take a while to find.
    lines = await asyncio.to_thread(_lines, shown[:SHOWN])
    ticks = await asyncio.to_thread(density, plans, now)
    return visit.render(
        "schedules.html",
        lines=lines,
        total=len(plans),
        enabled=sum(plan.enabled for plan in plans),
        after=after,
        show=visit.query.show,
        more=urlencode({"after": shown[SHOWN - 1].name}) if len(shown) > SHOWN else None,
        columns=_columns(ticks, now),
        ticks=sum(ticks),
        hours=hours(),
    )


@page("POST", "/schedules/run", Scope.ENQUEUE, form=Named)
async def run(visit: Visit) -> Content:
    """Enqueue its task now."""
    task = await do(visit, visit.body.name, visit.service.store.schedules.run_schedule(visit.body.name))
    return visit.back("/schedules", f"Task {task.id} is {task.state}.")


@page("POST", "/schedules/enable", Scope.ENQUEUE, form=Named)
async def enable(visit: Visit) -> Content:
    """Let it tick."""
    plan = await do(visit, visit.body.name, visit.service.store.schedules.enable_schedule(visit.body.name))
    return visit.back("/schedules", f"{plan.name} is enabled.")


@page("POST", "/schedules/disable", Scope.ENQUEUE, form=Named)
async def disable(visit: Visit) -> Content:
    """Let it rest."""
    plan = await do(visit, visit.body.name, visit.service.store.schedules.disable_schedule(visit.body.name))
    return visit.back("/schedules", f"{plan.name} is disabled.")


def _before(plans: Sequence[Schedule], name: str | None) -> str | None:
    """The last schedule before the page that this one is on; None for the first page."""
    place = next((place for place, plan in enumerate(plans) if plan.name == name), 0)
    begin = place // SHOWN * SHOWN
    return plans[begin - 1].name if begin else None


def _lines(plans: Sequence[Schedule]) -> list[Line]:
    return [Line(plan, in_words(plan.cron), coming(plan)) for plan in plans]


def _columns(ticks: Sequence[int], now: datetime) -> list[Column]:
    most = max(ticks) or 1
    return [
        Column(
            number * 10, round(100 - 100 * count / most, 1), round(100 * count / most, 1), _title(now, number, count)
        )
        for number, count in enumerate(ticks)
        if count
    ]


def _title(now: datetime, number: int, count: int) -> str:
    return f"{quarter(now, number)} UTC: {count:,} tick{'' if count == 1 else 's'} in a quarter of an hour"


PAGES = [schedules, run, enable, disable]
