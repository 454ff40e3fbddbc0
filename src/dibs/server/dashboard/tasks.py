"""The tasks page: search, page by page, with everything in the address."""

from __future__ import annotations

import asyncio
from typing import Any

from dibs.errors import InvalidValue
from dibs.model.key import Scope
from dibs.model.task import State
from dibs.server.dashboard.page import Content, Visit, page, redirect
from dibs.server.dashboard.search import Address, Look, boxed, look
from dibs.server.statistics.queue_depths import Board

NOTHING = Look([], None, 0)
MANY_QUEUES = 100


@page("GET", "/tasks", Scope.READ, query=Address)
async def tasks(visit: Visit) -> Content:
    """What was asked for, newest first."""
    asked: Address = visit.query.asked()
    if asked is not visit.query or says_nothing(visit.http[0]["query_string"]):
        return redirect(asked.address())
    found, board = await asyncio.gather(_look(visit, asked), visit.service.pulse.look_in())
    if isinstance(found, InvalidValue):
        return _show(visit, asked, NOTHING, board, found)
    return _show(visit, asked, found, board)


async def _look(visit: Visit, asked: Address) -> Look | InvalidValue:
    """What was found; or what is wrong with the question."""
    try:
        return await look(visit, asked, asked.cursor)
    except InvalidValue as error:
        return error


def _show(visit: Visit, asked: Address, found: Look, board: Board, problem: InvalidValue | None = None) -> Content:
    queues = visit.caller.queues if asked.queue is None else [asked.queue]
    context: dict[str, Any] = {
        "asked": asked,
        "found": found,
        "box": boxed(asked.text),
        "states": list(State),
        "depth": board.of(queues) if board.known else {},
        "queues": choice_of_queues(visit, board),
        "older": None if found.cursor is None else asked.older(found.cursor),
        "problem": problem,
    }
    return visit.render("tasks.html", 200 if problem is None else 400, **context)


def choice_of_queues(visit: Visit, board: Board) -> list[str]:
    """Queues to choose from; none where they are too many, and have to be written."""
    names = [name for name in board.queues() if visit.caller.serves(name)]
    return names if len(names) <= MANY_QUEUES else []


def says_nothing(query: bytes) -> bool:
    """True for an address with fields that were left empty, as a form sends them: a shorter one says the same."""
    return query.endswith(b"=") or b"=&" in query


PAGES = [tasks]
