"""Promise 4: a worker that was frozen past the end of its lease changes nothing when it continues, and works again."""

from __future__ import annotations

from pathlib import Path

import dibs
from tests.helpers import ahead
from tests.helpers.consistency import assert_balanced
from tests.helpers.handlers import heard, nap, persist, say
from tests.helpers.tasks import events
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcesses


def test_a_thawed_worker_does_not_change_a_task_that_another_worker_completed(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    task = persist.enqueue(folder=str(tmp_path))
    frozen = workers.start(lease=1)
    until(lambda: heard(tmp_path, "persist.1.began"), 30)
    frozen.freeze()
    other = workers.start(lease=30, upkeep_every=0.2)
    pid = int(until(lambda: heard(tmp_path, "persist.2.began"), 30))
    assert pid == other.process.pid
    say(tmp_path, "persist.go")
    done = app.wait(task.id, 30)
    other.terminate()
    assert other.exit_code() == 0
    assert (done.result, done.attempts) == ({"token": 2, "pid": pid}, 2)
    history = app.history(task.id)
    assert events(app, task.id) == ["enqueued", "claimed", "recovered", "claimed", "completed"]

    frozen.thaw()
    until(lambda: (heard(tmp_path, "persist.ended") or "").strip() == "1")  # its handler ends, and has a result
    assert app.wait(nap.enqueue().id, 30).worker_id == frozen.name  # and it works on
    reports = ("persist, attempt 1): the claim is lost", "persist, attempt 1): the outcome 'completed' came too late")
    until(lambda: any(report in frozen.log for report in reports))
    frozen.terminate()
    assert frozen.exit_code() == 0  # all its reports have been received
    assert app.get(task.id) == done
    assert app.history(task.id) == history
    assert_balanced(app)


def test_a_thawed_worker_does_not_start_tasks_whose_claims_it_lost(
    app: dibs.Dibs, workers: WorkerProcesses, tmp_path: Path
) -> None:
    frozen = workers.start(lease=1, concurrency=1)
    frozen.wait_until_ready(app)
    held, behind = ahead.hold(app, tmp_path)
    frozen.freeze()
    workers.start(lease=30, upkeep_every=0.2, worker_id="other")
    until(lambda: ahead.begun([held], tmp_path, token=2), 30)
    ahead.let_go(held, tmp_path)
    done = [app.wait(task.id, 30) for task in behind]
    frozen.thaw()
    frozen.terminate()
    assert frozen.exit_code() == 0
    assert ahead.begun(behind, tmp_path) == []
    assert {task.worker_id for task in done} == {"other"}
    assert [app.get(task.id) for task in behind] == done
    assert_balanced(app)
