"""Promises 3 to 5: workers killed at random times lose no task, complete none twice, and cause little delay."""

from __future__ import annotations

import itertools
import os
import random
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import dibs
from dibs import Event, NewTask
from tests import matrix
from tests.helpers.consistency import assert_balanced, percentile
from tests.helpers.freezing import freeze
from tests.helpers.handlers import doze, heard, nap, remain
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcess, WorkerProcesses

WORKERS, A_ROUND = 4, 100
ROUNDS = 20 if matrix.is_stress() else 12
"""Kills."""

LEASE, UPKEEP = 2.0, 0.5
SLACK = 10.0
"""Seconds that a slow machine may add."""


def test_workers_killed_at_random_times_lose_no_task_and_complete_none_twice(
    app: dibs.Dibs, workers: WorkerProcesses
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    at_work = [start(workers) for _ in range(WORKERS)]
    for worker in at_work:
        worker.wait_until_ready(app)
    enqueued = 0
    for _ in range(ROUNDS):
        worker = at_work.pop(0)
        worker.wait_until_ready(app)
        enqueued += kill_while_it_holds_a_claim(app, worker, chance)
        at_work.append(start(workers))
    until(lambda: app.stats().depth == {"completed": enqueued}, 60)
    entries = assert_balanced(app)
    claimable, claimed = recovery_times(entries, {worker.name: worker.killed_at for worker in workers.all})
    print(f"{ROUNDS} kills, {len(claimed)} claims lost with their worker")
    print(f"seconds from the kill until claimable: {spread(claimable)}; until claimed again: {spread(claimed)}")
    assert len(claimed) >= ROUNDS
    assert percentile(claimable, 0.99) < LEASE + UPKEEP + SLACK


def test_the_child_processes_of_a_killed_worker_exit(app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path) -> None:
    worker = workers.start(lease=2, upkeep_every=0.5)
    task = remain.options(max_attempts=5).enqueue(folder=str(tmp_path))
    child = int(until(lambda: heard(tmp_path, "remain.1.began"), 30))
    assert child != worker.process.pid
    worker.kill()
    until(lambda: not is_running(child))
    workers.start(lease=2, upkeep_every=0.5)
    until(lambda: heard(tmp_path, "remain.2.began"), 30)
    (tmp_path / "remain.go").touch()
    assert app.wait(task.id, 30).result["token"] == 2
    assert_balanced(app)


def kill_while_it_holds_a_claim(app: dibs.Dibs, worker: WorkerProcess, chance: random.Random) -> int:
    """Enqueue tasks and kill the worker at a random time at which it holds a claim; the number of tasks enqueued.

    The worker is frozen before its claims are read, so it cannot finish them before it is killed. A frozen worker may
    hold the write lock of a SQLite file: until it is killed or continues, the test only reads.
    """
    batches = itertools.count(1)

    def is_frozen_with_a_claim() -> int:
        batch = next(batches)
        app.enqueue_many(some_work(chance, A_ROUND))
        time.sleep(chance.uniform(0, 0.2))  # any time will do
        freeze(worker.process.pid)
        if app.list_tasks(state="claimed", worker=worker.name, limit=1):
            return batch
        worker.thaw()
        return 0

    enqueued = until(is_frozen_with_a_claim, 60) * A_ROUND
    worker.kill()
    return enqueued


def start(workers: WorkerProcesses) -> WorkerProcess:
    return workers.start(lease=LEASE, upkeep_every=UPKEEP, concurrency=3)


def some_work(chance: random.Random, count: int) -> list[NewTask]:
    """Short tasks, of which a worker claims many ahead, and some that are not so short, on threads and the loop."""
    return [chance.choice([nap, doze]).new(seconds=chance.choice([0.0, 0.005, 0.01, 0.02, 0.1])) for _ in range(count)]


def recovery_times(entries: list[Any], killed_at: dict[str, float | None]) -> tuple[list[float], list[float]]:
    """For each claim that was lost with its worker: seconds from the kill until the task was claimable, and claimed."""
    claimable, claimed = [], []
    entries = sorted(entries, key=lambda entry: (entry.task_id, entry.id))
    for recovered, then in pairwise(entries):
        if recovered.event is not Event.RECOVERED:
            continue
        died = killed_at[recovered.worker_id]
        if died is None or recovered.at.timestamp() < died:
            continue  # a busy machine let a living worker wait for longer than its lease
        assert (then.task_id, then.event) == (recovered.task_id, Event.CLAIMED)
        claimable.append(recovered.at.timestamp() - died)
        claimed.append(then.at.timestamp() - died)
    return claimable, claimed


def spread(seconds: list[float]) -> str:
    return f"p50 {percentile(seconds, 0.5):.2f}, p99 {percentile(seconds, 0.99):.2f}, most {max(seconds):.2f}"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    return state != "Z"
