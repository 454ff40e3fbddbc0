"""Upkeep by workers: any number may do it concurrently; workers register and leave, and schedules tick once."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import dibs
from dibs import Event, State, Verdict, WorkerState
from dibs.model.checks import from_micros, to_micros
from tests.helpers.consistency import all_tasks, assert_balanced
from tests.helpers.databases import run_sql
from tests.helpers.handlers import heard, nap, persist, say
from tests.helpers.tasks import task_in
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcesses


def test_a_worker_is_registered_while_it_works_and_gone_when_it_has_stopped(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    worker = workers.start(queues=["default", "other"])
    task = persist.enqueue(folder=str(tmp_path))
    until(lambda: heard(tmp_path, "persist.1.began"), 30)
    [info] = app.workers()
    assert (info.id, info.state, info.queues) == (worker.name, WorkerState.ACTIVE, ["default", "other"])
    assert {"nap", "doze", "toil", "persist"} <= set(info.types or [])
    assert info.metadata["pid"] == worker.process.pid
    assert info.holds == [task.id]
    say(tmp_path, "persist.go")
    worker.terminate()
    assert worker.exit_code() == 0
    [info] = app.workers()
    assert (info.state, info.holds) == (WorkerState.GONE, [])
    assert info.stopped_at is not None


def test_a_worker_claims_only_from_its_queues(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    workers.start(queues=["mine"])
    theirs, mine = nap.enqueue(), nap.options(queue="mine").enqueue()
    assert app.wait(mine.id, 30).state is State.COMPLETED
    assert app.get(theirs.id) == theirs


def test_a_reused_worker_id_is_another_incarnation(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    workers.start(worker_id="name").wait_until_ready(app)
    workers.all[0].kill()
    workers.start(worker_id="name")
    assert app.wait(nap.enqueue().id, 30).state is State.COMPLETED
    assert len({info.incarnation for info in app.workers()}) == 2


def test_concurrent_upkeep_by_many_workers_does_no_harm(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    for _ in range(4):
        workers.start(upkeep_every=0.1, queues=["default"])
    for worker in workers.all:
        worker.wait_until_ready(app)
    app.enqueue_many([nap.options(delay=0.01 * (n % 100)).new() for n in range(500)])
    lost = app.enqueue_many([nap.options(queue="lost").new() for n in range(200)])
    app.claim_many("dead", 200, queues=["lost"], lease=0.5)
    until(lambda: app.stats().depth == {"completed": 500, "pending": 200}, 60)
    entries = assert_balanced(app, [State.COMPLETED, State.PENDING])
    assert sorted(e.task_id for e in entries if e.event is Event.RECOVERED) == [task.id for task in lost]
    assert [check for check in app.doctor() if check.verdict is Verdict.FAIL] == []


def test_a_declared_schedule_is_registered_and_several_workers_tick_it_once(
    app: dibs.Dibs, workers: WorkerProcesses, url: str
) -> None:
    for _ in range(3):
        workers.start(program="tests.helpers.work_ticking")
    for worker in workers.all:
        worker.wait_until_ready(app)
    until(lambda: [schedule.name for schedule in app.schedules()] == ["tick"])
    first = from_micros(time.time_ns() // 60_000_000_000 * 60_000_000) - timedelta(minutes=20)
    run_sql(
        url, f"UPDATE dibs_schedules SET next_at = {to_micros(first)}, due_at = {to_micros(first)} WHERE name = 'tick'"
    )
    until(lambda: app.stats().depth.get("completed", 0) > 20, 30)
    for worker in workers.all:
        worker.terminate()
    assert [worker.exit_code() for worker in workers.all] == [0, 0, 0]
    [schedule], tasks = app.schedules(), all_tasks(app)
    assert len(tasks) == (schedule.next_at - first) / timedelta(minutes=1)  # another may have come meanwhile
    assert len({task.key for task in tasks}) == len(tasks)
    assert {(task.type, task.priority) for task in tasks} == {("tick", 4)}
    assert_balanced(app)


def test_a_worker_prunes_by_the_rules_of_the_store(app: dibs.Dibs, workers: WorkerProcesses) -> None:
    kept, pruned = (task_in(app, state) for state in ("cancelled", "completed"))
    app.set_retention("completed", 0)
    workers.start()
    until(lambda: app.get(pruned.id) is None, 30)
    assert app.get(kept.id) is not None
