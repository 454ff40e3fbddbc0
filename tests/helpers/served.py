"""Servers for tests: one thread of uvicorn for the whole test process, with an application for each database.

Each application has its own path, so that each test gets a server without state of earlier tests, and without the cost
of a start.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from dibs.server.app import create_app
from dibs.server.config import ServerConfig
from dibs.server.middleware import Middleware
from dibs.server.service import Service
from dibs.store.open import open_store
from tests.helpers import postgres

CONFIG = ServerConfig(port=0, keys=False, access_log=False, upkeep=False)


class ServerHost:
    """The thread of uvicorn, and its applications."""

    def __init__(self) -> None:
        self._apps: dict[str, Middleware] = {}
        self.services: dict[str, Service] = {}
        """What lies behind each URL, for tests that look inside."""

        self._names = (f"/{number}" for number in itertools.count(1))
        self._loop: asyncio.AbstractEventLoop | None = None
        config = uvicorn.Config(
            self._dispatch, port=0, interface="asgi3", lifespan="off", log_config=None, access_log=False
        )
        self._server = uvicorn.Server(config)
        # Declared as TCP: asyncio sets TCP_NODELAY only then, and without it each answer would take 40 ms.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, name="test-server", daemon=True)
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.005)

    @contextmanager
    def serving(self, url: str, config: ServerConfig = CONFIG, **options: Any) -> Iterator[str]:
        """A server before the database at this URL, for as long as the block lasts; its own URL."""
        name = next(self._names)
        gate = self._do(self._move_in(name, url, config, options))
        place = f"http://127.0.0.1:{self._socket.getsockname()[1]}{name}"
        self.services[place] = gate.service
        try:
            yield place
        finally:
            del self._apps[name], self.services[place]
            self._do(_stop(gate.service))

    def close(self) -> None:
        """End the thread."""
        self._do(postgres.close_pools_of_running_loop())
        self._server.should_exit = True
        self._thread.join()

    async def _move_in(self, name: str, url: str, config: ServerConfig, options: dict[str, Any]) -> Middleware:
        gate = create_app(open_store(url, **options), config)  # type: ignore[arg-type]
        await gate.service.start()
        self._apps[name] = gate
        return gate

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            postgres.KEPT_LOOPS.add(self._loop)
            await self._server.serve(sockets=[self._socket])

        asyncio.run(serve())

    async def _dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        name, _, rest = scope["raw_path"].decode("latin-1").removeprefix("/").partition("/")
        raw = f"/{rest}".encode("latin-1")
        await self._apps[f"/{name}"]({**scope, "path": raw.decode("latin-1"), "raw_path": raw}, receive, send)


async def _stop(service: Service) -> None:
    await service.stop()
    await service.store.close_async()
