"""The dead letter page: failed tasks grouped by error, with actions to retry and to discard them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from dibs.model.key import Scope
from dibs.model.statistics import ErrorGroup
from dibs.server.dashboard.error_groups import error_of
from dibs.server.dashboard.page import PageRequest, PageResult, page, redirect
from dibs.server.dashboard.search import TaskQuery
from dibs.server.dashboard.tasks import has_empty_fields, queue_choices

NEWEST = 5_000
"""Maximum number of failed tasks that are grouped, newest first."""

SHOWN = 100
"""Maximum number of groups on the page, largest first."""


class DeadLetterQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of the page."""

    queue: str | None = None
    type: str | None = None
    error: str | None = None
    tags: str | None = None

    def query(self) -> TaskQuery:
        """Return the query for the tasks that match."""
        return TaskQuery(dead="yes", queue=self.queue, type=self.type, error=self.error, tags=self.tags)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """A group of equal errors, and the query that finds its tasks."""

    about: ErrorGroup
    query: TaskQuery


@page("GET", "/dead", Scope.READ, query=DeadLetterQuery)
async def dead(request: PageRequest) -> PageResult:
    """Render the newest failed tasks, grouped by error."""
    filters: DeadLetterQuery = request.query
    if has_empty_fields(request.http[0]["query_string"]):
        return redirect(filters.query().address("/dead", dead=None))
    if filters.queue is not None:
        request.caller.check_queue(filters.queue)
    tags = filters.query().search(request, None).tags  # raises InvalidValue for values that cannot be searched for
    queues = request.caller.queues if filters.queue is None else [filters.queue]
    grouping = request.run(request.service.store.statistics.error_groups(queues, NEWEST, tags))
    found, depths = await asyncio.gather(grouping, request.service.live_stats.for_page())
    groups = [_group(each, filters) for each in found.groups if _matches(each, filters)]
    context: dict[str, Any] = {
        "filters": filters,
        "groups": groups[:SHOWN],
        "hidden": len(groups[SHOWN:]),
        "found": found,
    }
    count = sum(group.about.count for group in groups)
    return request.render("dead.html", **context, count=count, queues=queue_choices(request, depths))


def _matches(group: ErrorGroup, filters: DeadLetterQuery) -> bool:
    of_type = filters.type is None or group.task_type == filters.type
    return of_type and (filters.error is None or filters.error in error_of(group))


def _group(group: ErrorGroup, filters: DeadLetterQuery) -> FailureGroup:
    query = TaskQuery(dead="yes", queue=filters.queue, type=group.task_type, tags=filters.tags, alike=group.kind)
    return FailureGroup(group, query)


PAGES = [dead]
