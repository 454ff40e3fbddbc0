"""A server inside another ASGI application: `web.mount("/queue", dibs.asgi.server(app))`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self, cast

from starlette.routing import Router

from dibs.client_base import ClientBase
from dibs.errors import InvalidValue
from dibs.redaction import redact_url
from dibs.server.app import application, running
from dibs.server.config import ServerConfig
from dibs.server.http import AsgiScope, Receive, Send
from dibs.server.middleware import Middleware
from dibs.server.prefix import remove_prefix
from dibs.server.service import Service
from dibs.server.sign_in import SignIn
from dibs.server.stop_signals import on_stop_signal
from dibs.store.contract import DatabaseStore


class MountedServer:
    """The HTTP API and the dashboard of a client's store, as an ASGI application under any path of another one.

    It runs from `start` to `stop`, or for the duration of `async with server:`; `dibs.asgi.lifespan` does this. Without
    an application around it, an ASGI server starts and stops it.
    """

    def __init__(self, client: ClientBase[Any], config: ServerConfig, sign_in: SignIn | None) -> None:
        self.client = client
        self._config = config
        self._sign_in = sign_in
        self._running: Middleware | None = None
        self._closing = AsyncExitStack()
        self._root = Router(lifespan=self._lifespan)

    async def start(self) -> None:
        """Start the background tasks. Raises StoreUnavailable if the database cannot be reached."""
        if self._running is not None:
            raise InvalidValue("This server is already running.", hint="Mount one server in one application.")
        store = _database(self.client)
        await check_reachable(self.client)
        service = Service(store, self._config, self._sign_in)
        async with AsyncExitStack() as starting:
            await starting.enter_async_context(running(service))
            loop = asyncio.get_running_loop()
            starting.enter_context(on_stop_signal(lambda: _call_on(loop, service.stop_waiting)))
            self._closing = starting.pop_all()
        self._running = application(service)

    @property
    def service(self) -> Service:
        """The state that all requests share. Raises InvalidValue if the server is not running."""
        return self._started().service

    def stop_waiting(self) -> None:
        """End long polls and streams, and refuse new requests with a hint to repeat them. A signal to stop does this,
        if the server was started in the main thread."""
        if self._running is not None:
            self._running.service.stop_waiting()

    async def stop(self) -> None:
        """End waiting requests and stop the background tasks. The client stays open."""
        try:
            await self._closing.aclose()
        finally:
            self._running = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._root(scope, receive, send)
        else:
            await self._started()(remove_prefix(scope), receive, send)

    def _started(self) -> Middleware:
        if self._running is None:
            raise InvalidValue(
                "The mounted server of dibs is not running.",
                hint="Give the application around it the lifespan of the same client:"
                " FastAPI(lifespan=dibs.asgi.lifespan(app)).",
            )
        return self._running

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        try:
            async with self:
                yield
        finally:
            await close(self.client)


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has been closed: nothing waits
        loop.call_soon_threadsafe(function)


async def check_reachable(client: ClientBase[Any]) -> None:
    """Raise StoreError if the database cannot be used, so that the application does not start. A server that is away
    may come back."""
    if not client._store.served:
        store = cast("DatabaseStore", client._store)
        await store.run_async(store.upkeep.next_due())


async def close(client: ClientBase[Any]) -> None:
    """Close the store of a client, sync or async, with all connections that the running event loop has."""
    await client._store.close_async()


def _database(client: ClientBase[Any]) -> DatabaseStore:
    if client._store.served:
        raise InvalidValue(
            f"{redact_url(client.url)} is a server; a mounted server needs a database.",
            hint="Give the client the URL of a database: sqlite:///file.db or postgresql://user@host/database.",
        )
    return cast("DatabaseStore", client._store)
