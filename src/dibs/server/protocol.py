"""One connection: uvicorn's, with bounds on what a client may send and on how long it may take.

uvicorn waits for ever for a request that never comes to its end, and keeps headers however many there are. Here a
request has half a minute and 64 KiB of headers, and there are only so many connections. What a client is told when it
breaks these rules is JSON, as everywhere. A request that comes in one piece, as nearly all do, costs no timer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from dibs.server.http import JSON, SAFE_HEADERS, encode
from dibs.server.refusing import Refusal, headers_of, refusal, status_of

MAX_HEAD = 64 * 1024
"""Bytes of a request before its body."""

MAX_CONNECTIONS = 10_000
"""At once, in one process."""

MAX_PIPELINE = 64
"""Requests that a client may send ahead of their answers."""

REQUEST_TIMEOUT = 30.0
"""Seconds from the first byte of a request (or from the connection) to the last of its body."""

LINGER = 1.0
"""Seconds for which we listen to a client that was refused before it had sent everything: closing at once would make
its system throw our answer away."""

CLOSE = (b"connection", b"close")
STATUS = b"HTTP/1.1 "


class HttpConnection(HttpToolsProtocol):
    """A client's connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head = 0  # bytes since the request began, while its headers are still coming
        self._in_head = False
        self._whole = True  # no request is half received
        self._deadline: asyncio.TimerHandle | None = None
        self._running: Any = None
        self.cycle: Any  # None before the first request

    @property
    def idle(self) -> bool:
        """True if no request is here, half received or not yet answered."""
        return self._whole and (self.cycle is None or self.cycle.response_complete)

    @property
    def received_whole(self) -> bool:
        """True unless a request is half received."""
        return self._whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(LingeringTransport(transport, self))  # type: ignore[arg-type]
        if len(self.connections) > MAX_CONNECTIONS:
            self.turn_away(Refusal("too_many_connections", "The server has no room for another connection."))
        else:
            self._hurry()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._rest()
        _disconnect(self._running)  # uvicorn tells the last of several requests only
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""
        if self.transport.is_closing():
            return
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > MAX_HEAD:
            self.turn_away(Refusal("headers_too_large", f"The headers are larger than {MAX_HEAD:,} bytes."))
        elif self._whole:
            self._rest()
        elif self._deadline is None:
            self._hurry()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._whole = True, False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Everything but the body is there."""
        self._in_head = False
        if not self.url.startswith(b"/"):
            self._take_host_from_target()
        ahead = len(self.pipeline)
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False  # it is not upgraded, and the parser reads nothing more on this line
        if len(self.pipeline) == ahead:
            self._running = self.cycle
        elif ahead == MAX_PIPELINE:
            raise ValueError("too many requests at once")  # answered like any other that cannot be read
        else:
            # uvicorn stops reading behind a queued request. A connection that is not read does not notice that its
            # client is gone, and the running request may be a claim that waits for a minute. MAX_PIPELINE bounds
            # what is read ahead.
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """An answer is there, and the turn is the next request's."""
        if self.pipeline and not self.transport.is_closing():
            self._running = self.pipeline[-1][0]
        super().on_response_complete()

    def on_message_complete(self) -> None:
        """The request is there."""
        self._whole, self._head = True, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        self.turn_away(Refusal("bad_request", msg))

    def turn_away(self, error: Refusal) -> None:
        """Answer in the place of the application, unless it has begun to, and close."""
        self._rest()
        if self._is_next():
            self.transport.write(_response(error, self.server_state.default_headers))
        for cycle in (self._running, self.cycle):
            _disconnect(cycle)
        self.transport.close()

    def _is_next(self) -> bool:
        """True if the next answer on the line belongs to what is being received: another must not be taken for it."""
        running = self._running
        if running is None:
            return True
        if self._whole or self._in_head:  # it has not come so far that anybody runs it
            return bool(running.response_complete)
        return running is self.cycle and not running.response_started

    def _take_host_from_target(self) -> None:
        """`GET http://name/path`: the name there counts, and the Host header does not (RFC 9112, 3.2.2)."""
        target = httptools.parse_url(self.url)
        host: bytes | None = target.host
        if host is None:
            raise ValueError("neither a path nor a URL")
        name = b"[" + host + b"]" if b":" in host else host
        port = b":%d" % target.port if target.port else b""
        self.headers[:] = [(key, value) for key, value in self.headers if key != b"host"]
        self.headers.append((b"host", name + port))

    def _hurry(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_TIMEOUT, self._too_late)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._whole:  # it never began: there is nothing to answer
            self.transport.close()
        else:
            message = f"The request did not come to its end within {REQUEST_TIMEOUT:g} s."
            self.turn_away(Refusal("too_slow", message))


class LingeringTransport:
    """A transport that lets a client finish its sentence, for a moment, before it hangs up."""

    def __init__(self, transport: asyncio.Transport, connection: HttpConnection) -> None:
        self._transport = transport
        self._connection = connection
        self._leaving = False
        self._head: bytes | None = None
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        """Send it; the head of an answer together with the body that follows at once, in one packet."""
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
        """True once no more is read or written."""
        return self._leaving or self._transport.is_closing()

    def close(self) -> None:
        """Say that nothing more will come, and hang up."""
        self._flush()
        if self._leaving or self._connection.received_whole or self._transport.is_closing():
            self._transport.close()
            return
        self._leaving = True
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            self._connection.flow.resume_reading()
            self._transport.write_eof()
        self._connection.loop.call_later(LINGER, self._transport.close)


def _disconnect(cycle: Any) -> None:
    """Tell the application that its client is gone."""
    if cycle is not None and not cycle.response_complete:
        cycle.disconnected = True
        cycle.message_event.set()


def _response(error: Refusal, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    body = encode(refusal(error))
    size = (b"content-length", str(len(body)).encode())
    headers = [*default_headers, JSON, *headers_of(error), size, *SAFE_HEADERS, CLOSE]
    return b"".join([STATUS_LINE[status_of(error)], *(b"%s: %s\r\n" % pair for pair in headers), b"\r\n", body])
