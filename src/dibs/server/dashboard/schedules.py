"""The schedules page: next ticks, last task and error of each schedule, and a chart of the next 24 hours.

A key that is limited to queues does not see the schedules of other queues.
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
from dibs.server.api.schedules import run_if_visible
from dibs.server.dashboard.page import NameForm, PageRequest, PageResult, page
from dibs.server.dashboard.timetable import hours, next_ticks, quarter, ticks_per_quarter

SHOWN = 100
"""Maximum number of schedules on a page."""


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The position of the page: `after` a schedule, or the page that contains the schedule `show`."""

    after: str | None = None
    show: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A row of the table: a schedule, its timing in words, its next ticks."""

    schedule: Schedule
    description: str
    ticks: Sequence[datetime]


@dataclass(frozen=True, slots=True)
class TickColumn:
    """A bar of the chart: a quarter of an hour. The chart is 100 units high."""

    x: int
    y: float
    height: float
    title: str


@page("GET", "/schedules", Scope.READ, query=ScheduleQuery)
async def schedules(request: PageRequest) -> PageResult:
    """Render all schedules, by name."""
    all_schedules = [
        schedule
        for schedule in await request.run(request.service.store.schedules.list_schedules())
        if request.caller.serves(schedule.queue)
    ]
    after = request.query.after or _before(all_schedules, request.query.show)
    shown = [schedule for schedule in all_schedules if after is None or schedule.name > after]
    now = datetime.now(UTC)
    # Not on the event loop: finding the next ticks of a rare date takes long.
    rows = await asyncio.to_thread(_rows, shown[:SHOWN])
    ticks = await asyncio.to_thread(ticks_per_quarter, all_schedules, now)
    return request.render(
        "schedules.html",
        rows=rows,
        total=len(all_schedules),
        enabled=sum(schedule.state == "enabled" for schedule in all_schedules),
        after=after,
        show=request.query.show,
        more=urlencode({"after": shown[SHOWN - 1].name}) if len(shown) > SHOWN else None,
        columns=_columns(ticks, now),
        ticks=sum(ticks),
        hours=hours(),
    )


@page("POST", "/schedules/run", Scope.ENQUEUE, form=NameForm)
async def run(request: PageRequest) -> PageResult:
    """Enqueue the task of the schedule now."""
    task = await run_if_visible(
        request, request.body.name, request.service.store.schedules.run_schedule(request.body.name)
    )
    return request.redirect_with_notice("/schedules", f"Task {task.id} is {task.state}.")


@page("POST", "/schedules/enable", Scope.ENQUEUE, form=NameForm)
async def enable(request: PageRequest) -> PageResult:
    """Enable the schedule."""
    schedule = await run_if_visible(
        request, request.body.name, request.service.store.schedules.enable_schedule(request.body.name)
    )
    return request.redirect_with_notice("/schedules", f"Schedule {schedule.name} is enabled.")


@page("POST", "/schedules/disable", Scope.ENQUEUE, form=NameForm)
async def disable(request: PageRequest) -> PageResult:
    """Disable the schedule."""
    schedule = await run_if_visible(
        request, request.body.name, request.service.store.schedules.disable_schedule(request.body.name)
    )
    return request.redirect_with_notice("/schedules", f"Schedule {schedule.name} is disabled.")


def _before(all_schedules: Sequence[Schedule], name: str | None) -> str | None:
    """Return the last schedule before the page that contains `name`; None for the first page."""
    place = next((place for place, schedule in enumerate(all_schedules) if schedule.name == name), 0)
    begin = place // SHOWN * SHOWN
    return all_schedules[begin - 1].name if begin else None


def _rows(all_schedules: Sequence[Schedule]) -> list[ScheduleRow]:
    return [ScheduleRow(schedule, schedule.words, next_ticks(schedule)) for schedule in all_schedules]


def _columns(ticks: Sequence[int], now: datetime) -> list[TickColumn]:
    most = max(ticks) or 1
    return [
        TickColumn(
            number * 10, round(100 - 100 * count / most, 1), round(100 * count / most, 1), _title(now, number, count)
        )
        for number, count in enumerate(ticks)
        if count
    ]


def _title(now: datetime, number: int, count: int) -> str:
    return f"{quarter(now, number)} UTC: {count:,} tick{'' if count == 1 else 's'} in a quarter of an hour"


PAGES = [schedules, run, enable, disable]
