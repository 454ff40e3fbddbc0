"""For who came to an address where nothing is."""

from __future__ import annotations

from dibs.server.dashboard.page import Content, Visit, page
from dibs.server.refusing import Refusal


@page("GET", "/lost")
async def nowhere(visit: Visit) -> Content:
    """The page that says so."""
    raise Refusal("not_found", "There is nothing at this address.", hint="The menu leads to everything there is.")


async def lost(scope: object, receive: object, send: object) -> None:
    """Answer any request with it."""
    scope["path_params"] = {}  # type: ignore[index]
    await nowhere(scope, receive, send)  # type: ignore[arg-type]
