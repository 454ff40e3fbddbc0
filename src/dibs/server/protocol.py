"""The HTTP protocol of a connection: that of uvicorn, with limits on the size and duration of requests.

uvicorn waits without limit for the end of a request, and accepts headers of any size. Here a request has half a minute
and 64 KiB of headers, and the number of connections is limited. A client that exceeds a limit gets a JSON error. A
request that arrives in one piece, as nearly all do, needs no timer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from dibs.server.http import JSON, SAFE_HEADERS, encode
from dibs.wire.errors import Refusal, RequestRefused, headers_of, status_of

MAX_HEAD = 64 * 1024
"""Maximum size of the request line and headers, in bytes."""

MAX_CONNECTIONS = 10_000
"""Maximum number of connections of one process."""

MAX_PIPELINE = 64
"""Maximum number of pipelined requests."""

REQUEST_TIMEOUT = 30.0
"""Seconds from the first byte of a request, or from the connection, to the end of its body."""

LINGER = 1.0
"""Seconds for which the server reads from a client that was refused before it had sent everything: closing at once
would reset the connection, and the client would lose the response."""

CLOSE = (b"connection", b"close")
STATUS = b"HTTP/1.1 "


class HttpConnection(HttpToolsProtocol):
    """The connection of a client."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head = 0  # bytes received since the start of the request, while its headers are incomplete
        self._in_head = False
        self._complete = True  # no request is partially received
        self._deadline: asyncio.TimerHandle | None = None
        self._running: Any = None
        self.cycle: Any  # None before the first request

    @property
    def idle(self) -> bool:
        """True if no request is partially received or unanswered."""
        return self._complete and (self.cycle is None or self.cycle.response_complete)

    @property
    def received_completely(self) -> bool:
        """True unless a request is partially received."""
        return self._complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the connection; refuse it above the limit."""
        super().connection_made(LingeringTransport(transport, self))  # type: ignore[arg-type]
        if len(self.connections) > MAX_CONNECTIONS:
            self.refuse(RequestRefused("too_many_connections", "The server has reached its limit of connections."))
        else:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._stop_timer()
        _disconnect(self._running)  # uvicorn notifies only the last of several requests
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes, and check the limits."""
        if self.transport.is_closing():
            return
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > MAX_HEAD:
            self.refuse(RequestRefused("headers_too_large", f"The headers are larger than {MAX_HEAD:,} bytes."))
        elif self._complete:
            self._stop_timer()
        elif self._deadline is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        """Note the start of a request."""
        self._in_head, self._complete = True, False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the request after its headers."""
        self._in_head = False
        if not self.url.startswith(b"/"):
            self._take_host_from_target()
        ahead = len(self.pipeline)
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False  # upgrades are not supported, and the parser reads no further request
        if len(self.pipeline) == ahead:
            self._running = self.cycle
        elif ahead == MAX_PIPELINE:
            raise ValueError("too many requests at once")  # answered like any other malformed request
        else:
            # uvicorn stops reading behind a queued request. A connection that is not read does not notice that its
            # client has disconnected, and the running request may be a claim that waits for a minute. MAX_PIPELINE
            # limits what is read ahead.
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Continue with the next pipelined request."""
        if self.pipeline and not self.transport.is_closing():
            self._running = self.pipeline[-1][0]
        super().on_response_complete()

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self._complete, self._head = True, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP."""
        self.refuse(RequestRefused("bad_request", msg))

    def refuse(self, error: RequestRefused) -> None:
        """Send an error instead of the application's response, unless that was started, and close the connection."""
        self._stop_timer()
        if self._may_respond():
            self.transport.write(_response(error, self.server_state.default_headers))
        for cycle in (self._running, self.cycle):
            _disconnect(cycle)
        self.transport.close()

    def _may_respond(self) -> bool:
        """Return True if the next response on the connection belongs to the request that is being received."""
        running = self._running
        if running is None:
            return True
        if self._complete or self._in_head:  # the request has not been started
            return bool(running.response_complete)
        return running is self.cycle and not running.response_started

    def _take_host_from_target(self) -> None:
        """Use the host of `GET http://name/path` instead of the Host header (RFC 9112, 3.2.2)."""
        target = httptools.parse_url(self.url)
        host: bytes | None = target.host
        if host is None:
            raise ValueError("neither a path nor a URL")
        name = b"[" + host + b"]" if b":" in host else host
        port = b":%d" % target.port if target.port else b""
        self.headers[:] = [(key, value) for key, value in self.headers if key != b"host"]
        self.headers.append((b"host", name + port))

    def _start_timer(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_TIMEOUT, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_timeout(self) -> None:
        self._deadline = None
        if self._complete:  # no request was started: there is nothing to answer
            self.transport.close()
        else:
            message = f"The request was not complete within {REQUEST_TIMEOUT:g} s."
            self.refuse(RequestRefused("too_slow", message))


class LingeringTransport:
    """A transport that reads from a refused client for a moment before it closes."""

    def __init__(self, transport: asyncio.Transport, connection: HttpConnection) -> None:
        self._transport = transport
        self._connection = connection
        self._lingering = False
        self._head: bytes | None = None
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        """Send data. The head of a response is sent in one packet with the body that follows at once."""
        if self._head is not None:
            data, self._head = self._head + data, None
        elif data.startswith(STATUS):
            self._head = data
            self._connection.loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._transport.write(head)

    def is_closing(self) -> bool:
        """Return True if the transport is closing."""
        return self._lingering or self._transport.is_closing()

    def close(self) -> None:
        """End the output, and close, after a delay if a request is partially received."""
        self._flush()
        if self._lingering or self._connection.received_completely or self._transport.is_closing():
            self._transport.close()
            return
        self._lingering = True
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            self._connection.flow.resume_reading()
            self._transport.write_eof()
        self._connection.loop.call_later(LINGER, self._transport.close)


def _disconnect(cycle: Any) -> None:
    """Notify the application that its client has disconnected."""
    if cycle is not None and not cycle.response_complete:
        cycle.disconnected = True
        cycle.message_event.set()


def _response(error: RequestRefused, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    body = encode(Refusal.from_model(error))
    size = (b"content-length", str(len(body)).encode())
    headers = [*default_headers, JSON, *headers_of(error), size, *SAFE_HEADERS, CLOSE]
    return b"".join([STATUS_LINE[status_of(error)], *(b"%s: %s\r\n" % pair for pair in headers), b"\r\n", body])
