"""For who came to an address where nothing is."""

from __future__ import annotations

from dibs.server.dashboard.page import Content, Visit, page
from dibs.server.http import Receive, Scope, Send
from dibs.wire.errors import RequestRefused


@page("GET", "/lost")
async def nowhere(visit: Visit) -> Content:
    """The page that says so."""
    raise RequestRefused(
        "not_found", "There is nothing at this address.", hint="The menu leads to everything there is."
    )


async def lost(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any request with it."""
    scope["path_params"] = {}
    await nowhere(scope, receive, send)
