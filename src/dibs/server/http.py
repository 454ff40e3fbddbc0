"""Helpers for ASGI: send responses, read headers and bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from dibs.errors import DibsError
from dibs.json_values import MAX_BYTES
from dibs.wire.errors import Refusal, RequestRefused, headers_of, status_of

AsgiScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods of requests that change nothing."""

JSON = (b"content-type", b"application/json")
SAFE_HEADERS: Headers = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
"""Headers of every response: no caching, no guessing of the content type."""

encode = msgspec.json.Encoder().encode


class ClientDisconnected(Exception):
    """The client disconnected before the response."""


async def send_json(send: Send, status: int, content: Any, headers: Headers = ()) -> None:
    """Send a JSON response."""
    await send_bytes(send, status, encode(content), (JSON, *headers))


async def send_bytes(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Send a response with a body of bytes."""
    size = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, size, *SAFE_HEADERS]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: DibsError) -> None:
    """Send an error as a JSON response."""
    await send_json(send, status_of(error), Refusal.from_model(error), headers_of(error))


def header(scope: AsgiScope, name: bytes) -> bytes | None:
    """Return the value of a header, or None."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


async def read_body(scope: AsgiScope, receive: Receive) -> bytes:
    """Read the whole body, at most 1 MiB; a longer body is refused while it is received."""
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared[:20]) > MAX_BYTES:
        raise _too_large()
    message = await receive()
    body: bytes = _body_part(message)
    while message.get("more_body"):
        message = await receive()
        body += _body_part(message)
        if len(body) > MAX_BYTES:
            raise _too_large()
    return body


def _body_part(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    part: bytes = message.get("body", b"")
    return part


def _too_large() -> RequestRefused:
    return RequestRefused(
        "too_large",
        f"The body is larger than {MAX_BYTES:,} bytes.",
        hint="Send fewer tasks in one request; keep large data elsewhere and send a reference to it.",
        headers=((b"connection", b"close"),),
    )
