"""`--follow`: every task that comes or changes, as it happens, read from the end of the history."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dibs.cli import text
from dibs.cli.output import STYLES, Output

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.history import HistoryEntry
    from dibs.model.task import Task

PAUSE = 0.25
PAGE = 1000

PATIENCE = 10.0
"""Seconds for which a missing number in the history is waited for: on PostgreSQL entries become visible in the order in
which their transactions end, not in that of their numbers, and a number of a transaction that failed never comes."""

WIDTHS = (10, 9, 20, 12, 6, 9, 19, 0)


def follow(client: Dibs, output: Output, which: dict[str, Any], page: dict[str, Any]) -> None:
    """Print the newest tasks, then each as it comes or changes, until interrupted."""
    tail = Tail(client)
    lines = Lines(output)
    for task in reversed(client.list_tasks(**which, **page)):
        lines.add(task)
    while True:
        for task_id in dict.fromkeys(entry.task_id for entry in tail.news()):
            changed = client.get(task_id)
            if changed is not None and _matches(changed, which):
                lines.add(changed)
        time.sleep(PAUSE)


def _matches(task: Task, which: dict[str, Any]) -> bool:
    """True if the task passes all filters, as the store applies them."""
    has = {"state": task.state, "type": task.type, "queue": task.queue, "key": task.key, "worker": task.worker_id}
    if any(has[name] != wanted for name, wanted in which.items() if name in has):
        return False
    if "since" in which and task.created_at < which["since"]:
        return False
    if "until" in which and task.created_at >= which["until"]:
        return False
    return "text" not in which or _contains(task, which["text"])


def _contains(task: Task, wanted: str) -> bool:
    from dibs.codec import encode

    error = f"{task.error.type}: {task.error.message}" if task.error else ""
    return encode(wanted)[1:-1] in encode(task.params) or wanted in error


class Tail:
    """The end of the history: what was written since it was last looked at, each entry once."""

    def __init__(self, client: Dibs) -> None:
        self._client = client
        self._read_to = last_entry(client)  # everything up to here has been read, or given up
        self._ahead: dict[int, float] = {}  # read beyond a gap, and when

    def news(self) -> Iterator[HistoryEntry]:
        """The entries that came since the last call."""
        after = self._read_to
        while page := self._client.history_after(after, PAGE):
            yield from (entry for entry in page if self._is_new(entry.id))
            after = page[-1].id
        self._close_gaps()

    def _is_new(self, entry_id: int) -> bool:
        if entry_id in self._ahead:
            return False
        self._ahead[entry_id] = time.monotonic()
        return True

    def _close_gaps(self) -> None:
        for entry_id in sorted(self._ahead):
            if entry_id != self._read_to + 1 and time.monotonic() - self._ahead[entry_id] < PATIENCE:
                break
            self._read_to = entry_id
            del self._ahead[entry_id]


def last_entry(client: Dibs) -> int:
    """The number of the last entry, found in some forty looks however long the history is."""
    step = 1
    while client.history_after(step, 1):
        step *= 2
    low, high = step // 2, step  # something lies beyond low (or it is 0), nothing beyond high
    while low < high:
        middle = (low + high) // 2
        if found := client.history_after(middle, 1):
            low = found[0].id
        else:
            high = middle
    return high


class Lines:
    """Tasks one by one, in columns wide enough for most."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._begun = False

    def add(self, task: Task) -> None:
        """Print the task as it is now."""
        from dibs.wire.tasks import Task as WireTask

        if self._output.as_json:
            self._output.answer_line(WireTask.from_model(task))
        else:
            self._print(task)

    def _print(self, task: Task) -> None:
        from dibs.cli.tasks import COLUMNS, row

        if not self._begun:
            self._begun = True
            self._line([column.title for column in COLUMNS], "bold")
        self._line(row(task), STYLES[task.state])

    def _line(self, cells: Sequence[object], style: str) -> None:
        aligned = "  ".join(f"{text.line(cell):<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
        self._output.say(text.shorten(aligned, self._output.width), style)
