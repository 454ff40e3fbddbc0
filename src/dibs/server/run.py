"""Run the application on uvicorn: in the foreground for a command, in a thread for a program or a test.

To stop, the server stops listening, ends waiting requests, answers open requests, and refuses new requests on open
connections with a hint to repeat them. Nothing that was answered is undone.
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
from dibs.server.middleware import Middleware
from dibs.server.protocol import MAX_CONNECTIONS, HttpConnection
from dibs.store.contract import DatabaseStore

if sys.platform != "win32":
    import resource

logger = logging.getLogger("dibs.server")

KEEP_ALIVE = 75
"""Seconds for which an idle connection is kept: longer than proxies keep theirs, so that the proxy closes first."""

IDLE_CLOSE_DELAY = 0.25
"""Seconds for which idle connections stay open after the request to stop: a request that is already on its way gets an
answer instead of a broken connection, after which its outcome would be unknown."""

CLOSE_TIMEOUT = 3.0
"""Seconds after the grace in which a process closes its store; then the process exits without closing it."""

STUCK_TIMEOUT = 2.0
"""Seconds after that in which a process must have ended: a process with a stuck event loop cannot stop by itself."""

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")


class CannotListen(DibsError):
    """The address is in use, or this process may not listen on it."""

    code = "cannot_listen"


class Server(uvicorn.Server):
    """The uvicorn server, with the shutdown that this module describes.

    `alone`: the process serves only this purpose and exits after the shutdown, even if the store does not close.
    """

    def __init__(self, app: Middleware, started: Callable[[], None] | None = None, *, alone: bool = False) -> None:
        super().__init__(settings(app))
        self._service = app.service
        self._on_started = started
        self._alone = alone
        self._serving: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        await super().startup(sockets)
        if self.started and self._on_started is not None:
            self._on_started()

    async def main_loop(self) -> None:
        """Serve until the server is stopped."""
        serving = asyncio.create_task(super().main_loop())
        self._serving = asyncio.get_running_loop(), serving
        await asyncio.wait([serving])

    def ask_to_stop(self) -> None:
        """Stop the server from another thread. uvicorn checks `should_exit` ten times a second: end its sleep."""
        self.should_exit = True
        if self._serving is not None:
            loop, serving = self._serving
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(serving.cancel)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let open requests end, close."""
        if self._alone:
            grace = self._service.config.grace
            fields = {"event": "server.stop_requested", "grace": grace}
            logger.info("stopping; open requests have %g s to end", grace, extra=fields)
            _exit_after(self._service.config.grace + CLOSE_TIMEOUT)
        self._service.stop_waiting()
        for server in self.servers:
            server.close()
        await self._close_connections()
        await super().shutdown(sockets)

    async def _close_connections(self) -> None:
        """Close each connection after its response; idle connections stay open for a moment."""
        connections = self._connections()
        for connection in connections:
            if not connection.idle:
                connection.shutdown()
        end = asyncio.get_running_loop().time() + min(IDLE_CLOSE_DELAY, self._service.config.grace)
        while any(connection.idle for connection in self._connections()):
            if asyncio.get_running_loop().time() >= end:
                return
            await asyncio.sleep(0.01)

    def _connections(self) -> list[HttpConnection]:
        return [each for each in self.server_state.connections if isinstance(each, HttpConnection)]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs. uvicorn would raise them again at the end and change the exit code."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            with _watch_signals(self._start_watchdog) if self._alone else contextlib.nullcontext():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop with the first signal; exit at once with the second. Answered requests are already stored."""
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.should_exit = True

    def _start_watchdog(self) -> None:
        """Exit the process if it does not stop in time. The watchdog is native: once started, it needs neither the
        event loop nor the interpreter's lock, and it writes the stacks of the threads to stderr. Answered requests are
        stored, so nothing is lost."""
        faulthandler.dump_traceback_later(self._service.config.grace + CLOSE_TIMEOUT + STUCK_TIMEOUT, exit=True)


@contextmanager
def _watch_signals(react: Callable[[], None]) -> Iterator[None]:
    """Call `react` in another thread when the process gets a signal to stop.

    Python runs a signal handler in the main thread, between two bytecode instructions: never, if the event loop is
    stuck in a system call that the signal did not interrupt, or in C code. The thread reads the numbers of the signals,
    which the C part of Python's signal handling writes to the wake-up file descriptor.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_react_to_signal, args=[reading, react], name="dibs-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writing.close()  # ends the thread
        thread.join()
        reading.close()


def _react_to_signal(reading: socket.socket, react: Callable[[], None]) -> None:
    numbers = {getattr(signal, name, None) for name in SIGNALS}
    while received := reading.recv(64):
        if not numbers.isdisjoint(received):
            react()


def settings(app: Middleware) -> uvicorn.Config:
    """Return the configuration of uvicorn: its fastest parts if installed, no log and no headers of its own."""
    config = app.service.config
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        http=HttpConnection,
        interface="asgi3",
        lifespan="on",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=config.grace,  # type: ignore[arg-type] # only used as a timeout: fractions work
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket at this address, which several processes may share. Port 0: any free port."""
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
    """Return the URL at which clients on this machine reach the socket."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound here
    return f"http://[{name}]:{_port(listening)}" if ":" in name else f"http://{name}:{_port(listening)}"


def allow_many_connections() -> None:
    """Raise the limit of open files to the maximum number of connections."""
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
    """Serve a store in a thread of this process; yield the URL. Port 0: any free port."""
    with running(create_app(store, config)) as url:
        yield url


@contextmanager
def running(app: Middleware) -> Iterator[str]:
    """Serve an application in a thread of this process; yield the URL."""
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


def _exit_after(seconds: float) -> None:
    """Exit the process after `seconds` if it has not ended by then. Answered requests are stored."""

    def exit_process() -> None:
        fields = {"event": "server.left_store", "seconds": seconds}
        logger.error("the store did not close; exiting after %g s", seconds, extra=fields)
        os._exit(1)

    timer = threading.Timer(seconds, exit_process)
    timer.daemon = True
    timer.start()


def _wait_until_started(server: Server, thread: threading.Thread) -> None:
    while not server.started:
        thread.join(0.005)
        if not thread.is_alive():
            raise StoreUnavailable("The server could not start.", hint="See the log of the server.")


def _port(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


def _resolve(host: str, port: int) -> tuple[int, Any]:
    """Return the family and address of a host; IPv4 is preferred for a name with several addresses."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        hint = "Use an address of this machine, for example 127.0.0.1, or 0.0.0.0 for all addresses."
        raise InvalidValue(f"The host {host!r} cannot be resolved ({error}).", hint=hint) from None
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, address


def _cannot_listen(host: str, port: int, error: Exception) -> CannotListen:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        message, hint = "it is in use", "Stop the program that uses it, or choose another port with --port (0: any)."
    elif number == errno.EACCES:
        message, hint = "permission denied", "Choose a port from 1024 on with --port, and use a proxy in front."
    elif number == errno.EADDRNOTAVAIL:
        message, hint = "this machine has no such address", "Choose one of its addresses with --host; 0.0.0.0 for all."
    else:
        message, hint = os.strerror(number) if number else str(error), "Choose another with --host and --port."
    return CannotListen(f"The server cannot listen on {host} port {port}: {message}.", hint=hint)
