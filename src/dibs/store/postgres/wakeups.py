"""Wake-ups on PostgreSQL: NOTIFY, sent after the commit by a thread of its own.

A NOTIFY inside the writing transaction would make all commits of the database wait for each other. Sent afterwards
and once for many writes it costs the writer nothing. A lost notification only costs time, because waiters also poll.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

import psycopg

from dibs.store.postgres.connection import connection_string, is_pooled
from dibs.store.postgres.replies import Session, sessions_of
from dibs.store.wakeups import Wakeups

CHANNEL = "dibs"
SHORTEST, LONGEST = 0.002, 0.05
"""Seconds between two notifications of this process: writes in between share the next one. The pause doubles while
writes keep coming, because the workers are busy then; a write after a pause is sent at once."""

LISTEN_FOR = 0.25
RECONNECT_AFTER = 1.0
CHECK_INTERVAL = 10.0
"""Seconds between two checks that the server of the listening session answers and is still the primary."""

OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}


class PostgresWakeups(Wakeups):
    """Listens while a caller waits, and notifies other processes of the writes of this process."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._written: queue.SimpleQueue[None] = (
            queue.SimpleQueue()
        )  # not an Event, whose lock Ctrl-C could leave taken
        self._notifier: threading.Thread | None = None
        self._own: int | None = None
        self._starting = threading.Lock()

    def wrote(self) -> None:
        """Report a write of this process: wake its own waiters now, and those of other processes soon."""
        self.wake()
        self._written.put(None)
        if self._notifier is None:
            with self._starting:
                self._start_notifier()

    def watch(self) -> None:
        """See Wakeups."""
        try:
            with sessions_of(self._url).connect(connection_string(self._url), **OPTIONS) as connection:
                pooled = is_pooled(connection)
                if not pooled:
                    self._listen(connection)
            while pooled and self.wanted:  # a pooler would give the listening session to another client
                self.pause(RECONNECT_AFTER)
        except psycopg.errors.IdleSessionTimeout:
            return  # the server ends idle sessions; connect again at once
        except psycopg.Error:
            self.pause(RECONNECT_AFTER)  # waiters poll anyway; the next connection may succeed

    def close(self) -> None:
        """See Wakeups."""
        super().close()
        self._written.put(None)
        with self._starting:  # now the notifier has been started, or never will be
            notifier = self._notifier
        if notifier is not None:
            notifier.join(timeout=5)

    def _start_notifier(self) -> None:
        if self._notifier is not None or self._closed:
            return
        notifier = threading.Thread(target=self._notify, name="dibs-notifier", daemon=True)
        with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter ends: other processes poll
            notifier.start()
            self._notifier = notifier

    def _listen(self, connection: Session) -> None:
        connection.execute(f"LISTEN {CHANNEL}")
        self.wake()  # for writes before LISTEN
        checked_at = time.monotonic()
        while self.wanted:
            if time.monotonic() - checked_at >= CHECK_INTERVAL:
                _check_is_primary(connection)
                checked_at = time.monotonic()
            for notice in connection.notifies(timeout=LISTEN_FOR, stop_after=1):
                if notice.pid != self._own:  # `wrote` has woken the waiters of this process
                    self.wake()

    def _notify(self) -> None:
        while not self._closed:
            try:
                self._notify_while_connected()
            except psycopg.errors.IdleSessionTimeout:
                self._notify_again()  # at once: the server works, it only ends idle sessions
            except psycopg.Error:
                self._notify_again()
                self.pause(RECONNECT_AFTER)
        self._written.put(None)  # ends a second notifier that an interrupted start may have left

    def _notify_again(self) -> None:
        """The notification that failed is sent over the next connection."""
        if self._written.empty():
            self._written.put(None)

    def _notify_while_connected(self) -> None:
        with sessions_of(self._url).connect(connection_string(self._url), **OPTIONS) as connection:
            self._own = connection.info.backend_pid
            pause = SHORTEST
            while not self._closed:
                self._wait_for_writes()
                _check_is_primary(connection, f"pg_notify('{CHANNEL}', '')")
                time.sleep(pause)
                pause = SHORTEST if self._written.empty() else min(pause * 2, LONGEST)

    def _wait_for_writes(self) -> None:
        self._written.get()
        while not self._written.empty():
            self._written.get()


def _check_is_primary(connection: Session, doing: str = "NULL") -> None:
    """Raise OperationalError if the server has become read-only: it does not see later writes. If the server does not
    answer at all, the bound on replies ends the session."""
    row = connection.execute(f"SELECT current_setting('transaction_read_only'), {doing}".encode()).fetchone()
    if row is None or row[0] != "off":
        raise psycopg.OperationalError("the server has become read-only")
