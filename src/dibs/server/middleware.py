"""The middleware: checks before every request, security headers, error responses and the access log.

An unknown Host header is refused: a web page could otherwise reach a server on loopback through DNS rebinding. A write
that a browser sends for another site is refused. An unexpected error becomes a response instead of a broken
connection. The access log has one line for each request, which clients cannot forge.
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
from dibs.server.http import SAFE_METHODS, AsgiScope, Message, Receive, Send, header, send_error
from dibs.server.prefix import remove_prefix
from dibs.server.service import Service
from dibs.wire.errors import RequestRefused

logger = logging.getLogger("dibs.server")
access = logging.getLogger("dibs.access")

PROBE_PATHS = frozenset({b"/health", b"/ready"})
"""Paths without a check of the Host header: load balancers probe by any address, and the answers contain no data."""

CLOSE = ((b"connection", b"close"),)
HTML_HEADERS = (
    (b"content-security-policy", b"default-src 'self'"),
    (b"x-frame-options", b"DENY"),
    # With no-referrer, browsers would send the dashboard's forms with the origin null.
    (b"referrer-policy", b"same-origin"),
)

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]*)?")
_MAPPED = "::ffff:"


class Middleware:
    """The outermost ASGI application."""

    def __init__(self, service: Service, app: object) -> None:
        self.service = service
        self._app = app
        self._hosts = service.config.hosts
        self._any_address = service.config.any_address
        self._proxies = service.config.networks()
        self._prefix = service.config.prefix
        self._logs = service.config.access_log

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Handle a request; lifespan messages are passed on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)  # type: ignore[operator]
            return
        began = time.perf_counter()
        if self._prefix:
            scope = remove_prefix({**scope, "root_path": self._prefix})
        response = _Response(send)
        try:
            await self._handle(scope, receive, response)
        except Exception as error:
            fields = {"event": "request.failed", "method": scope["method"], "path": _escape(scope["path"])}
            logger.exception("a request failed: %s %s", fields["method"], fields["path"], exc_info=error, extra=fields)
            await response.ensure_error(_internal_error())
        except asyncio.CancelledError:
            if not self.service.stopping.is_set():
                raise
            await response.ensure_error(_stopped())
        finally:
            if self._logs and access.isEnabledFor(logging.INFO):
                _log_request(scope, response.status, time.perf_counter() - began)

    async def _handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        scope["path"] = raw.split(b"?", 1)[0].decode("latin-1")  # undecoded: an encoded slash stays part of a name
        scope["client"] = self._client(scope)
        refusal = self._refusal(scope, raw)
        if refusal is not None:
            await send_error(send, refusal)
            return
        scope["dibs.service"] = self.service
        await self._app(scope, receive, send)  # type: ignore[operator]

    def _refusal(self, scope: AsgiScope, path: bytes) -> RequestRefused | None:
        if self.service.stopping.is_set():
            return RequestRefused(
                "stopping", "The server is stopping.", hint="Repeat the request in a moment.", headers=CLOSE
            )
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1:
            return RequestRefused("bad_request", "The request has several Host headers.", headers=CLOSE)
        host = hosts[0].decode("latin-1").lower() if hosts else ""
        if not self._accepts_host(host) and path not in PROBE_PATHS:
            return RequestRefused(
                "unknown_host",
                "The Host header is not a name of this server.",
                hint="Start the server with --allowed-host NAME to accept it; mounted: allowed_hosts=[NAME].",
            )
        if scope["method"] not in SAFE_METHODS and _is_foreign(scope, host):
            return RequestRefused("wrong_origin", "The request comes from a page of another site.")
        return None

    def _accepts_host(self, host: str) -> bool:
        if self._hosts is None:
            return True
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1] or found[2]
        return name in self._hosts or (self._any_address and _address(name) is not None)

    def _client(self, scope: AsgiScope) -> tuple[str, int]:
        """Return the address of the client: the peer, or the address that a trusted proxy forwards."""
        address, port = scope.get("client") or ("-", 0)
        address = address.removeprefix(_MAPPED)
        if not self._proxies or not _within(address, self._proxies):
            return address, port
        if header(scope, b"x-forwarded-proto") == b"https":
            scope["scheme"] = "https"  # cookies must get the attribute Secure
        forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        return _client_address(forwarded.decode("latin-1"), address, self._proxies), 0


class _Response:
    """A `send` that records the status and adds security headers to HTML."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            _add_html_headers(message)
        await self._send(message)

    async def ensure_error(self, refusal: RequestRefused) -> None:
        """Send this error if no response was started."""
        if self.status == 0:
            await send_error(self, refusal)


def _add_html_headers(message: Message) -> None:
    for name, value in message.get("headers", ()):
        if name == b"content-type":
            if value.startswith(b"text/html"):
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in HTML_HEADERS if each[0] not in given)]
            return


def _log_request(scope: AsgiScope, status: int, took: float) -> None:
    """Write a line of the access log; status `-` if the client disconnected before the response."""
    key, path = scope.get("dibs.key"), _escape(scope["path"])
    fields = {
        "event": "request.answered",
        "client": scope["client"][0],
        "method": scope["method"],
        "path": path,
        "status": status or None,
        "seconds": round(took, 6),
    }
    if key is not None:
        fields["key"] = key
    access.info(
        "%s %s %s %s %.1f ms%s",
        fields["client"],
        scope["method"],
        path,
        status or "-",
        took * 1000,
        "" if key is None else f" key {key}",
        extra=fields,
    )


def _escape(text: str) -> str:
    """Escape text of a client for the log, so that it cannot forge a line, and redact keys."""
    text = redact(text)
    return text if text.isascii() and text.isprintable() else text.encode("unicode_escape").decode()


def _is_foreign(scope: AsgiScope, host: str) -> bool:
    """Return True if the headers of the browser name another site as origin."""
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


def _client_address(forwarded: str, proxy: str, proxies: Sequence[Network]) -> str:
    """Return the last address in `client, proxy, proxy` that is not a trusted proxy: earlier ones could be forged."""
    nearest = proxy
    for text in reversed(forwarded.split(",")):
        found = _address(text.strip())
        if found is None:
            return nearest
        nearest = found
        if not _within(found, proxies):
            return nearest
    return nearest


def _within(address: str, networks: Sequence[Network]) -> bool:
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    return any(ip in network for network in networks)


def _address(text: str) -> str | None:
    """Return the canonical form of an IP address; None for anything else."""
    try:
        return str(ip_address(text)).removeprefix(_MAPPED)
    except ValueError:
        return None


def _internal_error() -> RequestRefused:
    return RequestRefused(
        "internal_error", "The server failed.", hint="See the log of the server; report the error if it is a bug."
    )


def _stopped() -> RequestRefused:
    return RequestRefused(
        "outcome_unknown",
        "The server stopped before the request ended; it may or may not have been executed.",
        hint="Repeat the request with the same idempotency key or token: it has no second effect.",
        headers=CLOSE,
    )
