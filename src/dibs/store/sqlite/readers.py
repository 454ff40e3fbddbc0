"""Read connections of a process: a few, opened when needed, each used by one thread at a time.

An interrupt (Ctrl-C) may arrive between any two instructions (decision 39): what must happen together is one call into
C code. Keep the order of the statements in `read` and `_close_all`.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections import deque
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

from dibs.store.operation import Operation, drive
from dibs.store.sqlite.connection import SqliteExecutor, connect, translate
from dibs.store.sqlite.writer import Closed

READERS = 4
"""Reads that run at the same moment at most; further reads wait. More connections would need more memory for their
page caches."""


class Readers:
    """A pool of read connections, limited by places. An interrupt (Ctrl-C) at any instruction may leave one place too
    many, never one too few: closing waits for all places."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._idle: deque[sqlite3.Connection] = deque()
        self._closing = threading.Lock()
        self._closed = False
        for _ in range(READERS):
            self._places.put(None)

    def read(self, operation: Operation[Any], now: int) -> Any:
        """Run a reading operation on one snapshot, as soon as a place is free."""
        try:
            self._places.get()
            return self._read(operation, now)
        finally:
            self._places.put(None)

    def close(self) -> None:
        """Wait for the running reads; later reads raise Closed."""
        self._closed = True
        with self._closing:  # two closing threads with some places each would wait for each other
            self._close_all()

    def _close_all(self) -> None:
        all_back = map(self._places.put, repeat(None, READERS))
        try:
            self._take_all_places()
        finally:
            deque(all_back, maxlen=0)  # one call into C, which an interrupt cannot divide
        while self._idle:
            self._idle[-1].close()
            self._idle.pop()

    def _take_all_places(self) -> None:
        for _ in range(READERS):
            self._places.get()

    def _read(self, operation: Operation[Any], now: int) -> Any:
        connection = self._take()
        try:
            connection.execute("BEGIN")
            return drive(operation.begin(), SqliteExecutor(connection, now, None))
        except sqlite3.Error as error:
            raise translate(error) from error
        finally:
            with suppress(sqlite3.Error):  # of a damaged file the first error says more
                connection.execute("ROLLBACK")
            self._give_back(connection)

    def _take(self) -> sqlite3.Connection:
        if self._closed:
            raise Closed
        with suppress(IndexError):
            return self._idle.pop()  # the connection that was used last has the most pages cached
        return connect(self._path)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
