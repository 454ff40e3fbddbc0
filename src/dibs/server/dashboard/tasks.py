"""The tasks page: a search in pages, with the whole query in the URL."""

from __future__ import annotations

import asyncio
from typing import Any

from dibs.errors import InvalidValue
from dibs.model.key import Scope
from dibs.model.task import State
from dibs.server.dashboard.page import PageRequest, PageResult, page, redirect
from dibs.server.dashboard.search import SearchResult, TaskListQuery, format_text, search_tasks
from dibs.server.statistics.queue_depths import QueueDepths

NO_RESULT = SearchResult([], None, 0)
MANY_QUEUES = 100


@page("GET", "/tasks", Scope.READ, query=TaskListQuery)
async def tasks(request: PageRequest) -> PageResult:
    """Render the tasks that match, newest first."""
    query: TaskListQuery = request.query.parsed()
    if query is not request.query or has_empty_fields(request.http[0]["query_string"]):
        return redirect(query.address())
    found, depths = await asyncio.gather(_search(request, query), request.service.live_stats.for_page())
    if isinstance(found, InvalidValue):
        return _show(request, query, NO_RESULT, depths, found)
    return _show(request, query, found, depths)


async def _search(request: PageRequest, query: TaskListQuery) -> SearchResult | InvalidValue:
    """Return the result, or the error of an invalid query."""
    try:
        return await search_tasks(request, query, query.cursor)
    except InvalidValue as error:
        return error


def _show(
    request: PageRequest,
    query: TaskListQuery,
    found: SearchResult,
    depths: QueueDepths,
    problem: InvalidValue | None = None,
) -> PageResult:
    queues = request.caller.queues if query.queue is None else [query.queue]
    context: dict[str, Any] = {
        "query": query,
        "found": found,
        "box": format_text(query.text),
        "states": list(State),
        "depth": depths.of(queues) if depths.known else {},
        "queues": queue_choices(request, depths),
        "older": None if found.cursor is None else query.older(found.cursor),
        "problem": problem,
    }
    return request.render("tasks.html", 200 if problem is None else 400, **context)


def queue_choices(request: PageRequest, depths: QueueDepths) -> list[str]:
    """Return the queues for a selection; none if there are too many, then the page has a text field."""
    names = [name for name in depths.queues() if request.caller.serves(name)]
    return names if len(names) <= MANY_QUEUES else []


def has_empty_fields(query: bytes) -> bool:
    """Return True for a query string with empty fields, as forms send them: it can be shortened."""
    return query.endswith(b"=") or b"=&" in query


PAGES = [tasks]
