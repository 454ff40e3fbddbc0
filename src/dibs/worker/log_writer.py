"""The log writer: collects the lines of all attempts in memory and writes them in batches.

A handler never waits for it: a line goes into a list, and is dropped (and counted) while the list is full because the
store does not answer. Lines are written about once a second, and soon after the end of an attempt. A worker that is
killed loses the lines of its last second.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable

from dibs.errors import NotAllowed, StoreError, StoreRefused
from dibs.handlers.handler import AnyHandler
from dibs.model.claim import MAX_BATCH, Claim
from dibs.model.logs import LogLine
from dibs.worker.attempt import now
from dibs.worker.attempt_log import AttemptLog
from dibs.worker.capturing import capturing
from dibs.worker.service import ServiceThread
from dibs.worker.store_access import StoreAccess

logger = logging.getLogger("dibs.worker")

INTERVAL = 1.0
"""Seconds after which the lines of a running attempt are written."""

PAUSE = 0.05
"""Seconds between two writes to a database, however many attempts end: small batches would cost the store more than
all tasks."""

SERVED_PAUSE = 1.0
"""The same over HTTP, where every write counts against the rate limit of the worker's key."""

BATCH_CHARACTERS = 512 * 1024
"""Characters after which a batch is full: a larger one would hold the write lock of SQLite for too long."""

MAX_PENDING = 20_000
MAX_PENDING_CHARACTERS = 16 * 1024 * 1024
"""Lines and characters that wait to be written, at most."""


class LogWriter(ServiceThread):
    """The service thread that writes the log lines of the handlers that capture them."""

    name = "logs"

    def __init__(self, access: StoreAccess, handlers: Iterable[AnyHandler]) -> None:
        super().__init__()
        self._access = access
        captures = [handler.capture for handler in handlers if handler.capture is not None]
        self._least = min(capture.least for capture in captures)
        self._prints = any(capture.prints for capture in captures)
        self._pause = SERVED_PAUSE if access.store.served else PAUSE
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._pending: deque[LogLine] = deque()
        self._characters = 0
        self._batch: list[LogLine] = []
        self._has_more = False
        self._due = threading.Event()
        self._written_at = 0.0

    def begin(self) -> None:
        """Capture from now on."""
        capturing.start(self._least, prints=self._prints)

    def abandon(self) -> None:
        """Undo `begin`, for a worker that cannot start."""
        capturing.stop(prints=self._prints)

    def finish(self, timeout: float) -> None:
        """Write what is left for up to `timeout` seconds, end the thread, and capture no more."""
        with self._changed:
            ends = now() + timeout
            while (left := len(self._pending) + len(self._batch)) and now() < ends and self.alive:
                self._due.set()
                self._changed.wait(min(self._pause, 0.1))
        self.end(timeout if not left else 0)
        capturing.stop(prints=self._prints)
        if left:
            about = {"event": "logs.unwritten", "lines": left}
            logger.error("%d log lines of tasks could not be written and are lost", left, extra=about)

    def open(self, claim: Claim, handler: AnyHandler) -> AttemptLog | None:
        """The log of an attempt; None if its handler captures none."""
        if handler.capture is None:
            return None
        return AttemptLog(claim, handler.capture, self.put, self._due.set)

    def put(self, line: LogLine, forced: bool = False) -> bool:
        """Queue a line. False if the queue is full. `forced`: the line that counts dropped lines, which is always
        accepted."""
        with self._lock:
            is_full = len(self._pending) >= MAX_PENDING or self._characters >= MAX_PENDING_CHARACTERS
            if is_full and not forced:
                return False
            self._pending.append(line)
            self._characters += len(line.message)
            if len(self._pending) == MAX_BATCH:
                self._due.set()
        return True

    def wake(self) -> None:
        """See ServiceThread."""
        self._due.set()

    def step(self) -> None:
        """Write a batch. If that fails, the next step tries the same batch again: a line is stored once."""
        if not self._batch:
            self._due.wait(INTERVAL)
            if (rest := self._written_at + self._pause - now()) > 0 and len(self._pending) < MAX_BATCH:
                self._ending.wait(rest)
            self._due.clear()
            self._take()
        if self._batch:
            self._write()
            self._written_at = now()
            with self._changed:
                self._batch = []
                if self._has_more:
                    self._due.set()
                self._changed.notify_all()

    def _take(self) -> None:
        with self._lock:
            size = 0
            while self._pending and len(self._batch) < MAX_BATCH and size < BATCH_CHARACTERS:
                line = self._pending.popleft()
                self._batch.append(line)
                size += len(line.message)
            self._characters -= size
            self._has_more = bool(self._pending)

    def _write(self) -> None:
        try:
            self._access.run(self._access.store.logs.add_log_lines(self._batch))
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, (StoreRefused, NotAllowed)):
                raise  # the store is unavailable: the next step writes the same batch
            about = {"event": "logs.refused", "lines": len(self._batch)}
            logger.error("%d log lines of tasks are refused and lost: %s", len(self._batch), error, extra=about)
