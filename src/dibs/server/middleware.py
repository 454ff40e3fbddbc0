"""The gate: what holds for every request, before any endpoint sees it and after the last one has spoken.

A Host header that is not ours is refused (a web page could reach a server on loopback through a name of its own), and
so is a write that a browser sends on behalf of another site. Whatever goes wrong inside becomes an answer, never a
broken connection; and one line of the access log tells of it, which nobody outside can forge.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from dibs.redaction import redact
from dibs.server.config import Network
from dibs.server.http import Message, Receive, Scope, Send, header, refuse
from dibs.server.service import Service
from dibs.wire.errors import RequestRefused

logger = logging.getLogger("dibs.server")
access = logging.getLogger("dibs.access")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FOR_PROBES = frozenset({b"/health", b"/ready"})
"""They tell nothing, and who probes (a load balancer, an orchestrator) calls a server by whatever address it has."""

CLOSE = ((b"connection", b"close"),)
FOR_HTML = (
    (b"content-security-policy", b"default-src 'self'"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with none at all, a browser sends our own forms as if from nowhere
)

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]*)?")
_MAPPED = "::ffff:"


class Gate:
    """The whole application."""

    def __init__(self, service: Service, inside: object) -> None:
        self.service = service
        self._inside = inside
        self._hosts = service.config.hosts
        self._any_address = service.config.any_address
        self._proxies = service.config.networks()
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
            about = {"event": "request.failed", "method": scope["method"], "path": _line(scope["path"])}
            logger.exception("a request failed: %s %s", about["method"], about["path"], exc_info=error, extra=about)
            await said.at_least(_our_fault())
        except asyncio.CancelledError:
            if not self.service.stopping.is_set():
                raise
            await said.at_least(_cut_off())
        finally:
            if self._logs and access.isEnabledFor(logging.INFO):
                _tell(scope, said.status, time.perf_counter() - began)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        scope["path"] = raw.split(b"?", 1)[0].decode("latin-1")  # as sent: a slash inside a name stays part of it
        scope["client"] = self._client(scope)
        refusal = self._refusal(scope, raw)
        if refusal is not None:
            await refuse(send, refusal)
            return
        scope["dibs.service"] = self.service
        await self._inside(scope, receive, send)  # type: ignore[operator]

    def _refusal(self, scope: Scope, path: bytes) -> RequestRefused | None:
        if self.service.stopping.is_set():
            return RequestRefused("stopping", "The server is stopping.", hint="Ask again in a moment.", headers=CLOSE)
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1:
            return RequestRefused("bad_request", "A request has one Host header.", headers=CLOSE)
        host = hosts[0].decode("latin-1").lower() if hosts else ""
        if not self._goes_by(host) and path not in FOR_PROBES:
            return RequestRefused(
                "unknown_host",
                "This server does not go by that name.",
                hint="Start it with --allowed-host NAME if it should.",
            )
        if scope["method"] not in SAFE_METHODS and _is_foreign(scope, host):
            return RequestRefused("wrong_origin", "Another site must not write here through somebody's browser.")
        return None

    def _goes_by(self, host: str) -> bool:
        if self._hosts is None:
            return True
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1] or found[2]
        return name in self._hosts or (self._any_address and _address(name) is not None)

    def _client(self, scope: Scope) -> tuple[str, int]:
        """Who asks: the other end of the connection, or for whom it says it asks if it is a proxy that we trust."""
        address, port = scope.get("client") or ("-", 0)
        address = address.removeprefix(_MAPPED)
        if not self._proxies or not _within(address, self._proxies):
            return address, port
        if header(scope, b"x-forwarded-proto") == b"https":
            scope["scheme"] = "https"  # a cookie that came by HTTPS must not leave by HTTP
        named = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        return _last_stranger(named.decode("latin-1"), address, self._proxies), 0


class _Said:
    """`send`, which remembers the status, and which guards what a browser would show."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            _guard(message)
        await self._send(message)

    async def at_least(self, refusal: RequestRefused) -> None:
        """This, if nothing else was said."""
        if self.status == 0:
            await refuse(self, refusal)


def _guard(message: Message) -> None:
    for name, value in message.get("headers", ()):
        if name == b"content-type":
            if value.startswith(b"text/html"):
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in FOR_HTML if each[0] not in given)]
            return


def _tell(scope: Scope, status: int, took: float) -> None:
    """One line: who, what, how it went, how long it took, with which key; `-` for who left without an answer."""
    key, path = scope.get("dibs.key"), _line(scope["path"])
    about = {
        "event": "request.answered",
        "client": scope["client"][0],
        "method": scope["method"],
        "path": path,
        "status": status or None,
        "seconds": round(took, 6),
    }
    if key is not None:
        about["key"] = key
    access.info(
        "%s %s %s %s %.1f ms%s",
        about["client"],
        scope["method"],
        path,
        status or "-",
        took * 1000,
        "" if key is None else f" key {key}",
        extra=about,
    )


def _line(text: str) -> str:
    """Text that cannot forge a line of the log, whatever a client sent, and that shows no key which is in a path by
    mistake."""
    text = redact(text)
    return text if text.isascii() and text.isprintable() else text.encode("unicode_escape").decode()


def _is_foreign(scope: Scope, host: str) -> bool:
    """True where a browser says that a page of another site wants this."""
    for name, value in scope["headers"]:
        if name == b"origin" and _netloc(value) != host:
            return True
        if name == b"sec-fetch-site" and value in (b"cross-site", b"same-site"):
            return True
    return False


def _netloc(origin: bytes) -> str | None:
    try:
        return urlsplit(origin.decode("latin-1")).netloc.lower()
    except ValueError:
        return None


def _last_stranger(named: str, proxy: str, proxies: Sequence[Network]) -> str:
    """Of `client, proxy, proxy`, the last that is no proxy of ours: what stands before, anybody could have written."""
    nearest = proxy
    for text in reversed(named.split(",")):
        found = _address(text.strip())
        if found is None:
            return nearest
        nearest = found
        if not _within(found, proxies):
            return nearest
    return nearest


def _within(address: str, networks: Sequence[Network]) -> bool:
    try:
        place = ip_address(address)
    except ValueError:
        return False
    return any(place in network for network in networks)


def _address(text: str) -> str | None:
    """The address as it is usually written; None for anything else."""
    try:
        return str(ip_address(text)).removeprefix(_MAPPED)
    except ValueError:
        return None


def _our_fault() -> RequestRefused:
    return RequestRefused("internal_error", "The server failed.", hint="Its log says how; report it if it is a bug.")


def _cut_off() -> RequestRefused:
    return RequestRefused(
        "outcome_unknown",
        "The server stopped before this was done; it may or may not have been.",
        hint="Repeat the call with the same key or token: dibs recognises what is already stored.",
        headers=CLOSE,
    )
