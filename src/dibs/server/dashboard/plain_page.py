"""A public page without a session: static files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dibs.model.key import Scope as KeyScope
from dibs.server.http import AsgiScope, Receive, Send


@dataclass(frozen=True)
class PlainPage:
    """A path that is served without a session."""

    method: str
    path: str
    serve: Callable[[AsgiScope, Receive, Send], Awaitable[None]]
    scopes: frozenset[KeyScope] = frozenset()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self.serve(scope, receive, send)
