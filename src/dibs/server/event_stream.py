"""Streams: server-sent events, said as they come, for as long as somebody listens and may."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod

from dibs.server.http import SAFE, Gone, Headers, Send

MEDIA = "text/event-stream"
HEADERS: Headers = (
    (b"content-type", MEDIA.encode()),
    (b"x-accel-buffering", b"no"),  # a proxy must pass each event on at once
    *SAFE,
)
RETRY = b"retry: 2000\n\n"

KEEP_ALIVE = 15.0
"""Seconds of silence after which something is said, so that nobody on the way takes the connection for dead."""

CHECK_EVERY = 2.0
"""Seconds between two looks at whether the listener may still listen."""

STALL = 30.0
"""Seconds for which a client may take nothing of what it is sent."""


class Stream(ABC):
    """What one client is sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._spoke_at = self._checked_at = time.monotonic()

    @abstractmethod
    async def still_admitted(self) -> bool:
        """False once the client may listen no more."""

    async def begin(self) -> None:
        """The first line."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await self.say(RETRY)

    async def go_on(self, content: bytes) -> bool:
        """Say this, or something after a long silence; False if that was the last that the client may hear."""
        if content:
            await self.say(content)
        elif time.monotonic() - self._spoke_at >= KEEP_ALIVE:
            await self.say(b": keep-alive\n\n")
        if time.monotonic() - self._checked_at < CHECK_EVERY:
            return True
        self._checked_at = time.monotonic()
        return await self.still_admitted()

    async def end(self) -> None:
        """The last line."""
        await self.say(b"", more=False)

    async def say(self, content: bytes, *, more: bool = True) -> None:
        """Send it, to a client that takes it in time."""
        self._spoke_at = time.monotonic()
        try:
            async with asyncio.timeout(STALL):
                await self._send({"type": "http.response.body", "body": content, "more_body": more})
        except TimeoutError:
            raise Gone from None
