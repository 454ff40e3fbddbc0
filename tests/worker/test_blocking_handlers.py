"""A handler that blocks the processor or the event loop costs no lease, not even its own in a child process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import dibs
from dibs import Event, State
from tests.helpers.consistency import assert_balanced
from tests.helpers.handlers import backtrack, block, heard, linger, persist, remain, say
from tests.helpers.tasks import events
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcesses


def test_a_handler_that_holds_the_gil_keeps_its_lease_and_is_killed_at_its_timeout(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    worker = workers.start(lease=1, upkeep_every=0.2, children=1)
    task = backtrack.options(timeout=4, max_attempts=1).enqueue(folder=str(tmp_path))
    child = int(until(lambda: heard(tmp_path, "backtracking"), 30))
    leases = set()
    until(lambda: leases.add(app.get(task.id).lease_until) or app.get(task.id).finished, 30)  # type: ignore[func-returns-value, union-attr]
    dead = app.get(task.id)
    assert dead is not None
    assert dead.state is State.FAILED
    assert dead.error is not None
    assert dead.error.type == "TimedOut"
    assert len(leases - {None}) > 5  # the claim's, and a renewal every third of a second
    assert events(app, task.id) == ["enqueued", "claimed", "failed"]
    with pytest.raises(ProcessLookupError):
        until(lambda: os.kill(child, 0))
    after = remain.enqueue(folder=str(tmp_path))  # its place is free again, in the same worker
    until(lambda: heard(tmp_path, "remain.1.began"), 30)
    say(tmp_path, "remain.go")
    assert app.wait(after.id, 30).worker_id == worker.name


def test_a_blocked_event_loop_costs_none_of_the_worker_s_leases(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    folder = str(tmp_path)
    held = [persist.enqueue(folder=folder), linger.enqueue(folder=folder)]
    workers.start(lease=1, upkeep_every=0.2)
    workers.start(lease=1, upkeep_every=0.2, queues=["another"])  # another worker, which would recover lost tasks
    until(lambda: heard(tmp_path, "persist.1.began") and heard(tmp_path, "linger.1.began"), 30)
    blocking = block.enqueue(folder=folder, seconds=2.5)
    assert app.wait(blocking.id, 30).state is State.COMPLETED
    say(tmp_path, "persist.go")
    say(tmp_path, "linger.go")
    assert [app.wait(task.id, 30).result["token"] for task in held] == [1, 1]
    assert Event.RECOVERED not in {entry.event for entry in assert_balanced(app)}
