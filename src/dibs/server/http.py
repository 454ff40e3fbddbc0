"""Answers and bodies on the wire: the few lines of ASGI that every endpoint shares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from dibs.codec import MAX_BYTES
from dibs.errors import DibsError
from dibs.server.refusing import Refusal, headers_of, refusal, status_of

AsgiScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON = (b"content-type", b"application/json")
SAFE_HEADERS: Headers = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
"""On every answer: nobody keeps it, nobody guesses what it is."""

encode = msgspec.json.Encoder().encode


class ClientDisconnected(Exception):
    """The client went away; nobody waits for an answer."""


async def send_json(send: Send, status: int, content: Any, headers: Headers = ()) -> None:
    """A JSON answer."""
    await send_bytes(send, status, encode(content), (JSON, *headers))


async def send_bytes(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """An answer whose bytes are ready."""
    size = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, size, *SAFE_HEADERS]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: DibsError) -> None:
    """An error as an answer."""
    await send_json(send, status_of(error), refusal(error), headers_of(error))


def header(scope: AsgiScope, name: bytes) -> bytes | None:
    """The value of a header; None where it is missing."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


async def read_body(scope: AsgiScope, receive: Receive) -> bytes:
    """The whole body, of at most 1 MiB; a longer one is refused while it still streams in."""
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


def _too_large() -> Refusal:
    return Refusal(
        "too_large",
        f"The body is larger than {MAX_BYTES:,} bytes.",
        hint="Send fewer tasks in one request; keep large data elsewhere and send a reference to it.",
        headers=((b"connection", b"close"),),
    )
