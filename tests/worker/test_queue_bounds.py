"""Queue bounds: one worker process never runs more tasks of a queue at once than the bound allows, over all lanes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import InvalidValue, State
from tests.helpers import handlers
from tests.helpers.consistency import assert_balanced
from tests.helpers.each import for_each
from tests.helpers.handlers import doze, linger, nap, remain, say, stay
from tests.helpers.waiting import let_pass, until


class Running:
    """Counts the handlers that run, by name, and the most that ran at once."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def one(self, name: str) -> Iterator[None]:
        with self._lock:
            self._now[name] += 1
            self.most[name] = max(self.most[name], self._now[name])
        try:
            yield
        finally:
            with self._lock:
                self._now[name] -= 1


def test_a_bound_holds_over_threads_loop_and_processes_together(app: dibs.Dibs, tmp_path: Path) -> None:
    with app.worker(concurrency=4, children=2, queues={"mail": 2, "other": None}):
        tasks = {
            name: handler.options(queue="mail").enqueue(str(tmp_path), name=name)
            for handler in (remain, stay, linger)
            for name in (handler.name, f"{handler.name}-more")
        }
        waiting = dict(tasks)
        while waiting:
            until(lambda: len(claimed := held(app, tasks)) == min(2, len(waiting)) and all_begun(tmp_path, claimed), 60)
            app.wait(nap.options(queue="other").enqueue().id, 30)  # after a round of claims
            claimed = held(app, tasks)
            assert len(claimed) == min(2, len(waiting))
            say(tmp_path, f"{claimed[0]}.go")
            assert app.wait(waiting.pop(claimed[0]).id, 30).state is State.COMPLETED


def held(app: dibs.Dibs, tasks: Mapping[str, dibs.Task]) -> list[str]:
    """The names of the claimed tasks."""
    claimed = {task.id for task in app.list_tasks(state="claimed")}
    return [name for name, task in tasks.items() if task.id in claimed]


def all_begun(folder: Path, names: list[str]) -> bool:
    return all(handlers.heard(folder, f"{name}.1.began") for name in names)


def test_a_bound_holds_for_short_tasks_that_are_claimed_ahead_with_priorities(url: str) -> None:
    running = Running()
    with dibs.Dibs(url) as app:

        @app.task
        def thread(name: str) -> None:
            with running.one(name):
                time.sleep(0)

        @app.task
        async def loop(name: str) -> None:
            with running.one(name):
                await asyncio.sleep(0)

        def tasks(handler: dibs.Handler, name: str, count: int) -> list[dibs.NewTask]:  # type: ignore[type-arg]
            return [handler.options(queue=name, priority=n % 3).new(name) for n in range(count)]

        for handler in (thread, loop):
            app.enqueue_many([task for name in ("mail", "video", "default") for task in tasks(handler, name, 150)])
        with app.worker(concurrency=4, queues={"mail": 2, "video": 1, "default": None}):
            until(lambda: app.stats().depth == {"completed": 900}, 60)
        assert_balanced(app)
    assert running.most["mail"] == 2
    assert running.most["video"] == 1
    assert running.most["default"] > 2


def test_a_full_queue_keeps_no_other_queue_waiting(app: dibs.Dibs, tmp_path: Path) -> None:
    with app.worker(concurrency=3, queues={"mail": 1, "default": None}):
        held = [stay.options(queue="mail", priority=9).enqueue(str(tmp_path), name=f"mail-{n}") for n in range(3)]
        until(lambda: handlers.heard(tmp_path, "mail-0.1.began"))
        for _ in range(5):
            assert app.wait(nap.enqueue().id, 30).state is State.COMPLETED
        assert [app.get(task.id).state for task in held] == ["claimed", "pending", "pending"]  # type: ignore[union-attr]
        for n in range(3):
            say(tmp_path, f"mail-{n}.go")
        for task in held:
            assert app.wait(task.id, 30).state is State.COMPLETED


def test_lanes_take_turns_in_a_queue_that_is_always_full(app: dibs.Dibs) -> None:
    in_threads = app.enqueue_many([nap.options(queue="mail").new() for _ in range(30)])
    in_loop = doze.options(queue="mail").enqueue()
    with app.worker(queues={"mail": 1}):
        done = [app.wait(task.id, 30) for task in (*in_threads, in_loop)]
    order = [task.type for task in sorted(done, key=lambda task: task.claimed_at or task.created_at)]
    assert "doze" in order[:3]


def test_a_task_of_a_full_queue_starts_when_one_ends_without_waiting_for_a_poll(app: dibs.Dibs, tmp_path: Path) -> None:
    with app.worker(concurrency=3, poll=3600.0, queues={"mail": 1}):
        first, second = (stay.options(queue="mail").enqueue(str(tmp_path), name=name) for name in ("first", "second"))
        until(lambda: handlers.heard(tmp_path, "first.1.began"))
        let_pass(0.5)
        assert app.get(second.id).state is State.PENDING  # type: ignore[union-attr]
        say(tmp_path, "first.go")
        until(lambda: handlers.heard(tmp_path, "second.1.began"), 10)
        say(tmp_path, "second.go")
        assert app.wait(first.id, 30).state is app.wait(second.id, 30).state is State.COMPLETED


@pytest.mark.parametrize("order", ["limited first", "limited last"])
def test_tasks_with_limits_in_queues_with_bounds_use_permits_again_at_once(
    url: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim within bounds is made in parts: its limited tasks may all be in the first part."""
    monkeypatch.setattr("dibs.worker.claimer.WAKEUPS_PER_SECOND", 0.01)
    running = Running()
    with dibs.Dibs(url) as app:
        app.set_limit("account", max=3)

        @app.task
        async def post(name: str) -> None:
            with running.one(name):
                await asyncio.sleep(0)

        def tasks(queue: str, count: int, **options: Any) -> list[dibs.NewTask]:
            return [post.options(queue=queue, **options).new(f"{queue} {options}") for _ in range(count)]

        limited = {"limits": ["account"], "priority": 1 if order == "limited first" else -1}
        for queue in ("mail", "default"):
            app.enqueue_many([*tasks(queue, 100, **limited), *tasks(queue, 100)])
        with app.worker(concurrency=10, poll=600, queues={"mail": 2, "default": None}):
            until(lambda: app.stats().depth == {"completed": 400}, 30)
        assert_balanced(app)
    assert running.most[f"mail {limited}"] <= 2
    assert running.most[f"mail {limited}"] + running.most[f"default {limited}"] <= 3 + 2


def test_a_burst_runs_every_task_of_queues_with_bounds(app: dibs.Dibs) -> None:
    app.enqueue_many([nap.options(queue=queue).new() for queue in ("mail", "default", "other") for _ in range(20)])
    assert app.worker(burst=True, queues={"mail": 1, "default": None}).run() == 0
    assert {queue: dict(depth) for queue, depth in app.stats().by_queue.items()} == {
        "mail": {"completed": 20},
        "default": {"completed": 20},
        "other": {"pending": 20},
    }


def test_a_timeout_in_a_thread_makes_room_in_its_queue(app: dibs.Dibs, tmp_path: Path) -> None:
    with app.worker(concurrency=2, poll=3600.0, queues={"mail": 1}):
        stay.options(queue="mail", timeout=0.3, max_attempts=1).enqueue(str(tmp_path), name="hangs")
        until(lambda: handlers.heard(tmp_path, "hangs.1.began"))
        assert app.wait(nap.options(queue="mail").enqueue().id, 30).state is State.COMPLETED
        say(tmp_path, "hangs.go")


def test_the_record_of_a_worker_has_the_bounds_of_its_queues(app: dibs.Dibs) -> None:
    with app.worker(worker_id="bounded", queues={"mail": 2, "default": None}):
        [info] = app.workers()
        assert (info.queues, info.metadata["queue_bounds"]) == (["mail", "default"], {"mail": 2})


@for_each(
    "queues, message",
    [
        ({"mail": 0}, "The bound of the queue 'mail' must be between 1 and 10,000, not 0."),
        ({"mail": True}, "The bound of the queue 'mail' must be an integer, not True."),
        ({"": 1}, "The queue must"),
        ({}, "queues is an empty list"),
    ],
)
def test_a_bound_that_is_no_positive_number_is_refused(app: dibs.Dibs, queues: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidValue) as error:
        app.worker(queues=queues)
    assert message in str(error.value)
