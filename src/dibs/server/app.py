"""The ASGI application: all endpoints and pages by path, behind the middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route, Router

from dibs.server.api import ENDPOINTS
from dibs.server.config import ServerConfig
from dibs.server.dashboard import rendering
from dibs.server.dashboard.page import Page, answer_not_found
from dibs.server.dashboard.plain_page import PlainPage
from dibs.server.dashboard.routes import PAGES
from dibs.server.endpoint import Endpoint
from dibs.server.http import AsgiScope, Receive, Send, header, send_error
from dibs.server.middleware import Middleware
from dibs.server.service import Service
from dibs.store.contract import DatabaseStore
from dibs.wire.errors import RequestRefused


def create_app(store: DatabaseStore, config: ServerConfig) -> Middleware:
    """Create the ASGI application for a store, which is closed at the end of the application's lifespan."""
    service = Service(store, config)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        try:
            async with running(service):
                yield
        finally:
            await store.close_async()

    return application(service, lifespan)


def application(service: Service, lifespan: Any = None) -> Middleware:
    """Create the ASGI application of a service: all endpoints and pages, behind the middleware."""
    return Middleware(service, PathRouter([*ENDPOINTS, *PAGES], lifespan))


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """Run the background tasks of the service for the duration of the block."""
    await service.start()
    preparing = asyncio.create_task(asyncio.to_thread(rendering.prepare))
    try:
        yield
    finally:
        await service.stop()
        await preparing


RouteTarget = Endpoint | Page | PlainPage


class PathRouter:
    """Routes requests by path. Paths without parameters are looked up in a dict; the others are matched in order."""

    def __init__(self, endpoints: Iterable[RouteTarget], lifespan: Any = None) -> None:
        methods = _by_path(endpoints)
        self._fixed = {path: each for path, each in methods.items() if "{" not in path}
        others = [Route(path, each) for path, each in methods.items() if "{" in path]
        self._router = Router(others, redirect_slashes=False, default=_not_found, lifespan=lifespan)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass the request to the endpoint of its path."""
        fixed = self._fixed.get(scope["path"]) if scope["type"] == "http" else None
        if fixed is None:
            await self._router(scope, receive, send)
            return
        scope["path_params"] = {}
        await fixed(scope, receive, send)


def _by_path(endpoints: Iterable[RouteTarget]) -> dict[str, _Methods]:
    paths: dict[str, dict[str, RouteTarget]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return {path: _Methods(methods) for path, methods in paths.items()}


class _Methods:
    """The endpoints of one path, by method. Public GET endpoints also accept HEAD, which probes use; uvicorn omits the
    body."""

    def __init__(self, methods: Mapping[str, RouteTarget]) -> None:
        public = methods.get("GET")
        self._methods = {**methods, "HEAD": public} if public is not None and not public.scopes else methods
        self._allow = ", ".join(sorted(methods)).encode()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        endpoint = self._methods.get(scope["method"])
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        message = f"This path does not support {scope['method']}, only {self._allow.decode()}."
        await send_error(send, RequestRefused("method_not_allowed", message, headers=((b"allow", self._allow),)))


async def _not_found(scope: AsgiScope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http" and b"text/html" in (header(scope, b"accept") or b""):
        await answer_not_found(scope, receive, send)
    elif scope["type"] == "http":
        await send_error(
            send, RequestRefused("not_found", "This path does not exist.", hint="/api/docs lists all paths.")
        )
    else:
        await send({"type": "websocket.close", "code": 1000})


class _Name(Convertor[str]):
    """A name in a path, percent-encoded, so that it may contain slashes."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        # A name that is not UTF-8 is refused later, like other invalid names.
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        raise NotImplementedError


class _Number(Convertor[int]):
    """An id in a path, with at most as many digits as a 64-bit number. Python refuses to parse thousands of digits."""

    regex = "[0-9]{1,19}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        raise NotImplementedError


register_url_convertor("name", _Name())
register_url_convertor("int", _Number())
