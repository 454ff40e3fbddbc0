"""Check a store after a run: no task lost or completed twice, and no rule of the history violated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import dibs
from dibs import Event, State, Task
from dibs.observe.verify import verify


def assert_balanced(app: dibs.Dibs, states: Iterable[State] = (State.COMPLETED,)) -> list[Any]:
    """The history passes the checker, every task ended in one of the states, none completed twice. The history."""
    entries, tasks = app.all_history(), all_tasks(app)
    report = verify(entries, tasks=tasks)
    print(report, dict(Counter(entry.event.value for entry in entries)))
    assert report.ok, report
    assert {task.state for task in tasks} <= set(states), Counter(task.state for task in tasks)
    completions = Counter(entry.task_id for entry in entries if entry.event is Event.COMPLETED)
    assert completions == {task.id: 1 for task in tasks if task.state is State.COMPLETED}
    return entries


def all_tasks(app: dibs.Dibs) -> list[Task]:
    """Oldest first."""
    tasks: list[Task] = []
    while page := app.list_tasks(limit=1000, cursor=tasks[-1].id if tasks else None):
        tasks += page
    return tasks[::-1]


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which that part of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]
