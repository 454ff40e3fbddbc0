"""Follow the log lines of a task while it runs: which page to read next, when, and whether any are left.

A write of lines wakes no waiters (the claimers of workers would wake up as well), so a follower of a database polls; a
server waits on behalf of its clients.
"""

from __future__ import annotations

import time
from collections.abc import Generator

import msgspec

from dibs.errors import TaskNotFound
from dibs.model.logs import LogFilter, LogLine, LogPage
from dibs.store.contract import Store
from dibs.store.operation import Operation

POLL_INTERVAL = 0.5
"""Seconds between two reads of a database that had no new lines."""

LONG_POLL = 20.0
"""Seconds for which one request waits on the server: proxies close connections that are silent for longer."""

LAST_LINES = 1.0
"""Seconds after the end of a task in which its last lines arrive."""


class LogFollower:
    """Reads the lines of a task, each once, until the task has ended. It does no I/O: `operation` reads the next page,
    which is passed to `take`, and `pause` are the seconds to wait before the next one."""

    def __init__(self, store: Store, task_id: int, which: LogFilter) -> None:
        self._store = store
        self._task_id = task_id
        self._which = which
        self._ends_at: float | None = None
        self._has_read = False
        self.done = False
        """True when all lines were read and no more will come."""
        self.pause = 0.0
        """Seconds to wait before the next page is read."""

    @property
    def operation(self) -> Operation[LogPage]:
        """Reads the next page."""
        return self._store.logs.log_page(self._task_id, self._which, LONG_POLL if self._store.served else 0)

    def take(self, page: LogPage) -> list[LogLine]:
        """The new lines of a page."""
        self._which, self._has_read = self._which.following(page), True
        now = time.monotonic()
        if not page.ended:  # also after a retry
            self._ends_at = None
        elif self._ends_at is None:
            self._ends_at = now + LAST_LINES
        self.done = not page.lines and self._ends_at is not None and now >= self._ends_at
        served_wait = self._store.served and not page.ended
        self.pause = 0.0 if page.lines or self.done or served_wait else POLL_INTERVAL
        return page.lines

    def end_if_pruned(self, error: TaskNotFound) -> None:
        """End after the task was pruned. Raises the error for a task that did not exist in the first place."""
        if not self._has_read:
            raise error
        self.done, self.pause = True, 0.0


def all_lines(store: Store, task_id: int, which: LogFilter) -> Generator[Operation[LogPage], LogPage, list[LogLine]]:
    """Read all lines of a task that pass the filter, page by page."""
    lines: list[LogLine] = []
    while True:
        page = yield store.logs.log_page(task_id, which)
        lines += page.lines
        if len(page.lines) < which.limit:
            return lines
        which = msgspec.structs.replace(which, after=page.lines[-1].id)
