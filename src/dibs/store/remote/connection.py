"""Connections to the server: one client for the threads of a process, one for each event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref

import httpx

from dibs.errors import StoreUnavailable
from dibs.store.operation import drive, drive_async
from dibs.store.remote.address import Address, request_options
from dibs.store.remote.call import Call
from dibs.store.remote.conversation import Rest, conversation
from dibs.store.remote.wakeups import RemoteWakeups

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=20.0)
"""An idle connection is given up long before the server does so (dibs after 75 s, proxies mostly after 60): a request
that crosses with the server's goodbye would leave its outcome unknown."""


class Connections:
    """The clients of one process, opened when first used."""

    def __init__(self, address: Address) -> None:
        self.pid = os.getpid()
        self.wakeups = RemoteWakeups(address)
        self._address = address
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]
        self._async_clients = weakref.WeakKeyDictionary()

    def send(self, call: Call, by: str | None) -> bytes | None:
        """The answer to the call."""

        def act(step: Call | Rest) -> httpx.Response | None:
            if isinstance(step, Call):
                return self._sync().request(step.method, self._address.url(step), **request_options(step, by))
            if self._closing.wait(step.seconds):
                raise _closed()
            return None

        return drive(conversation(call, self._address.host), act)

    async def send_async(self, call: Call, by: str | None) -> bytes | None:
        """`send`, without blocking the event loop."""

        async def act(step: Call | Rest) -> httpx.Response | None:
            if isinstance(step, Call):
                return await self._async().request(step.method, self._address.url(step), **request_options(step, by))
            await asyncio.sleep(step.seconds)
            return None

        return await drive_async(conversation(call, self._address.host), act)

    def close(self) -> None:
        """Let go of the connections that threads use."""
        if self.pid != os.getpid():
            return
        self._closing.set()
        self.wakeups.close()
        with self._lock:
            if self._client is not None:
                self._client.close()

    async def close_async(self) -> None:
        """Let go of those of this event loop."""
        if (client := self._async_clients.pop(asyncio.get_running_loop(), None)) is not None:
            await client.aclose()

    def _sync(self) -> httpx.Client:
        if self._client is None:
            with self._lock:
                if self._closing.is_set():
                    raise _closed()
                if self._client is None:
                    self._client = httpx.Client(limits=LIMITS, **self._address.client_options())
        return self._client

    def _async(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            client = httpx.AsyncClient(limits=LIMITS, **self._address.client_options())
            self._async_clients[loop] = client
        return client


def _closed() -> StoreUnavailable:
    return StoreUnavailable("The store was closed while it spoke to its server.", hint="Its next use opens it again.")
