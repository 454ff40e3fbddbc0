"""Running the application on uvicorn: in the foreground for a command, in a thread for a program or a test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from dibs.errors import StoreUnavailable
from dibs.server.app import create_app
from dibs.server.config import ServerConfig
from dibs.server.gate import Gate
from dibs.store.contract import Store as DatabaseStore

KEEP_ALIVE = 75
"""Seconds for which an idle connection is kept: longer than proxies keep theirs, so that they close first."""


class Server(uvicorn.Server):
    """uvicorn, which lets go of those who wait before it waits for requests to end."""

    def __init__(self, app: Gate) -> None:
        super().__init__(settings(app))
        self._service = app.service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let requests end, close."""
        self._service.stop_waiting()
        await super().shutdown(sockets)


def settings(app: Gate) -> uvicorn.Config:
    """uvicorn as dibs wants it: its fastest parts where they are installed, no log and no headers of its own."""
    config = app.service.config
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        lifespan="on",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=round(config.grace),
    )


@contextmanager
def serving(store: DatabaseStore, config: ServerConfig) -> Iterator[str]:
    """A server in a thread of this process; its URL. Port 0 takes a free one."""
    server = Server(create_app(store, config))
    listening = server.config.bind_socket() if config.port == 0 else None
    thread = threading.Thread(target=server.run, args=[[listening] if listening else None], name="dibs-server")
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield _url(server, config)
    finally:
        server.should_exit = True
        thread.join()


def _wait_until_started(server: Server, thread: threading.Thread) -> None:
    while not server.started:
        thread.join(0.005)
        if not thread.is_alive():
            raise StoreUnavailable("The server could not start.", hint="Its log says why; is the port in use?")


def _url(server: Any, config: ServerConfig) -> str:
    port = server.servers[0].sockets[0].getsockname()[1]
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{port}"
