"""Read events from the stream of a server.

After a lost connection the stream continues behind the last event that was received: no event is lost or repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator, Generator
from typing import Any
from urllib.parse import urlencode

import httpx
import msgspec

from dibs.model.history import EventFilter, StoreEvent
from dibs.store.remote.address import CONNECT, Address
from dibs.store.remote.conversation import CallAttempts
from dibs.store.remote.decode import read_refusal, reader
from dibs.store.remote.request import HttpCall
from dibs.wire.history import EventsQuery, TaskEvent

_read_event = reader(TaskEvent)

SILENCE = 40.0
"""Seconds without a byte after which the connection counts as lost: the server sends something every 15 seconds."""


class RemoteEvents:
    """The open event streams of a process. `close` ends them, even while a thread waits for the next event."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._sockets: set[Any] = set()
        self._closed = False

    def stream(self, filter: EventFilter, after: int | None) -> Generator[StoreEvent, None, None]:
        """Yield the events after the entry `after` (None: only new ones) until the store is closed."""
        position = _Position(filter, after)
        with httpx.Client(**self._address.client_options()) as client:
            while not self._closed:
                try:
                    with client.stream("GET", **self._request(position, self._remember_socket)) as response:
                        if response.is_success:
                            for line in response.iter_lines():
                                yield from position.read(line)
                        pause = position.after_end(response, b"" if response.is_success else response.read())
                except httpx.TransportError as error:
                    pause = self._after_error(position, error)
                time.sleep(pause)

    async def stream_async(self, filter: EventFilter, after: int | None) -> AsyncGenerator[StoreEvent, None]:
        """`stream`, without blocking the event loop."""

        async def trace(event: str, info: dict[str, Any]) -> None:
            self._remember_socket(event, info)

        position = _Position(filter, after)
        async with httpx.AsyncClient(**self._address.client_options()) as client:
            while not self._closed:
                try:
                    async with client.stream("GET", **self._request(position, trace)) as response:
                        if response.is_success:
                            async for line in response.aiter_lines():
                                for event in position.read(line):
                                    yield event
                        pause = position.after_end(response, b"" if response.is_success else await response.aread())
                except httpx.TransportError as error:
                    pause = self._after_error(position, error)
                await asyncio.sleep(pause)

    def close(self) -> None:
        """End all streams: a thread that waits for an event is ended by shutting down its socket."""
        self._closed = True
        for open_socket in list(self._sockets):
            with contextlib.suppress(OSError):  # it is closed already
                open_socket.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def _after_error(self, position: _Position, error: httpx.TransportError) -> float:
        return 0.0 if self._closed else position.attempts(self._address.host).after_error(error)

    def _request(self, position: _Position, trace: Any) -> dict[str, Any]:
        position.host = self._address.host
        return {
            "url": self._address.url(position.call),
            "headers": position.begin(),
            "timeout": httpx.Timeout(SILENCE, connect=CONNECT),
            "extensions": {"trace": trace},
        }

    def _remember_socket(self, event: str, info: dict[str, Any]) -> None:
        """Keep the socket of each new connection for `close`. httpx calls this for each event of a connection."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._sockets = {each for each in self._sockets if each.fileno() >= 0}
            self._sockets.add(info["return_value"].get_extra_info("socket"))
            if self._closed:  # closed while connecting
                self.close()


class _Position:
    """The position in a stream: the last id that the server sent, and the fields of the event that is incomplete."""

    def __init__(self, filter: EventFilter, after: int | None) -> None:
        query = urlencode(msgspec.to_builtins(EventsQuery.from_model(filter)))
        self.call = HttpCall("GET", f"/api/events?{query}" if query else "/api/events")
        self.host = ""
        self._last_id = after
        self._fields: dict[str, str] = {}
        self._attempts: CallAttempts | None = None

    def begin(self) -> dict[str, str]:
        """Forget an event that was received in part, and return the headers of the next request."""
        self._fields = {}
        accept = {"Accept": "text/event-stream, application/json"}
        return accept if self._last_id is None else {**accept, "Last-Event-ID": str(self._last_id)}

    def attempts(self, host: str) -> CallAttempts:
        """The failed requests since a line was last received."""
        if self._attempts is None:
            self._attempts = CallAttempts(self.call, host)
        return self._attempts

    def read(self, line: str) -> Generator[StoreEvent, None, None]:
        """Read a line of the stream; yield the event that an empty line completes.

        The server begins with an id without an event, so a connection that is lost early continues from there.
        """
        self._attempts = None
        if line:
            name, _, value = line.partition(": ")
            self._fields[name] = value
            return
        fields, self._fields = self._fields, {}
        event = _read_event(fields["data"].encode()) if "data" in fields else None
        if "id" in fields:
            self._last_id = int(fields["id"])
        if event is not None:
            yield event

    def after_end(self, response: httpx.Response, content: bytes) -> float:
        """Return the seconds until the next request, after the server has ended or refused the stream. A refusal that a
        repetition would not change is raised."""
        if response.is_success:
            return self.attempts(self.host).after_error(httpx.RemoteProtocolError("the stream ended"))
        return self.attempts(self.host).after_refusal(response, read_refusal(content))
