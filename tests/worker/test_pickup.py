"""A task begins soon: when it is enqueued from another process, and when its time has come."""

from __future__ import annotations

import time
from pathlib import Path

import dibs
from tests.helpers.books import percentile
from tests.helpers.handlers import nap
from tests.helpers.hands import Crew
from tests.helpers.waiting import until

HOURS = 3600.0


def test_a_worker_that_has_long_been_idle_needs_no_poll_to_pick_up_a_task(app: dibs.Dibs, hands: Crew) -> None:
    hand = hands.hire(poll=HOURS)
    hand.wait_until_ready(app)
    # Its looks come after 0.25, 0.5, 1, 2, ... seconds: the next is so far away that only a wake-up can be in time.
    quiet_until = time.monotonic() + 1.9
    until(lambda: time.monotonic() > quiet_until)
    latencies = []
    for _ in range(20):
        task = app.wait(nap.enqueue().id, 10)
        assert task.claimed_at is not None
        latencies.append((task.claimed_at - task.created_at).total_seconds())
    shown = [f"{1000 * percentile(latencies, part):.1f}" for part in (0.5, 0.95)]
    print(f"from enqueue to claim, in milliseconds: p50 {shown[0]}, p95 {shown[1]}")
    assert percentile(latencies, 0.5) < 0.1
    assert max(latencies) < 1


def test_a_delayed_task_begins_close_to_its_time(app: dibs.Dibs, hands: Crew) -> None:
    hands.hire(poll=HOURS, upkeep_every=HOURS).wait_until_ready(app)
    tasks = [nap.options(delay=delay).enqueue() for delay in (0.3, 0.9, 1.7)]
    late = []
    for task in tasks:
        done = app.wait(task.id, 10)
        assert done.claimed_at is not None
        late.append((done.claimed_at - task.run_at).total_seconds())
    print("late by milliseconds:", [f"{1000 * each:.1f}" for each in late])
    assert all(0 <= each < 5 for each in late)  # it never looks by itself, so late by little means: it knew


def test_a_task_that_was_there_before_the_worker_is_found(app: dibs.Dibs, hands: Crew, tmp_path: Path) -> None:
    task = nap.enqueue()
    hands.hire(poll=HOURS)
    app.wait(task.id, 30)
