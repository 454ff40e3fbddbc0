"""A child process is replaced after a number of tasks, or above a size, so that leaks do no harm."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest

import dibs
from tests.helpers.handlers import swell, toil
from tests.helpers.workers import WorkerProcesses


def test_a_child_process_is_replaced_after_a_number_of_tasks(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    workers.start(children=1, recycle_after=3)
    served = served_by(app, [toil.enqueue() for _ in range(7)])
    assert served == [3, 3, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how large a process is")
def test_a_child_process_that_has_grown_too_large_is_replaced(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    workers.start(children=1, recycle_above=200)
    served = served_by(app, [toil.enqueue(), toil.enqueue(), swell.enqueue(300), toil.enqueue(), toil.enqueue()])
    assert served == [3, 2]


def test_a_child_process_below_both_limits_is_kept(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    workers.start(children=1, recycle_above=1000)
    assert served_by(app, [swell.enqueue(5) for _ in range(5)]) == [5]


def served_by(app: dibs.Dibs, tasks: list[dibs.Task]) -> list[int]:
    """How many tasks in a row each process ran; the handlers return the process that they ran in."""
    results: list[Any] = [app.wait(task.id, 30).result for task in tasks]
    return [len(list(run)) for _, run in itertools.groupby(results)]
