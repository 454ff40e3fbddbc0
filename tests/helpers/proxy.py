"""A TCP proxy that misbehaves on request: it drops responses, delays them, or refuses connections.

A dropped response has reached the server: the proxy reads it from the server, and then drops it with the connection, as
if the connection had been cut after the commit.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

CHUNK = 64 * 1024


class Proxy:
    """Stands between clients and the server at this URL."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._lock = threading.Condition()
        self._to_lose = 0
        self._delay = 0.0
        self._open: set[socket.socket] = set()
        self._listener = _listen(0)
        self.port: int = self._listener.getsockname()[1]
        self.lost = 0
        """Responses of the server that were dropped."""
        self.connections = 0
        """Connections that clients have made."""
        self._serve()

    @property
    def url(self) -> str:
        """Where clients reach the server through this proxy."""
        return f"http://127.0.0.1:{self.port}{self._target.path}"

    def lead_to(self, url: str) -> None:
        """Lead new connections to another server; where to on it is for the client to say."""
        self._target = urlsplit(url)

    def lose_answers(self, count: int = 1) -> None:
        """Throw the next answers away, each with its connection."""
        with self._lock:
            self._to_lose = count

    def delay(self, seconds: float) -> None:
        """Hold every answer back for so long."""
        self._delay = seconds

    def refuse(self) -> None:
        """Close all connections, and refuse new ones."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self.cut()

    def accept(self) -> None:
        """Be there again, at the same port."""
        self._listener = _listen(self.port)
        self._serve()

    def cut(self) -> None:
        """Cut every open connection."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            _close(connection)

    def wait_until_lost(self, count: int, timeout: float = 10.0) -> None:
        """Wait until this number of answers was discarded."""
        with self._lock:
            assert self._lock.wait_for(lambda: self.lost >= count, timeout), f"lost {self.lost} of {count} answers"

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: Any) -> None:
        self.refuse()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), name="test-proxy", daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                server = socket.create_connection((self._target.hostname, self._target.port), timeout=5)
            except OSError:
                _close(client)
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            for pump in (self._pass_on_requests, self._pass_on_answers):
                threading.Thread(target=pump, args=(client, server), name="test-proxy", daemon=True).start()

    def _pass_on_requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(CHUNK):
                server.sendall(data)
        self._end(client, server)

    def _pass_on_answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(CHUNK):
                if self._loses():
                    break
                time.sleep(self._delay)
                client.sendall(data)
        self._end(client, server)

    def _loses(self) -> bool:
        with self._lock:
            if not self._to_lose:
                return False
            self._to_lose -= 1
            self.lost += 1
            self._lock.notify_all()
            return True

    def _end(self, *connections: socket.socket) -> None:
        with self._lock:
            self._open -= set(connections)
        for connection in connections:
            _close(connection)


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # a close alone would not wake the thread that reads from it
    connection.close()
