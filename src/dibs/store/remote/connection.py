"""Connections to the server: one client for the threads of a process, one for each event loop.

A client that is closed while calls wait for their answers stays open until the last answer.
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
from dibs.store.remote.conversation import Rest, conversation
from dibs.store.remote.events import RemoteEvents
from dibs.store.remote.request import HttpCall
from dibs.store.remote.wakeups import RemoteWakeups

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=20.0)
"""An idle connection is closed long before the server would close it (dibs after 75 s, most proxies after 60): the
outcome of a request that the server's close overtakes would be unknown. The number of connections has no limit: httpx
may close a surplus connection at the moment when another thread sends on it, and that outcome would be unknown too."""


class RemoteConnections:
    """The clients of one process, opened when first used."""

    def __init__(self, address: Address) -> None:
        self.pid = os.getpid()
        self.wakeups = RemoteWakeups(address)
        self.events = RemoteEvents(address)
        self._address = address
        self._lock = threading.Lock()
        self._closed = False  # from now on the last user of a client closes it
        self._client: _SharedClient | None = None
        self._async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _SharedAsyncClient]
        self._async_clients = weakref.WeakKeyDictionary()

    def send(self, call: HttpCall, by: str | None) -> bytes | None:
        """Send the call, with repetitions, and return the answer."""
        with self._borrow() as client:

            def act(step: HttpCall | Rest) -> httpx.Response | None:
                if isinstance(step, HttpCall):
                    return client.request(step.method, self._address.url(step), **request_options(step, by))
                time.sleep(step.seconds)
                return None

            return drive(conversation(call, self._address.host), act)

    async def send_async(self, call: HttpCall, by: str | None) -> bytes | None:
        """`send`, without blocking the event loop."""
        async with self._borrow_async() as client:

            async def act(step: HttpCall | Rest) -> httpx.Response | None:
                if isinstance(step, HttpCall):
                    return await client.request(step.method, self._address.url(step), **request_options(step, by))
                await asyncio.sleep(step.seconds)
                return None

            return await drive_async(conversation(call, self._address.host), act)

    def close(self) -> None:
        """Close the connections of threads."""
        if self.pid != os.getpid():
            return
        self.wakeups.close()
        self.events.close()
        with self._lock:
            self._closed = True
            shared, self._client = self._client, None
            idle = shared is not None and shared.users == 0
        if shared is not None and idle:
            shared.client.close()

    async def close_async(self) -> None:
        """Close the connections of the running event loop."""
        self._closed = True
        shared = self._async_clients.pop(asyncio.get_running_loop(), None)
        if shared is not None and shared.users == 0:
            await shared.client.aclose()

    @contextmanager
    def _borrow(self) -> Iterator[httpx.Client]:
        with self._lock:
            if self._client is None:
                self._client = _SharedClient(httpx.Client(limits=LIMITS, **self._address.client_options()))
            shared = self._client
            shared.users += 1
        try:
            yield shared.client
        finally:
            with self._lock:
                shared.users -= 1
                unused = shared.users == 0 and (self._closed or shared is not self._client)
                if unused and shared is self._client:
                    self._client = None
            if unused:
                shared.client.close()

    @asynccontextmanager
    async def _borrow_async(self) -> AsyncIterator[httpx.AsyncClient]:
        loop = asyncio.get_running_loop()
        shared = self._async_clients.get(loop)
        if shared is None:
            shared = _SharedAsyncClient(httpx.AsyncClient(limits=LIMITS, **self._address.client_options()))
            self._async_clients[loop] = shared
        shared.users += 1
        try:
            yield shared.client
        finally:
            shared.users -= 1
            kept = self._async_clients.get(loop)
            if shared.users == 0 and (self._closed or shared is not kept):
                if shared is kept:
                    del self._async_clients[loop]
                await shared.client.aclose()


class _SharedClient:
    """An HTTP client, and the number of calls that use it now."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.users = 0


class _SharedAsyncClient:
    """`_SharedClient`, for an event loop."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.users = 0
