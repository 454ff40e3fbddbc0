"""The tasks page: search, page by page, with everything in the address."""

from __future__ import annotations

from typing import Any

import msgspec

from dibs.errors import InvalidValue
from dibs.key import Scope
from dibs.server.dashboard.finding import Address, Look, boxed, look
from dibs.server.dashboard.page import Content, Visit, page, redirect
from dibs.server.refusing import Refusal
from dibs.task import State

NOTHING = Look([], None, 0)


@page("GET", "/tasks", Scope.READ, query=Address)
async def tasks(visit: Visit) -> Content:
    """What was asked for, newest first."""
    try:
        asked: Address = visit.query.asked()
    except (msgspec.ValidationError, InvalidValue) as error:
        raise Refusal("bad_request", f"This search makes no sense: {error}.", hint="state:failed is one.") from None
    if asked is not visit.query or says_nothing(visit.http[0]["query_string"]):
        return redirect(asked.address())
    try:
        found = await look(visit, asked, asked.cursor)
    except InvalidValue as error:
        return _show(visit, 400, asked, NOTHING, problem=error)
    return _show(visit, 200, asked, found)


def _show(visit: Visit, status: int, asked: Address, found: Look, **more: Any) -> Content:
    context = {
        "asked": asked,
        "found": found,
        "box": boxed(asked.text),
        "states": list(State),
        "depth": depth_of(visit, asked.queue),
        "queues": known_queues(visit),
        "older": None if found.cursor is None else asked.older(found.cursor),
        "problem": None,
    }
    return visit.render("tasks.html", status, **context, **more)


def says_nothing(query: bytes) -> bool:
    """True for an address with fields that were left empty, as a form sends them: a shorter one says the same."""
    return query.endswith(b"=") or b"=&" in query


def depth_of(visit: Visit, queue: str | None) -> dict[str, int]:
    """How many tasks are in each state, as last counted; of one queue if it is named."""
    return {}


def known_queues(visit: Visit) -> list[str]:
    """Queues to choose from."""
    return []


PAGES = [tasks]
