"""The dead letter, by error: what fails most, since when, and ways to send it back or to discard it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from dibs.model.key import Scope
from dibs.model.statistics import ErrorGroup
from dibs.server.dashboard.error_groups import error_of
from dibs.server.dashboard.page import Content, Visit, page, redirect
from dibs.server.dashboard.search import Wish
from dibs.server.dashboard.tasks import choice_of_queues, says_nothing

NEWEST = 5_000
"""Failures that are grouped: it takes a moment for each."""

SHOWN = 100
"""Groups on the page, the largest."""


class Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of the dead letter."""

    queue: str | None = None
    type: str | None = None
    error: str | None = None

    def wish(self) -> Wish:
        """The search for its tasks."""
        return Wish(dead="yes", queue=self.queue, type=self.type, error=self.error)


@dataclass(frozen=True, slots=True)
class Group:
    """Errors of a kind, and the search that finds their tasks."""

    about: ErrorGroup
    wish: Wish


@page("GET", "/dead", Scope.READ, query=Filter)
async def dead(visit: Visit) -> Content:
    """The newest failures, grouped."""
    asked: Filter = visit.query
    if says_nothing(visit.http[0]["query_string"]):
        return redirect(asked.wish().address("/dead", dead=None))
    if asked.queue is not None:
        visit.caller.check_queue(asked.queue)
    asked.wish().search(visit, None)  # refuses what could not be searched for
    queues = visit.caller.queues if asked.queue is None else [asked.queue]
    grouping = visit.run(visit.service.store.statistics.error_groups(queues, NEWEST))
    found, board = await asyncio.gather(grouping, visit.service.pulse.look_in())
    groups = [_group(each, asked) for each in found.groups if _fits(each, asked)]
    context: dict[str, Any] = {"asked": asked, "groups": groups[:SHOWN], "hidden": len(groups[SHOWN:]), "found": found}
    count = sum(group.about.count for group in groups)
    return visit.render("dead.html", **context, count=count, queues=choice_of_queues(visit, board))


def _fits(group: ErrorGroup, asked: Filter) -> bool:
    of_type = asked.type is None or group.task_type == asked.type
    return of_type and (asked.error is None or asked.error in error_of(group))


def _group(group: ErrorGroup, asked: Filter) -> Group:
    wish = Wish(dead="yes", queue=asked.queue, type=group.task_type, alike=group.kind)
    return Group(group, wish)


PAGES = [dead]
