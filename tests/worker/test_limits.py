"""A worker starts tasks with limits as soon as their permits return."""

from __future__ import annotations

import threading
import time

import pytest

import dibs
from dibs import Event, NewTask
from tests.helpers.waiting import until

TASKS = 400


@pytest.mark.parametrize("most", [1, 3, 50])
def test_a_worker_uses_its_own_permits_again_at_once(url: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wake-ups may be limited to a few a second; permits that tasks of the worker have returned are no such wake-ups.
    With 50, the lane is full, and its claims ahead find nothing."""
    monkeypatch.setattr("dibs.worker.claimer.WAKEUPS_PER_SECOND", 0.01)
    done, left = threading.Event(), iter(range(TASKS - 1, -1, -1))
    with dibs.Dibs(url) as app:
        app.set_limit("account", max=most)

        @app.task(name="post")
        async def post() -> None:
            if next(left) == 0:
                done.set()

        app.enqueue_many([NewTask("post", limits=["account"]) for _ in range(TASKS)])
        with app.worker(concurrency=10, poll=600):
            assert done.wait(60)


@pytest.mark.parametrize("mixed", [False, True], ids=["short tasks only", "and a long type"])
def test_a_task_with_a_limit_is_not_starved_by_a_stream_of_short_ones(
    url: str, mixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short tasks are claimed ahead, which leaves out tasks with limits."""
    monkeypatch.setattr("dibs.worker.lanes.IN_TURN_INTERVAL", 0.1)
    with dibs.Dibs(url) as app:
        app.set_limit("account", max=1)

        @app.task
        def short() -> None:
            time.sleep(0.002)

        @app.task
        def limited() -> None: ...

        if mixed:
            app.task(name="long")(lambda: time.sleep(0.06))
            app.enqueue("long", priority=9)
        app.enqueue_many([short.new() for _ in range(3000)])
        with app.worker(concurrency=2):
            until(lambda: app.stats().depth.get("completed", 0) > 500, 30)
            urgent = limited.options(priority=5, limits=["account"]).enqueue()
            until(lambda: set(app.stats().depth) == {"completed"}, 30)
        claimed = [entry.task_id for entry in app.all_history() if entry.event is Event.CLAIMED]
        assert claimed.index(urgent.id) < len(claimed) - 500
