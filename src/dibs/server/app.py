"""The application: every endpoint at its path, behind the gate."""

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
from dibs.server.dashboard.page import Page, lost
from dibs.server.dashboard.plain_page import PlainPage
from dibs.server.dashboard.routes import PAGES
from dibs.server.endpoint import Endpoint
from dibs.server.http import Receive, Scope, Send, header, refuse
from dibs.server.middleware import Gate
from dibs.server.service import Service
from dibs.store.contract import DatabaseStore
from dibs.wire.errors import RequestRefused


def create_app(store: DatabaseStore, config: ServerConfig) -> Gate:
    """The ASGI application on this store."""
    service = Service(store, config)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        await service.start()
        preparing = asyncio.create_task(asyncio.to_thread(rendering.prepare))
        try:
            yield
        finally:
            await service.stop()
            await preparing

    return Gate(service, Paths([*ENDPOINTS, *PAGES], lifespan))


Place = Endpoint | Page | PlainPage


class Paths:
    """Every endpoint at its path. A path without parameters is found at once; the others are tried in their order."""

    def __init__(self, endpoints: Iterable[Place], lifespan: Any = None) -> None:
        methods = _by_path(endpoints)
        self._fixed = {path: each for path, each in methods.items() if "{" not in path}
        others = [Route(path, each) for path, each in methods.items() if "{" in path]
        self._router = Router(others, redirect_slashes=False, default=_not_found, lifespan=lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """To the endpoint at this path."""
        fixed = self._fixed.get(scope["path"]) if scope["type"] == "http" else None
        if fixed is None:
            await self._router(scope, receive, send)
            return
        scope["path_params"] = {}
        await fixed(scope, receive, send)


def _by_path(endpoints: Iterable[Place]) -> dict[str, _Methods]:
    paths: dict[str, dict[str, Place]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return {path: _Methods(methods) for path, methods in paths.items()}


class _Methods:
    """The endpoints of one path. What needs no key may also be asked for with HEAD: probes do, and uvicorn leaves the
    body out."""

    def __init__(self, methods: Mapping[str, Place]) -> None:
        public = methods.get("GET")
        self._methods = {**methods, "HEAD": public} if public is not None and not public.scopes else methods
        self._allow = ", ".join(sorted(methods)).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._methods.get(scope["method"])
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        message = f"{scope['method']} is not possible here; {self._allow.decode()} is."
        await refuse(send, RequestRefused("method_not_allowed", message, headers=((b"allow", self._allow),)))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http" and b"text/html" in (header(scope, b"accept") or b""):
        await lost(scope, receive, send)
    elif scope["type"] == "http":
        await refuse(
            send, RequestRefused("not_found", "There is nothing at this path.", hint="/api/docs lists what there is.")
        )
    else:
        await send({"type": "websocket.close", "code": 1000})


class _Name(Convertor[str]):
    """A name in a path: percent-encoded, so that it may hold slashes."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value, errors="surrogateescape")  # what is no UTF-8 is refused like any other odd name

    def to_string(self, value: str) -> str:
        raise NotImplementedError


class _Number(Convertor[int]):
    """An id in a path. One of more digits than 64 bits have is no id, and Python would not even read thousands."""

    regex = "[0-9]{1,19}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        raise NotImplementedError


register_url_convertor("name", _Name())
register_url_convertor("int", _Number())
