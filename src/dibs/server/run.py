"""Running the application on uvicorn: in the foreground for a command, in a thread for a program or a test.

Asked to stop, the server stops listening, lets go of those who only wait, answers the requests that it has begun, and
tells a client that is about to send another to come back later. Nothing that it has answered is undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from dibs.errors import DibsError, InvalidValue, StoreUnavailable
from dibs.server.app import create_app
from dibs.server.config import ServerConfig, is_any
from dibs.server.middleware import Gate
from dibs.server.protocol import MAX_CONNECTIONS, Connection
from dibs.store.contract import DatabaseStore

if sys.platform != "win32":
    import resource

logger = logging.getLogger("dibs.server")

KEEP_ALIVE = 75
"""Seconds for which an idle connection is kept: longer than proxies keep theirs, so that they close first."""

FAREWELL = 0.25
"""Seconds for which idle connections stay open after we were asked to stop: a request that is already on its way then
gets an answer instead of a broken connection, after which nobody could tell whether it was served."""

CLOSING = 3.0
"""Seconds after the grace in which a process lets go of its store; a store that holds it for longer is left."""

STUCK = 2.0
"""Seconds after that in which a process must have ended. One whose event loop is stuck cannot even begin to stop."""

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")


class CannotListen(DibsError):
    """The address is not free, or not ours to take."""

    code = "cannot_listen"


class Server(uvicorn.Server):
    """uvicorn, which stops as this module promises.

    `alone`: the process is there for the server only, and ends with it, however long the store may take.
    """

    def __init__(self, app: Gate, started: Callable[[], None] | None = None, *, alone: bool = False) -> None:
        super().__init__(settings(app))
        self._service = app.service
        self._tell_started = started
        self._alone = alone
        self._serving: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started and self._tell_started is not None:
            self._tell_started()

    async def main_loop(self) -> None:
        """Serve until asked to stop."""
        serving = asyncio.create_task(super().main_loop())
        self._serving = asyncio.get_running_loop(), serving
        await asyncio.wait([serving])

    def ask_to_stop(self) -> None:
        """Ask from another thread. uvicorn looks ten times a second whether it should exit: end its pause."""
        self.should_exit = True
        if self._serving is not None:
            loop, serving = self._serving
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(serving.cancel)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let requests end, close."""
        if self._alone:
            grace = self._service.config.grace
            about = {"event": "server.stop_requested", "grace": grace}
            logger.info("stopping; requests have %g s to end", grace, extra=about)
            _leave_after(self._service.config.grace + CLOSING)
        self._service.stop_waiting()
        for server in self.servers:
            server.close()
        await self._part()
        await super().shutdown(sockets)

    async def _part(self) -> None:
        """Each answer from now on closes its connection; those who are idle have a moment to hear of it."""
        connections = self._connections()
        for connection in connections:
            if not connection.idle:
                connection.shutdown()
        end = asyncio.get_running_loop().time() + min(FAREWELL, self._service.config.grace)
        while any(connection.idle for connection in self._connections()):
            if asyncio.get_running_loop().time() >= end:
                return
            await asyncio.sleep(0.01)

    def _connections(self) -> list[Connection]:
        return [each for each in self.server_state.connections if isinstance(each, Connection)]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear signals while the server runs. uvicorn would die of them in the end, and so spoil its exit code."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal asks to stop; the second does not ask. What was answered is stored, so nothing is lost."""
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.should_exit = True
        if self._alone:
            # Whatever the event loop is doing. The watchdog is native: it needs neither the loop nor the interpreter's
            # lock, and it writes where the threads are to stderr. What was answered is stored, so nothing is lost.
            faulthandler.dump_traceback_later(self._service.config.grace + CLOSING + STUCK, exit=True)


def settings(app: Gate) -> uvicorn.Config:
    """uvicorn as dibs wants it: its fastest parts where they are installed, no log and no headers of its own."""
    config = app.service.config
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        http=Connection,
        interface="asgi3",
        lifespan="on",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=config.grace,  # type: ignore[arg-type] # it only waits so long: fractions are fine
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address, which several processes may share. Port 0 takes a free one."""
    family, address = _resolve(host, port)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and is_any(host):
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        listening.close()
        raise _cannot_listen(host, port, error) from None
    return listening


def url_of(host: str, listening: socket.socket) -> str:
    """Where clients of this machine reach what listens there."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound here
    return f"http://[{name}]:{_port(listening)}" if ":" in name else f"http://{name}:{_port(listening)}"


def allow_many_connections() -> None:
    """Ask the system for as many files as there may be connections, where it counts them."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MAX_CONNECTIONS + 1000
        if 0 <= soft < wanted:
            wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def serving(store: DatabaseStore, config: ServerConfig) -> Iterator[str]:
    """A server in a thread of this process; its URL. Port 0 takes a free one."""
    with running(create_app(store, config)) as url:
        yield url


@contextmanager
def running(app: Gate) -> Iterator[str]:
    """The application, served in a thread of this process; its URL."""
    config = app.service.config
    listening = listen(config.host, config.port)
    server = Server(app)
    thread = threading.Thread(target=server.run, args=[[listening]], name="dibs-server")
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield url_of(config.host, listening)
    finally:
        server.ask_to_stop()
        thread.join()


def _leave_after(seconds: float) -> None:
    """End the process after so long, if it has not ended by then. Whatever was answered is stored."""

    def leave() -> None:
        about = {"event": "server.left_store", "seconds": seconds}
        logger.error("the store does not let go; left it after %g s", seconds, extra=about)
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _wait_until_started(server: Server, thread: threading.Thread) -> None:
    while not server.started:
        thread.join(0.005)
        if not thread.is_alive():
            raise StoreUnavailable("The server could not start.", hint="Its log says why.")


def _port(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


def _resolve(host: str, port: int) -> tuple[int, Any]:
    """The family and address of a host; of a name with several, the first of IPv4, which everybody can reach."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        hint = "Use an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them."
        raise InvalidValue(f"There is no host {host!r} to listen on ({error}).", hint=hint) from None
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, address


def _cannot_listen(host: str, port: int, error: Exception) -> CannotListen:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        message, hint = "it is in use", "Stop what listens there, or choose another port with --port (0 for any)."
    elif number == errno.EACCES:
        message, hint = "this user may not", "Choose a port from 1024 on with --port, and put a proxy before it."
    elif number == errno.EADDRNOTAVAIL:
        message, hint = "this machine has no such address", "Choose one that it has with --host; 0.0.0.0 is all."
    else:
        message, hint = os.strerror(number) if number else str(error), "Choose another with --host and --port."
    return CannotListen(f"The server cannot listen on {host} port {port}: {message}.", hint=hint)
