"""The TCP connection between clients and a store: it drops messages, is slow, is cut and restored, on request.

A dropped reply is the reply of the store to a transaction, read from the store before it is dropped with the
connection: the write was committed, and the client did not learn it. HTTP and the PostgreSQL protocol are supported.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from tests.helpers.waiting import until

CHUNK = 64 * 1024

COMMITTED = re.compile(
    rb"C\x00\x00\x00.(?:SELECT|INSERT|UPDATE|DELETE|COMMIT)[^\x00]*\x00Z\x00\x00\x00\x05I$"  # CommandComplete, idle
    rb"|^HTTP/1\.1 2",
    re.DOTALL,
)
"""The replies after which a statement or request is done and no transaction is open."""

REQUESTS, ANSWERS = "requests", "answers"


class Link:
    """Clients reach the store at `url`; one end of each pair of sockets is theirs, the other the store's."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._open = {REQUESTS: threading.Event(), ANSWERS: threading.Event()}
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._to_lose = {REQUESTS: 0, ANSWERS: 0}
        self._latency, self._rate = 0.0, float("inf")
        self.lost = 0
        """Answers and requests that never arrived."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.heal()
        threading.Thread(target=self._accept, name="stress-link", daemon=True).start()

    @property
    def url(self) -> str:
        """Where clients reach the store over this link."""
        if self._store.startswith("http"):
            return f"http://127.0.0.1:{self.port}{urlsplit(self._store).path}"
        parts = conninfo_to_dict(self._store)
        secret = f":{parts['password']}" if parts.get("password") else ""
        who = f"{parts.get('user') or 'postgres'}{secret}"
        return f"postgresql://{who}@127.0.0.1:{self.port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"

    def lose(self, count: int, what: str = ANSWERS) -> None:
        """The next answers to what was carried out, or the next requests, each with its connection."""
        with self._lock:
            self._to_lose[what] += count
        goal = self.lost + count
        until(lambda: self.lost >= goal, 60)

    def slow(self, latency: float, rate: float) -> None:
        """Delay all data by this number of seconds in each direction, at this number of bytes a second."""
        self._latency, self._rate = latency, rate

    def part(self, *directions: str) -> None:
        """Hold back all messages (in these directions) without an error: connections stay open, and can be made."""
        for direction in directions or (REQUESTS, ANSWERS):
            self._open[direction].clear()

    def heal(self) -> None:
        """Deliver the messages that were held back."""
        for direction in self._open.values():
            direction.set()

    def cut(self) -> int:
        """End every connection, with what was on its way; how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _reset(*pair)
        return len(pairs)

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: Any) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self.cut()
        self.heal()

    def _accept(self) -> None:
        for client in _clients_of(self._listener):
            threading.Thread(target=self._connect, args=(client,), name="stress-link", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._open[REQUESTS].wait()
        try:
            store = _reach(self._store)
        except OSError:
            _reset(client)
            return
        pair = (client, store)
        with self._lock:
            self._pairs.add(pair)
        for direction in (REQUESTS, ANSWERS):
            threading.Thread(target=self._pass_on, args=(pair, direction), name="stress-link", daemon=True).start()

    def _pass_on(self, pair: tuple[socket.socket, socket.socket], direction: str) -> None:
        source, sink = pair if direction == REQUESTS else pair[::-1]
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if self._loses(direction, data):
                    break
                time.sleep(self._latency + len(data) / self._rate)
                self._open[direction].wait()
                sink.sendall(data)
        self._end(pair)

    def _loses(self, direction: str, data: bytes) -> bool:
        with self._lock:
            if not self._to_lose[direction] or (direction == ANSWERS and not COMMITTED.search(data)):
                return False
            self._to_lose[direction] -= 1
            self.lost += 1
            return True

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        _reset(*pair)


def _clients_of(listener: socket.socket) -> Iterator[socket.socket]:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield client


def _reach(store: str) -> socket.socket:
    """A connection to the store itself, over TCP or the socket in PostgreSQL's folder."""
    if store.startswith("http"):
        place = urlsplit(store)
        return _to_tcp(str(place.hostname), int(place.port or 80))
    parts = conninfo_to_dict(store)
    host, port = str(parts.get("host") or "localhost"), int(parts.get("port") or 5432)
    if not host.startswith("/"):
        return _to_tcp(host, port)
    local = socket.socket(socket.AF_UNIX)
    local.connect(f"{host}/.s.PGSQL.{port}")
    return local


def _to_tcp(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=5)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _reset(*connections: socket.socket) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # a close alone would not wake the thread that reads from it
        connection.close()
