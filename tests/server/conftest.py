"""A server before a new database of each engine, and HTTP clients.

`server` and `http`: without keys. `keyed`: with keys; `keyed.client("read", queues=["a"])` is a client with such a key.
`app` is a client of the database, without the server. `serve` starts more servers, each with its own thread and port,
and with other settings: `serve(clock=clock)` has a database with the clock of the test. No server does upkeep unless
it is started with `upkeep=True`, so that only the test changes tasks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

import dibs
from dibs.server.app import create_app
from dibs.server.config import ServerConfig
from dibs.server.run import running
from dibs.server.service import Service
from dibs.store.open import open_store
from tests.helpers.clients import Clock
from tests.helpers.plain_http import NO_TLS
from tests.helpers.served import ServerHost
from tests.helpers.typescript import compiled

TIMEOUT = 20.0


class Served:
    """A running server."""

    def __init__(self, url: str, app: dibs.Dibs, closing: contextlib.ExitStack, service: Service) -> None:
        self.url = url
        self.service = service
        self._app = app
        self._closing = closing

    def key(self, *scopes: str, **options: Any) -> dibs.MintedKey:
        """A new key with these scopes; options as for create_key."""
        options = {"rate_limit": "none", **options}
        return self._app.create_key("test", list(scopes), **options)

    def client(self, *scopes: str, **options: Any) -> httpx.Client:
        """A client with a new key; without a key if no scope is named."""
        headers = {"X-API-Key": self.key(*scopes, **options).key} if scopes else {}
        return self.client_with(**headers)

    def client_with(self, **headers: str) -> httpx.Client:
        """A client that sends these headers."""
        client = httpx.Client(verify=NO_TLS, base_url=self.url, headers=headers, timeout=TIMEOUT)
        return self._closing.enter_context(client)


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """A client of the database."""
    with dibs.Dibs(url) as app:
        app.migrate()
        yield app


@pytest.fixture
def serve(url: str, app: dibs.Dibs) -> Iterator[Callable[..., Served]]:
    """Starts servers; options are those of ServerConfig, and `clock`."""
    with contextlib.ExitStack() as closing:

        def start(clock: Clock | None = None, **settings: Any) -> Served:
            gate = create_app(open_store(url, clock=clock), _config(**settings))  # type: ignore[arg-type]
            return Served(closing.enter_context(running(gate)), app, closing, gate.service)

        yield start


@pytest.fixture
def lodge(url: str, app: dibs.Dibs, server_host: ServerHost) -> Iterator[Callable[..., Served]]:
    """Like `serve`, but in the running server host, which is faster: for tests that only send HTTP requests."""
    with contextlib.ExitStack() as closing:

        def move_in(clock: Clock | None = None, **settings: Any) -> Served:
            place = closing.enter_context(server_host.serving(url, _config(**settings), clock=clock))
            return Served(place, app, closing, server_host.services[place])

        yield move_in


@pytest.fixture
def server(lodge: Callable[..., Served]) -> Served:
    """A server without keys."""
    return lodge()


@pytest.fixture
def http(server: Served) -> httpx.Client:
    """A client of the server without keys."""
    return server.client()


@pytest.fixture
def keyed(lodge: Callable[..., Served]) -> Served:
    """A server with keys."""
    return lodge(keys=True)


@pytest.fixture(scope="session")
def typescript_client(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Compiles the TypeScript client on the first call, and returns the tree in which it is."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return cache(lambda: compiled(shared / "typescript"))


def _config(**settings: Any) -> ServerConfig:
    return ServerConfig(**{"port": 0, "keys": False, "access_log": False, "upkeep": False, **settings})
