"""The log lines on the page of a task: a panel for each of the newest attempts, with its last lines."""

from __future__ import annotations

from dataclasses import dataclass

from dibs.errors import TaskNotFound
from dibs.model.logs import LogCount, LogFilter, LogLine
from dibs.server.dashboard.page import PageRequest

MAX_PANELS = 5
MAX_LINES = 200
"""Attempts, and lines of each, on the page. The command line and the API have all lines."""


@dataclass(frozen=True, slots=True)
class LogPanel:
    """The last lines of one attempt."""

    count: LogCount
    lines: list[LogLine]

    @property
    def left_out(self) -> int:
        """Lines of the attempt that are not on the page."""
        return max(0, self.count.lines - len(self.lines))


async def log_panels(request: PageRequest, task_id: int) -> list[LogPanel]:
    """Return the panels, the newest attempt first; none for a task without log lines."""
    counts = await request.run(request.service.store.logs.log_counts(task_id))
    return [await _panel(request, task_id, count) for count in reversed(counts[-MAX_PANELS:])]


async def _panel(request: PageRequest, task_id: int, count: LogCount) -> LogPanel:
    after = f"{count.token}-{max(0, count.last - MAX_LINES)}"
    which = LogFilter(after=after, limit=MAX_LINES)
    try:
        page = await request.run(request.service.store.logs.log_page(task_id, which))
    except TaskNotFound:  # pruned since the page was begun
        return LogPanel(count, [])
    return LogPanel(count, [line for line in page.lines if line.token == count.token])
