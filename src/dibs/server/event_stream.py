"""Streams of server-sent events, for as long as the client is connected and its key is valid."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod

from dibs.server.http import SAFE_HEADERS, ClientDisconnected, Headers, Send

MEDIA_TYPE = "text/event-stream"
HEADERS: Headers = (
    (b"content-type", MEDIA_TYPE.encode()),
    (b"x-accel-buffering", b"no"),  # a proxy must pass each event on at once
    *SAFE_HEADERS,
)
RETRY = b"retry: 2000\n"

KEEP_ALIVE = 15.0
"""Seconds without an event after which a comment is sent, so that proxies keep the connection open."""

CHECK_INTERVAL = 2.0
"""Seconds between two checks of the client's key."""

SEND_TIMEOUT = 30.0
"""Seconds after which a client that reads nothing is disconnected."""


class EventStream(ABC):
    """A stream of events to one client."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sent_at = self._checked_at = time.monotonic()

    @abstractmethod
    async def is_admitted(self) -> bool:
        """Return False if the client is no longer authorized."""

    def keep_alive(self) -> bytes:
        """What is sent after a long pause."""
        return b": keep-alive\n\n"

    async def begin(self, position: bytes = b"") -> None:
        """Send the response headers and the first lines."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await self.write(RETRY + position + b"\n")

    async def continue_with(self, content: bytes) -> bool:
        """Send the content, or a keep-alive after a long pause; return False if the client is no longer authorized."""
        if content:
            await self.write(content)
        elif time.monotonic() - self._sent_at >= KEEP_ALIVE:
            await self.write(self.keep_alive())
        if time.monotonic() - self._checked_at < CHECK_INTERVAL:
            return True
        self._checked_at = time.monotonic()
        return await self.is_admitted()

    async def end(self) -> None:
        """End the response."""
        await self.write(b"", more=False)

    async def write(self, content: bytes, *, more: bool = True) -> None:
        """Send content; disconnect a client that does not read it in time."""
        self._sent_at = time.monotonic()
        try:
            async with asyncio.timeout(SEND_TIMEOUT):
                await self._send({"type": "http.response.body", "body": content, "more_body": more})
        except TimeoutError:
            raise ClientDisconnected from None
