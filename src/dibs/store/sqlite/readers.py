"""The connections that a process reads with: a few, opened when they are needed, each used by one thread at a time."""

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


class Readers:
    """Places to read at. Who is interrupted (Ctrl-C), wherever that is, may leave one more of them, never one less:
    closing waits for those who have one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._idle: deque[sqlite3.Connection] = deque()
        self._closing = threading.Lock()
        self._closed = False
        for _ in range(READERS):
            self._places.put(None)

    def read(self, operation: Operation[Any], now: int) -> Any:
        """Run a reading operation on one snapshot, as soon as there is a place."""
        try:
            self._places.get()
            return self._read(operation, now)
        finally:
            self._places.put(None)

    def close(self) -> None:
        """Wait for those who are reading; whoever comes later finds it closed."""
        self._closed = True
        with self._closing:  # two who each had some of the places would wait for each other
            self._close_all()

    def _close_all(self) -> None:
        all_back = map(self._places.put, repeat(None, READERS))
        try:
            self._take_all_places()
        finally:
            deque(all_back, maxlen=0)  # one call into C, again
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
            with suppress(sqlite3.Error):  # where the file is damaged, what was raised before says more
                connection.execute("ROLLBACK")
            self._give_back(connection)

    def _take(self) -> sqlite3.Connection:
        if self._closed:
            raise Closed
        with suppress(IndexError):
            return self._idle.pop()  # the one that was used last knows most of the file
        return connect(self._path)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
