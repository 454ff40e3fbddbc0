"""The line of processes that wait for SQLite's lock: the first tries for it, the others sleep until they are first.

SQLite tells nobody that its lock is free, so whoever waits has to try again and again; sixty processes that do leave no
processor to the one who holds it. Here the kernel keeps the line, as locks on a file beside the database, and wakes
exactly one when the first leaves. The line is a courtesy, never the lock: who cannot stand in it, or has stood in it
for too long because the first is frozen, tries out of turn.
"""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path

from dibs.store.sqlite.creating import create_companion

LINES = os.name == "posix"
"""Elsewhere everybody tries out of turn."""

if LINES:
    import fcntl


class Line:
    """The place of this process. One of its threads waits at a time: the one that leads the writer."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}-line")
        self._sent: queue.SimpleQueue[bool] = queue.SimpleQueue()  # our thread, to stand in line; False: to end
        self._guard = threading.Lock()  # of all below
        self._thread: threading.Thread | None = None
        self._file: int | None = None
        self._wanted = False
        self._standing = False  # our thread stands in the line, maybe longer than we wanted
        self._first = False
        self._called = threading.Lock()  # let go when we are first
        self._closed = False

    @property
    def known(self) -> bool:
        """True once this process has stood in it: most never meet another that writes, and need no line."""
        return self._file is not None

    def stand(self, seconds: float) -> bool:
        """True once we are first, False if that takes too long or there is no line. `leave` must follow."""
        with self._guard:
            if self._standing or not self._opened():
                return False
            self._first = self._try_to_be_first()
            if self._first:
                return True
            self._called = threading.Lock()
            self._called.acquire()
            self._start_thread()
            self._wanted = self._standing = True
            self._sent.put(True)
        self._called.acquire(timeout=seconds)
        return self._first

    def leave(self) -> None:
        """Let the next be first, if we are, and want to be no more."""
        with self._guard:
            self._wanted = self._first = False
            if self._file is not None and not (self._standing or self._closed):
                self._let_go()  # also if we are first without knowing it, because we were interrupted

    def close(self) -> None:
        """Let go of the file, and of the place in the line with it."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._sent.put(False)
            if self._file is not None and not self._standing:  # else our thread does, when it comes back
                os.close(self._file)

    def _opened(self) -> bool:
        if self._file is None and LINES and not self._closed:
            try:
                self._file = create_companion(self._path, self._database)
            except OSError:
                return False  # a folder that is read-only by now, say: writing will tell
        return self._file is not None and not self._closed

    def _try_to_be_first(self) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _start_thread(self) -> None:
        """A call that waits for a file's lock cannot be left again, so a thread waits for us."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._stand_for_us, name="dibs-line", daemon=True)
            self._thread.start()

    def _stand_for_us(self) -> None:
        while self._sent.get():
            stood = self._wait_in_line()
            with self._guard:
                self._come_back(stood)

    def _come_back(self, stood: bool) -> None:
        self._standing = False
        if stood and self._wanted and not self._closed:
            self._first = True
            self._called.release()
            return
        if stood:
            self._let_go()
        if self._closed:
            assert self._file is not None
            os.close(self._file)

    def _wait_in_line(self) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError:  # a file system that cannot
            return False
        return True

    def _let_go(self) -> None:
        assert self._file is not None
        fcntl.flock(self._file, fcntl.LOCK_UN)
