"""`dibs tasks list --follow`: print each task that is created or changes, read from the end of the history."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dibs.cli import text
from dibs.cli.output import STYLES, Output
from dibs.errors import InvalidValue
from dibs.history_follower import HistoryFollower

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.history import HistoryEntry
    from dibs.model.task import Task

POLL_INTERVAL = 0.25
PAGE = 1000

GAP_TIMEOUT = 10.0
"""Seconds to wait for a missing id in the history. Entries behind a gap are printed at once, so a long wait delays
nothing."""

WIDTHS = (10, 9, 20, 12, 6, 9, 19, 12, 0)


def follow(client: Dibs, output: Output, criteria: dict[str, Any], page: dict[str, Any]) -> None:
    """Print the newest tasks, then each task that is created or changes, until Ctrl-C."""
    if "with_limit" in criteria:
        raise InvalidValue("--follow and --with-limit exclude each other.", hint="Follow a queue, a type or a group.")
    tail = HistoryTail(client)
    lines = TaskPrinter(output)
    for task in reversed(client.list_tasks(**criteria, **page)):
        lines.add(task)
    while True:
        for task_id in dict.fromkeys(entry.task_id for entry in tail.new_entries()):
            changed = client.get(task_id)
            if changed is not None and _matches(changed, criteria):
                lines.add(changed)
        time.sleep(POLL_INTERVAL)


def _matches(task: Task, criteria: dict[str, Any]) -> bool:
    """Return True if the task matches all filters, with the meaning that the store gives them."""
    has = {
        "state": task.state,
        "type": task.type,
        "queue": task.queue,
        "key": task.key,
        "worker": task.worker_id,
        "group": task.group,
    }
    if any(has[name] != wanted for name, wanted in criteria.items() if name in has):
        return False
    if "since" in criteria and task.created_at < criteria["since"]:
        return False
    if "until" in criteria and task.created_at >= criteria["until"]:
        return False
    if not set(criteria.get("tags", ())) <= set(task.tags):
        return False
    return "text" not in criteria or _contains(task, criteria["text"])


def _contains(task: Task, wanted: str) -> bool:
    from dibs.encoded import is_encoded
    from dibs.json_values import encode

    error = f"{task.error.type}: {task.error.message}" if task.error else ""
    if is_encoded(task.params):
        return wanted in error
    return encode(wanted)[1:-1] in encode(task.params) or wanted in error


class HistoryTail:
    """Reads the entries at the end of the history, each entry once.

    Unlike `events()` it does not hold back the entries behind a gap: no reader resumes after the last printed
    entry, so the order need not be kept. It reads pages of any store, so it cannot see the open transactions, and gives
    gaps up in time.
    """

    def __init__(self, client: Dibs) -> None:
        self._client = client
        self._follower = HistoryFollower(last_entry(client))
        self._visible: deque[tuple[float, int]] = deque()  # since when the ids up to this one have been visible
        self._beyond_gap: set[int] = set()  # ids that were read beyond the position of the follower

    def new_entries(self) -> Iterator[HistoryEntry]:
        """Yield the entries that were written since the last call."""
        after = self._follower.position
        while page := self._client.history_after(after, PAGE):
            yield from (entry for entry in page if entry.id not in self._beyond_gap)
            self._beyond_gap.update(entry.id for entry in page)
            after = page[-1].id
        self._pass_old_gaps(after)
        read = sorted(self._beyond_gap)
        passed = self._follower.advance(read)
        self._beyond_gap.difference_update(read[:passed])

    def _pass_old_gaps(self, newest: int) -> None:
        now = time.monotonic()
        if not self._visible or self._visible[-1][1] < newest:
            self._visible.append((now, newest))
        while self._visible and now - self._visible[0][0] >= GAP_TIMEOUT:
            self._follower.skip_to(self._visible.popleft()[1])


def last_entry(client: Dibs) -> int:
    """Return the id of the last entry, by binary search: about forty reads, however long the history is."""
    step = 1
    while client.history_after(step, 1):
        step *= 2
    low, high = step // 2, step  # an entry exists beyond low (or low is 0), none beyond high
    while low < high:
        middle = (low + high) // 2
        if found := client.history_after(middle, 1):
            low = found[0].id
        else:
            high = middle
    return high


class TaskPrinter:
    """Prints tasks one by one, in columns of fixed width."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._has_header = False

    def add(self, task: Task) -> None:
        """Print the current state of the task."""
        from dibs.wire.tasks import Task as WireTask

        if self._output.as_json:
            self._output.print_json_line(WireTask.from_model(task))
        else:
            self._print(task)

    def _print(self, task: Task) -> None:
        from dibs.cli.tasks import COLUMNS, row

        if not self._has_header:
            self._has_header = True
            self._line([column.title for column in COLUMNS], "bold")
        self._line(row(task), STYLES[task.state])

    def _line(self, cells: Sequence[object], style: str) -> None:
        aligned = "  ".join(f"{text.line(cell):<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
        self._output.print(text.shorten(aligned, self._output.width), style)
