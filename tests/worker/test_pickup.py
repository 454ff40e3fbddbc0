"""A task starts soon after it is enqueued by another process, and soon after its time."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from tests.helpers.consistency import percentile
from tests.helpers.handlers import nap
from tests.helpers.waiting import let_pass, until
from tests.helpers.workers import WorkerProcesses

HOURS = 3600.0


def test_a_worker_that_has_been_idle_for_long_is_woken_for_a_task_without_polling(
    app: dibs.Dibs, workers: WorkerProcesses
) -> None:
    worker = workers.start(poll=HOURS)
    worker.wait_until_ready(app)
    # Its looks come after 0.25, 0.5, 1, 2, ... seconds: the next is so far away that only a wake-up can be in time.
    let_pass(1.9)
    latencies = []
    for _ in range(20):
        task = app.wait(nap.enqueue().id, 30)
        assert task.claimed_at is not None
        latencies.append((task.claimed_at - task.created_at).total_seconds())
    shown = [f"{1000 * percentile(latencies, part):.1f}" for part in (0.5, 0.95)]
    print(f"from enqueue to claim, in milliseconds: p50 {shown[0]}, p95 {shown[1]}")
    assert latencies[0] < 1.5
    assert percentile(latencies, 0.5) < 0.2  # its looks after a task come after 0.25 seconds


def test_a_delayed_task_starts_close_to_its_time(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    workers.start(poll=HOURS, upkeep_every=HOURS).wait_until_ready(app)
    tasks = [nap.options(delay=delay).enqueue() for delay in (0.3, 0.9, 1.7)]
    late = []
    for task in tasks:
        done = app.wait(task.id, 30)
        assert done.claimed_at is not None
        late.append((done.claimed_at - task.run_at).total_seconds())
    print("late by milliseconds:", [f"{1000 * each:.1f}" for each in late])
    assert all(0 <= each < 5 for each in late)  # it never looks by itself, so late by little means: it knew


def test_a_task_that_was_enqueued_before_the_worker_started_is_claimed(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    task = nap.enqueue()
    workers.start(poll=HOURS)
    app.wait(task.id, 30)


def test_a_worker_that_claimed_fewer_tasks_than_requested_does_not_claim_again_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []
    with dibs.Dibs(url) as app:
        run, blink = app._store.run, app.task(name="blink")(lambda: None)

        def record(operation: Any, **how: Any) -> Any:
            answer = run(operation, **how)
            if threading.current_thread().name == "dibs-claimer":
                asked.append((operation.name, answer))
            return answer

        monkeypatch.setattr(app._store, "run", record)
        tasks = [blink.enqueue() for _ in range(3)]
        with app.worker(concurrency=8):
            for task in tasks:
                app.wait(task.id, 30)
            until(lambda: asked and asked[-1][0] == "next_due")
    found = [place for place, (name, claims) in enumerate(asked) if name == "claim" and claims]
    assert found
    assert {asked[place + 1][0] for place in found} == {"next_due"}, asked


def test_a_worker_starts_tasks_as_soon_as_their_rate_allows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate with a burst of 1 does not catch up on a start that came late: each late claim would lower the rate."""
    monkeypatch.setattr("dibs.procedures.COARSE_WAIT", 3.0)  # a worker that waits longer than necessary is seen by that
    with dibs.Dibs(url) as app:
        app.set_limit("mail-api", rate="10/second")
        blink = app.task(name="blink", limits=["mail-api"])(lambda: None)
        with app.worker(concurrency=2, poll=HOURS):
            tasks = [app.wait(task.id, 60) for task in [blink.enqueue() for _ in range(12)]]
    began = sorted(task.claimed_at for task in tasks if task.claimed_at is not None)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(began)]
    assert min(gaps) >= 0.1, gaps
    assert sum(gap < 2.5 for gap in gaps) >= 9, gaps


@pytest.mark.own_connections
@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_process_ignores_its_own_notifications(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.store.wakeups.LINGER", 600)  # a watcher that listens a second time counts one change more
    with dibs.Dibs(url) as app, psycopg.connect(url, autocommit=True) as other:
        wakeups = app._store.wakeups
        other.execute("LISTEN dibs")
        wakeups.wait(wakeups.generation, 60)  # it listens
        seen = wakeups.generation
        app.enqueue("t")
        assert len(list(other.notifies(timeout=60, stop_after=1))) == 1  # so the notification was sent, also to itself
        other.execute("NOTIFY dibs")
        wakeups.wait(seen + 1, 60)
        assert wakeups.generation == seen + 2  # by its own write at once, and by the other notification
