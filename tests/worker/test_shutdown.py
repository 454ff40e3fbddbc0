"""SIGTERM: no new task, a grace period for running tasks, and a release costs no attempt."""

from __future__ import annotations

from pathlib import Path

import dibs
from dibs import State, Task, WaitTimeout, WorkerState
from tests.helpers import ahead
from tests.helpers.consistency import all_tasks, assert_balanced
from tests.helpers.handlers import heard, linger, nap, persist, remain, say
from tests.helpers.tasks import events
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcess, WorkerProcesses

LANES = [persist, linger, remain]


def test_with_a_long_grace_period_the_tasks_of_every_lane_complete(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    worker = workers.start(grace=30)
    tasks = one_in_each_lane(tmp_path)
    stop(worker)
    until(lambda: is_left_alone(app))  # it claims nothing more
    for handler in LANES:
        say(tmp_path, f"{handler.name}.go")
    assert worker.exit_code() == 0
    assert [app.wait(task.id, 0).result["token"] for task in tasks] == [1, 1, 1]
    assert app.stats().depth["pending"] == 1
    assert [worker.state for worker in app.workers()] == [WorkerState.GONE]


def test_with_a_short_grace_period_tasks_are_released_and_completed_by_another_worker(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    worker = workers.start(grace=0.2)
    tasks = one_in_each_lane(tmp_path)
    stop(worker)
    assert worker.exit_code(10) == 0
    for task in map(app.get, (task.id for task in tasks)):
        assert task is not None
        assert (task.state, task.attempts, task.error) == (State.PENDING, 0, None)
        assert events(app, task.id) == ["enqueued", "claimed", "released"]
    for handler in LANES:
        say(tmp_path, f"{handler.name}.go")
    workers.start()
    assert [app.wait(task.id, 30).result["token"] for task in tasks] == [2, 2, 2]
    assert {task.attempts for task in all_tasks(app)} == {1}
    assert_balanced(app)


def test_a_second_signal_ends_the_grace_period(app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path) -> None:
    worker = workers.start(grace=60)
    tasks = one_in_each_lane(tmp_path)
    stop(worker)
    assert {task.state for task in all_tasks(app)} == {State.CLAIMED}
    worker.terminate()
    assert worker.exit_code(15) == 0
    assert {(task.state, task.attempts) for task in all_tasks(app)} == {(State.PENDING, 0)}
    assert len(tasks) == 3


def test_tasks_claimed_ahead_are_released_at_once(app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path) -> None:
    worker = workers.start(grace=60, concurrency=1)
    held, behind = ahead.hold(app, tmp_path)
    worker.terminate()
    until(lambda: app.stats().depth.get("pending") == len(behind))
    assert app.get(held.id).state is State.CLAIMED  # type: ignore[union-attr]
    assert worker.process.poll() is None
    ahead.let_go(held, tmp_path)
    assert worker.exit_code() == 0
    assert app.wait(held.id, 0).state is State.COMPLETED
    assert {task.attempts for task in app.list_tasks(state="pending")} == {0}
    assert ahead.begun(behind, tmp_path) == []


def test_ctrl_c_stops_a_worker_like_sigterm(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    import signal

    worker = workers.start()
    worker.wait_until_ready(app)
    worker.process.send_signal(signal.SIGINT)
    assert worker.exit_code() == 0
    assert "Traceback" not in worker.log


def one_in_each_lane(folder: Path) -> list[Task]:
    """Tasks that run until the test ends them."""
    tasks: list[Task] = [handler.enqueue(folder=str(folder)) for handler in LANES]  # type: ignore[attr-defined]
    for handler in LANES:
        until(lambda name=handler.name: heard(folder, f"{name}.1.began"), 30)  # type: ignore[misc]
    return tasks


def is_left_alone(app: dibs.Dibs) -> bool:
    """True if no new task is started."""
    try:
        app.wait(nap.enqueue().id, 0.5)
    except WaitTimeout:
        return True
    return False


def stop(worker: WorkerProcess) -> None:
    """SIGTERM, and it has been seen."""
    worker.terminate()
    until(lambda: f"{worker.name} is stopping" in worker.log)
