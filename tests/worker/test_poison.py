"""Promise 7: a task that kills its worker reaches the dead letter, and no other task does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import dibs
from dibs import Backoff, State
from tests.helpers.consistency import all_tasks, assert_balanced
from tests.helpers.handlers import die_apart, mark, renamed, toil
from tests.helpers.tasks import events
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcesses


def test_a_task_that_kills_its_child_process_does_not_end_the_worker(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    worker = workers.start(children=1)
    poison = die_apart.options(max_attempts=3, backoff=Backoff(0.01, 0.01)).enqueue()
    dead = app.wait(poison.id, 30)
    assert (dead.state, dead.attempts, dead.token) == (State.FAILED, 3, 3)
    assert dead.error is not None
    assert dead.error.type == "ProcessDied"
    assert "SIGKILL" in dead.error.message
    assert app.wait(toil.enqueue().id, 30).worker_id == worker.name
    assert worker.process.poll() is None
    assert_balanced(app, [State.COMPLETED, State.FAILED])


def test_a_task_that_kills_its_worker_ends_in_the_dead_letter_and_its_neighbours_do_not(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    folder = str(tmp_path)
    names = [f"neighbour-{n}" for n in range(60)]
    tasks = [mark.options(max_attempts=2).new(folder=folder, name=name) for name in names]
    # Behind tasks that show how short they are, before tasks that are then claimed ahead together with it.
    poison = mark.options(max_attempts=2).new(folder=folder, name="poison", does="die")
    stored = app.enqueue_many([*tasks[:30], poison, *tasks[30:]])
    poisonous = stored[30].id
    until(lambda: restart_the_dead(workers) or all_final(app), 60)
    dead = app.get(poisonous)
    assert dead is not None
    assert (dead.state, dead.attempts) == (State.FAILED, 2)
    assert {task.id for task in app.list_tasks(state="failed")} == {poisonous}
    deaths = [worker for worker in workers.all if worker.process.poll() is not None]
    print(f"{len(deaths)} workers died; the task was dropped {dead.dropped} times")
    assert len(deaths) == 2 + dead.dropped
    assert dead.dropped <= 1  # the first time it is not known which task did it; from then on it is watched
    assert sum(task.dropped > 0 for task in all_tasks(app)) > 10  # it had neighbours
    assert_balanced(app, [State.COMPLETED, State.FAILED])


def test_a_handler_that_child_processes_cannot_import_fails_permanently_with_a_message(
    app: dibs.Dibs, workers: WorkerProcesses
) -> None:
    workers.start(children=1)
    dead = app.wait(renamed.enqueue().id, 30)
    assert (dead.state, dead.attempts) == (State.FAILED, 1)
    assert dead.error is not None
    assert "_renamed" in dead.error.message
    assert "not a handler" in dead.error.message
    assert app.wait(toil.enqueue().id, 30).state is State.COMPLETED


@pytest.mark.skipif(sys.platform != "linux", reason="takes a limit of a running process, which only Linux has")
def test_a_child_process_that_cannot_be_started_costs_an_attempt_and_not_the_worker(
    app: dibs.Dibs, workers: WorkerProcesses
) -> None:
    import resource

    worker = workers.start(children=1)
    assert (
        app.wait(die_apart.options(max_attempts=1).enqueue().id, 30).worker_id == worker.name
    )  # the next needs a child
    pid = worker.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free_file(pid), before[1]))
    task = toil.options(max_attempts=100, backoff=Backoff(0.05, 0.05)).enqueue()
    until(lambda: "failed" in events(app, task.id))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert app.wait(task.id, 30).worker_id == worker.name
    assert_balanced(app, [State.COMPLETED, State.FAILED])


def lowest_free_file(pid: int) -> int:
    taken = {int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir()}
    return min(number for number in range(len(taken) + 1) if number not in taken)


def restart_the_dead(workers: WorkerProcesses) -> None:
    """What a service manager does."""
    if not workers.all or workers.all[-1].process.poll() is not None:
        workers.start(lease=1, upkeep_every=0.2, concurrency=1)


def all_final(app: dibs.Dibs) -> bool:
    return app.stats().depth.keys() <= {"completed", "failed"}
