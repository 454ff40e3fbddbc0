"""Bulk actions of the dashboard: each task is moved once, by an allowed key, and no task that was enqueued later."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import dibs
from dibs.server.dashboard import bulk
from tests.helpers.browsing import Visitor, text_of
from tests.helpers.tasks import dead, enqueue_all, events, task_in
from tests.helpers.workflows import finalize_due
from tests.server.dashboard.conftest import Site


def do_all(visitor: Visitor, meanwhile: Callable[[], object] = lambda: None, **fields: Any) -> tuple[int, int]:
    """Batch after batch, as the page does it: how many were moved, in how many batches."""
    moved, batches, cursor = 0, 0, {}
    while True:
        answer = visitor.post_json("/tasks/bulk", which="matching", **fields, **cursor)
        assert answer.status_code == 200, answer.text
        done = answer.json()
        assert set(done) == {"moved", "looked", "cursor"}
        moved, batches = moved + done["moved"], batches + 1
        if done["cursor"] is None:
            return moved, batches
        cursor = {"cursor": done["cursor"]}
        meanwhile()


def states(app: dibs.Dibs) -> dict[str, int]:
    return {name: count for name, count in app.stats().depth.items() if count}


def test_only_the_selected_tasks_are_retried(site: Site, app: dibs.Dibs) -> None:
    tasks = dead(app, 5)
    done = site.visitor("read", "enqueue").post_json("/tasks/bulk", action="retry", ids=f"{tasks[0]},{tasks[2]}").json()
    assert done == {"moved": 2, "looked": 2, "cursor": None}
    assert [app.get(task).state for task in tasks] == ["pending", "failed", "pending", "failed", "failed"]  # type: ignore[union-attr]


def test_selected_tasks_sent_by_a_plain_form_are_confirmed_first(site: Site, app: dibs.Dibs) -> None:
    tasks = dead(app, 3)
    visitor = site.visitor("read", "enqueue")
    form = {"csrf": visitor.csrf(), "action": "retry", "which": "picked", "ids": [str(each) for each in tasks[:2]]}
    sure = visitor.http.post("/tasks/bulk", data=form)
    assert "Retry 2 tasks?" in text_of(sure)
    assert states(app) == {"failed": 3}
    done = visitor.http.post("/tasks/bulk", data={**form, "ids": f"{tasks[0]},{tasks[1]}", "sure": "yes"})
    assert done.url.path == "/tasks"
    assert "Retried 2 tasks." in text_of(done)
    assert states(app) == {"failed": 1, "pending": 2}


def test_the_confirmation_for_all_matching_tasks_shows_the_filter(site: Site, app: dibs.Dibs) -> None:
    dead(app, 3)
    visitor = site.visitor("admin")
    sure = visitor.post("/tasks/bulk", action="redrive", which="matching", type="resize", state="failed")
    assert "Retry all tasks that match? state:failed type:resize" in text_of(sure)
    done = visitor.post(
        "/tasks/bulk", action="redrive", which="matching", type="resize", state="failed", sure="yes", to="dead"
    )
    assert done.url.path == "/dead"
    assert "Retried 3 tasks." in text_of(done)


def test_all_matching_tasks_are_moved_in_batches(site: Site, app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "SCRIPT_SECONDS", 0.0)
    tasks = dead(app, 300)
    others = dead(app, 20, type="other")
    moved, batches = do_all(site.visitor("admin"), action="redrive", type="resize")
    assert moved == 300
    assert batches >= 5
    assert all(events(app, task)[-1] == "retried" for task in tasks)
    assert all(events(app, task)[-1] == "failed" for task in others)


def test_tasks_enqueued_during_a_bulk_action_are_left_alone(
    site: Site, app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "SCRIPT_SECONDS", 0.0)
    before = enqueue_all(app, [dibs.NewTask("resize") for _ in range(200)])
    later: list[int] = []
    moved, _ = do_all(site.visitor("read", "enqueue"), lambda: later.append(app.enqueue("resize").id), action="cancel")
    assert moved == len(before)
    assert len(later) >= 3
    assert {app.get(task).state.value for task in later} == {"pending"}  # type: ignore[union-attr]


def test_a_task_that_fails_again_during_a_redrive_is_not_retried_a_second_time(
    site: Site, app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "SCRIPT_SECONDS", 0.0)
    tasks = dead(app, 200)

    def fail_again() -> None:
        for claim in app.claim_many("worker-2", 1000):
            app.fail(claim, "broken", permanent=True)

    moved, _ = do_all(site.visitor("admin"), fail_again, action="redrive")
    fail_again()
    assert moved == 200
    assert Counter(events(app, task).count("retried") for task in tasks) == {1: 200}


def test_a_worker_running_during_a_bulk_action_loses_no_task(
    site: Site, app: dibs.Dibs, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "SCRIPT_SECONDS", 0.0)
    tasks = [task.id for task in enqueue_all(app, [dibs.NewTask("resize") for _ in range(300)])]
    stop, done = threading.Event(), list[int]()

    def work() -> None:
        with dibs.Dibs(url) as mine:
            while claims := mine.claim_many("worker-1", 7):
                for claim in claims:
                    mine.complete(claim)
                    done.append(claim.task_id)
                if stop.is_set():
                    return

    worker = threading.Thread(target=work)
    worker.start()
    visitor = site.visitor("read", "enqueue")
    do_all(visitor, action="cancel", state="pending")
    stop.set()
    worker.join()
    do_all(visitor, action="cancel", state="pending")
    ended = {task: events(app, task) for task in tasks}
    assert all(past[-1] in ("completed", "cancelled") for past in ended.values())
    assert all(past.count("completed") + past.count("cancelled") == 1 for past in ended.values())
    assert {task for task, past in ended.items() if past[-1] == "completed"} == set(done)


def test_a_limited_key_moves_only_tasks_of_its_queues(site: Site, app: dibs.Dibs) -> None:
    mine, theirs = dead(app, 3, queue="mine"), dead(app, 3, queue="theirs")
    visitor = site.visitor("admin", queues=["mine"])
    picked = visitor.post_json("/tasks/bulk", action="retry", ids=",".join(map(str, [mine[0], *theirs])))
    assert picked.json()["moved"] == 1
    assert do_all(visitor, action="redrive")[0] == 2
    assert all(events(app, task)[-1] == "failed" for task in theirs)
    refused = visitor.post_json("/tasks/bulk", action="redrive", which="matching", queue="theirs")
    assert (refused.status_code, refused.json()["code"]) == (403, "queue_not_allowed")


def test_a_limited_key_leaves_steps_of_workflows_with_other_queues_unchanged(site: Site, app: dibs.Dibs) -> None:
    steps = [
        dibs.NewStep(name="a", task=dibs.NewTask("resize", queue="mine")),
        dibs.NewStep(name="b", task=dibs.NewTask("resize", queue="theirs"), after=["a"]),
    ]
    workflow = app.start_workflow(dibs.NewWorkflow(name="order", steps=steps))
    step = app.steps(workflow.id)[0].task_id
    app.fail(app.claim_by_id(step, "w-1"), "broken", permanent=True)
    finalize_due(app)  # it has failed, and may continue
    assert do_all(site.visitor("admin", queues=["mine"]), action="redrive")[0] == 0
    assert app.get(step).state == "failed"  # type: ignore[union-attr]
    assert do_all(site.visitor("admin"), action="redrive")[0] == 1
    assert app.get(step).state == "pending"  # type: ignore[union-attr]


@pytest.mark.parametrize("which", ["picked", "matching"])
@pytest.mark.parametrize(
    ("action", "moved"),
    [
        ("retry", {"failed", "cancelled", "scheduled"}),
        ("redrive", {"failed"}),
        ("cancel", {"pending", "scheduled", "claimed"}),
    ],
)
def test_a_bulk_action_leaves_out_tasks_in_other_states(
    site: Site, app: dibs.Dibs, action: str, moved: set[str], which: str
) -> None:
    names = ("scheduled", "claimed", "completed", "failed", "cancelled", "pending")
    tasks = {name: task_in(app, name) for name in names}
    before = {name: len(app.history(task.id)) for name, task in tasks.items()}
    ids = {"ids": ",".join(str(task.id) for task in tasks.values())} if which == "picked" else {}
    answer = site.visitor("admin").post_json("/tasks/bulk", action=action, which=which, **ids)
    assert answer.json()["moved"] == len(moved)
    assert {name for name, task in tasks.items() if len(app.history(task.id)) > before[name]} == moved
    by = app.history(tasks[min(moved)].id)[-1].by
    assert (by or "").endswith("/dashboard")


def test_redriving_needs_the_admin_scope_as_over_the_api(site: Site, app: dibs.Dibs) -> None:
    dead(app)
    visitor = site.visitor("read", "enqueue")
    for fields in ({"which": "matching"}, {"ids": "1"}):
        refused = visitor.post_json("/tasks/bulk", action="redrive", **fields)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "This needs a key with the scope admin" in text_of(visitor.post("/tasks/bulk", action="redrive"))
    assert states(app) == {"failed": 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "delete"},
        {"action": "retry", "ids": "1,x"},
        {"action": "retry", "ids": "9" * 19},
        {"action": "retry", "ids": ",".join(map(str, range(101)))},
        {"action": "retry", "which": "all"},
        {"action": "retry", "to": "https://evil.example"},
        {"action": "retry", "which": "matching", "state": "x"},
        {"action": "retry", "which": "matching", "since": "x"},
        {"ids": "1"},
    ],
)
def test_an_invalid_bulk_action_is_refused_and_changes_nothing(
    site: Site, app: dibs.Dibs, fields: dict[str, str]
) -> None:
    dead(app)
    assert site.visitor("admin").post_json("/tasks/bulk", **fields).status_code == 400
    assert states(app) == {"failed": 1}


def test_a_bulk_action_without_scripts_works_for_some_seconds_and_reports_that_more_tasks_may_match(
    site: Site, app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE_SECONDS", 0.0)
    dead(app, 60)
    visitor = site.visitor("admin")
    form = {"action": "redrive", "which": "matching", "sure": "yes"}
    assert "Retried 50 tasks. More tasks may match" in text_of(visitor.post("/tasks/bulk", **form))
    assert "Retried 10 tasks." in text_of(visitor.post("/tasks/bulk", **form))
