"""The lock queue: processes that wait for SQLite's write lock, in FIFO order.

SQLite does not notify a waiter when its lock is free, so every waiter has to try again and again; sixty processes that
do so leave no CPU time to the holder of the lock. Here only the first process of the queue tries for the lock. The
kernel keeps the queue, as locks on a file beside the database, and wakes exactly one process when the first one leaves.
The queue does not protect anything: a process that cannot enter it, or that has waited too long because the first
process is frozen, tries for SQLite's lock out of turn.
"""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path

from dibs.store.sqlite.database_file import create_companion

SUPPORTED = os.name == "posix"
"""False where there is no flock: every process tries out of turn there."""

if SUPPORTED:
    import fcntl


class LockQueue:
    """The place of this process in the queue. One thread of the process waits at a time: the leader of the writer."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}-line")
        self._turns: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True: wait in the queue; False: end the thread
        self._guard = threading.Lock()  # guards the attributes below
        self._thread: threading.Thread | None = None
        self._file: int | None = None
        self._wanted = False
        self._waiting = False  # our thread waits for the file lock, perhaps after the caller gave up
        self._first = False
        self._called = threading.Lock()  # released when this process is first
        self._closed = False

    @property
    def used(self) -> bool:
        """True after this process has waited in the queue: most processes never meet another writer."""
        return self._file is not None

    def wait_turn(self, seconds: float) -> bool:
        """Wait until this process is first: True. False after `seconds`, or where there is no queue. `leave` must
        follow."""
        with self._guard:
            if self._waiting or not self._opened():
                return False
            self._first = self._try_to_lock_file()
            if self._first:
                return True
            self._called = threading.Lock()
            self._called.acquire()
            self._start_thread()
            self._wanted = self._waiting = True
            self._turns.put(True)
        self._called.acquire(timeout=seconds)
        return self._first

    def leave(self) -> None:
        """Leave the queue; if this process is first, the next process becomes first."""
        with self._guard:
            self._wanted = self._first = False
            if self._file is not None and not (self._waiting or self._closed):
                self._unlock_file()  # an interrupt may have hidden that this process is first

    def close(self) -> None:
        """Close the file, and give up the place in the queue with it."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._turns.put(False)
            if self._file is not None and not self._waiting:  # otherwise our thread closes it
                os.close(self._file)

    def _opened(self) -> bool:
        if self._file is None and SUPPORTED and not self._closed:
            try:
                self._file = create_companion(self._path, self._database)
            except OSError:
                return False  # for example a read-only folder: the write itself will raise the error
        return self._file is not None and not self._closed

    def _try_to_lock_file(self) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _start_thread(self) -> None:
        """Start the thread that waits: a blocking call of flock cannot be interrupted after a timeout."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._wait_in_thread, name="dibs-line", daemon=True)
            self._thread.start()

    def _wait_in_thread(self) -> None:
        while self._turns.get():
            locked = self._lock_file()
            with self._guard:
                self._end_wait(locked)

    def _end_wait(self, locked: bool) -> None:
        self._waiting = False
        if locked and self._wanted and not self._closed:
            self._first = True
            self._called.release()
            return
        if locked:
            self._unlock_file()
        if self._closed:
            assert self._file is not None
            os.close(self._file)

    def _lock_file(self) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError:  # the file system has no locks
            return False
        return True

    def _unlock_file(self) -> None:
        assert self._file is not None
        fcntl.flock(self._file, fcntl.LOCK_UN)
