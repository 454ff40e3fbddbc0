"""The gate: what holds for every request, before any endpoint sees it and after the last one has spoken.

A Host header that is not ours is refused (a web page could reach a server on loopback through a name of its own), and
so is a write that a browser sends on behalf of another site. Whatever goes wrong inside becomes an answer, never a
broken connection; and one line of the access log tells of it.
"""

from __future__ import annotations

import logging
import time
from urllib.parse import urlsplit

from dibs.server.http import Message, Receive, Scope, Send, header, refuse
from dibs.server.refusing import Refusal
from dibs.server.service import Service

logger = logging.getLogger("dibs.server")
access = logging.getLogger("dibs.access")

UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Gate:
    """The whole application."""

    def __init__(self, service: Service, inside: object) -> None:
        self.service = service
        self._inside = inside
        self._hosts = service.config.hosts
        self._logs = service.config.access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request (or the life of the server, which passes through)."""
        if scope["type"] != "http":
            await self._inside(scope, receive, send)  # type: ignore[operator]
            return
        began = time.perf_counter()
        said = _Said(send)
        try:
            await self._pass(scope, receive, said)
        except Exception as error:
            logger.exception("a request failed: %s %s", scope["method"], _line(_path(scope)), exc_info=error)
            if said.status == 0:
                await refuse(said, _our_fault())
        finally:
            if self._logs:
                self._tell(scope, said.status, time.perf_counter() - began)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await refuse(send, refusal)
            return
        scope["dibs.service"] = self.service
        scope["path"] = _path(scope)  # as it was sent: a slash inside a name stays part of the name
        await self._inside(scope, receive, send)  # type: ignore[operator]

    def _refusal(self, scope: Scope) -> Refusal | None:
        host = header(scope, b"host") or b""
        if self._hosts is not None and _name(host) not in self._hosts:
            return Refusal(
                "unknown_host",
                "This server does not go by that name.",
                hint="Start it with --allowed-host NAME if it should.",
            )
        if scope["method"] in UNSAFE and _is_foreign(header(scope, b"origin"), host):
            return Refusal("wrong_origin", "Another site must not write here through somebody's browser.")
        return None

    def _tell(self, scope: Scope, status: int, took: float) -> None:
        client = (scope.get("client") or ("-",))[0]
        access.info("%s %s %s %d %.1f ms", client, scope["method"], _line(_path(scope)), status, took * 1000)


class _Said:
    """`send`, which remembers the status."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def _path(scope: Scope) -> str:
    """The path as it was sent, percent-encoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.split(b"?", 1)[0].decode("latin-1")


def _line(text: str) -> str:
    """Text that cannot forge a line of the log, whatever a client sent."""
    return text if text.isascii() and text.isprintable() else text.encode("unicode_escape").decode()


def _name(host: bytes) -> str:
    """The name in a Host header, without its port."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].split("]", 1)[0]
    return text.rsplit(":", 1)[0] if text.count(":") == 1 else text


def _is_foreign(origin: bytes | None, host: bytes) -> bool:
    """True where a browser says that a page of another site wants this."""
    if origin is None:
        return False
    try:
        return urlsplit(origin.decode("latin-1")).netloc.lower() != host.decode("latin-1").lower()
    except ValueError:
        return True


def _our_fault() -> Refusal:
    return Refusal("internal_error", "The server failed.", hint="Its log says how; report it if it is a bug.")
