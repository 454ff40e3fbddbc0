"""Connections to the server: one client for the threads of a process, one for each event loop.

Closing takes nothing away from those who wait for an answer: the last of them closes the client.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx

from dibs.store.operation import drive, drive_async
from dibs.store.remote.address import Address, request_options
from dibs.store.remote.call import Call
from dibs.store.remote.conversation import Rest, conversation
from dibs.store.remote.wakeups import RemoteWakeups

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=20.0)
"""An idle connection is given up long before the server does so (dibs after 75 s, proxies mostly after 60): a request
that crosses with the server's goodbye would leave its outcome unknown. By age alone, not by number: the pool may close
what it takes for surplus at the moment another thread sends on it, and that outcome would be unknown as well."""


class Connections:
    """The clients of one process, opened when first used."""

    def __init__(self, address: Address) -> None:
        self.pid = os.getpid()
        self.wakeups = RemoteWakeups(address)
        self._address = address
        self._lock = threading.Lock()
        self._closed = False  # who is still here, or comes too late, leaves nothing open behind
        self._line: _Line | None = None
        self._async_lines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _AsyncLine]
        self._async_lines = weakref.WeakKeyDictionary()

    def send(self, call: Call, by: str | None) -> bytes | None:
        """The answer to the call."""
        with self._borrow() as client:

            def act(step: Call | Rest) -> httpx.Response | None:
                if isinstance(step, Call):
                    return client.request(step.method, self._address.url(step), **request_options(step, by))
                time.sleep(step.seconds)
                return None

            return drive(conversation(call, self._address.host), act)

    async def send_async(self, call: Call, by: str | None) -> bytes | None:
        """`send`, without blocking the event loop."""
        async with self._borrow_async() as client:

            async def act(step: Call | Rest) -> httpx.Response | None:
                if isinstance(step, Call):
                    return await client.request(step.method, self._address.url(step), **request_options(step, by))
                await asyncio.sleep(step.seconds)
                return None

            return await drive_async(conversation(call, self._address.host), act)

    def close(self) -> None:
        """Let go of the connections that threads use."""
        if self.pid != os.getpid():
            return
        self.wakeups.close()
        with self._lock:
            self._closed = True
            line, self._line = self._line, None
            idle = line is not None and line.users == 0
        if line is not None and idle:
            line.client.close()

    async def close_async(self) -> None:
        """Let go of those of this event loop."""
        self._closed = True
        line = self._async_lines.pop(asyncio.get_running_loop(), None)
        if line is not None and line.users == 0:
            await line.client.aclose()

    @contextmanager
    def _borrow(self) -> Iterator[httpx.Client]:
        with self._lock:
            if self._line is None:
                self._line = _Line(httpx.Client(limits=LIMITS, **self._address.client_options()))
            line = self._line
            line.users += 1
        try:
            yield line.client
        finally:
            with self._lock:
                line.users -= 1
                forsaken = line.users == 0 and (self._closed or line is not self._line)
                if forsaken and line is self._line:
                    self._line = None
            if forsaken:
                line.client.close()

    @asynccontextmanager
    async def _borrow_async(self) -> AsyncIterator[httpx.AsyncClient]:
        loop = asyncio.get_running_loop()
        line = self._async_lines.get(loop)
        if line is None:
            line = _AsyncLine(httpx.AsyncClient(limits=LIMITS, **self._address.client_options()))
            self._async_lines[loop] = line
        line.users += 1
        try:
            yield line.client
        finally:
            line.users -= 1
            kept = self._async_lines.get(loop)
            if line.users == 0 and (self._closed or line is not kept):
                if line is kept:
                    del self._async_lines[loop]
                await line.client.aclose()


class _Line:
    """A client, and how many wait for an answer on it."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.users = 0


class _AsyncLine:
    """The same, for an event loop."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.users = 0
