"""What is served to everybody as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dibs.model.key import Scope as KeyScope
from dibs.server.http import Receive, Scope, Send


@dataclass(frozen=True)
class PlainPage:
    """One path that needs no visitor."""

    method: str
    path: str
    serve: Callable[[Scope, Receive, Send], Awaitable[None]]
    scopes: frozenset[KeyScope] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self.serve(scope, receive, send)
