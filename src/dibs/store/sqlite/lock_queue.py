"""The lock queue: processes that wait for SQLite's write lock, in FIFO order.

SQLite does not notify a waiting process when the write lock is free, so every waiting process has to poll the lock;
sixty polling processes leave no CPU time to the holder of the lock. With the queue, only the first process of the queue
polls. The kernel keeps the queue, as waiters for an flock on the file `<database>-line`, and wakes exactly one process
when the first process leaves.

The queue is an optimization and protects nothing: SQLite's own lock does. A process that cannot enter the queue, or
that has waited for too long because the first process is frozen, polls SQLite's lock out of turn. So every failure here
must end in `wait_turn` returning False, never in an error or in a wait without end. Running processes of other versions
use the same file, so its name stays.
"""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path

from dibs.store.sqlite.database_file import create_companion

SUPPORTED = os.name == "posix"
"""False on a system without flock: there, every process polls out of turn."""

if SUPPORTED:
    import fcntl


class LockQueue:
    """The place of this process in the queue. Only the thread that leads the group commit calls `wait_turn` and
    `leave`."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}-line")
        self._turns: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True: wait in the queue; False: end the thread
        self._guard = threading.Lock()  # guards the attributes below
        self._thread: threading.Thread | None = None
        self._file: int | None = None
        self._wanted = False  # the caller of `wait_turn` has not left yet
        self._waiting = False  # the thread waits for the file lock, perhaps after the caller gave up
        self._first = False  # this process is first: it holds the file lock
        self._turn_came = threading.Lock()  # held while the caller waits; released when this process is first
        self._closed = False

    @property
    def used(self) -> bool:
        """True once this process has used the queue. Most processes never do, because no other process writes."""
        return self._file is not None

    def wait_turn(self, seconds: float) -> bool:
        """Wait until this process is first, and return True; False after `seconds`, or if there is no queue. The caller
        must call `leave` afterwards in both cases."""
        with self._guard:
            if self._waiting or not self._opened():
                return False
            self._first = self._try_to_lock_file()
            if self._first:
                return True
            self._turn_came = threading.Lock()
            self._turn_came.acquire()
            self._start_thread()
            self._wanted = self._waiting = True
            self._turns.put(True)
        self._turn_came.acquire(timeout=seconds)
        return self._first

    def leave(self) -> None:
        """Leave the queue; if this process is first, the next process becomes first."""
        with self._guard:
            self._wanted = self._first = False
            if self._file is not None and not (self._waiting or self._closed):
                self._unlock_file()  # even if not first: Ctrl-C may have come between the lock and `_first`

    def close(self) -> None:
        """Close the file. The kernel then removes this process from the queue."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._turns.put(False)
            if self._file is not None and not self._waiting:  # otherwise the thread closes the file
                os.close(self._file)

    def _opened(self) -> bool:
        """Open the file if necessary. False if there is no file to lock."""
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
        """Start the thread that waits for the file lock: flock has no timeout, so the caller must not call it
        itself."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._wait_in_thread, name="dibs-line", daemon=True)
            self._thread.start()

    def _wait_in_thread(self) -> None:
        """Wait for the file lock once for each True in `_turns`."""
        while self._turns.get():
            locked = self._lock_file()
            with self._guard:
                self._end_wait(locked)

    def _end_wait(self, locked: bool) -> None:
        """Hand the turn to the caller, or give the file lock back if the caller no longer waits."""
        self._waiting = False
        if locked and self._wanted and not self._closed:
            self._first = True
            self._turn_came.release()
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
