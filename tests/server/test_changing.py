"""PATCH /api/tasks/{id} and POST /api/tasks/change: what they answer, refuse, and hide from a limited key."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import dibs
from tests.helpers.tasks import task_in
from tests.server.conftest import Served


def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: httpx.Response, status: int, code: str) -> Any:
    said = answer.json()
    assert (answer.status_code, said["code"], said["success"]) == (status, code, False), said
    return said


@pytest.fixture
def limited(keyed: Served) -> httpx.Client:
    """A client whose key may do everything, to one queue."""
    return keyed.client("admin", "enqueue", "read", queues=["mine"])


def test_a_patch_changes_a_waiting_task_and_answers_with_it(http: httpx.Client, app: dibs.Dibs) -> None:
    task = app.enqueue("resize", {"width": 1})
    body = {"priority": 9, "queue": "mail", "params": {"width": 2}, "tags": ["x"], "run_at": "2099-01-01T00:00:00Z"}
    said = ok(http.patch(f"/api/tasks/{task.id}", json=body))
    assert said["success"] is True
    got = said["task"]
    assert (got["priority"], got["queue"], got["params"], got["tags"]) == (9, "mail", {"width": 2}, ["x"])
    assert (got["status"], got["run_at"]) == ("scheduled", "2099-01-01T00:00:00.000000Z")
    assert ok(http.patch(f"/api/tasks/{task.id}", json={"delay_seconds": 0, "tags": None}))["task"]["tags"] == ["x"]
    assert app.get(task.id).state == "pending"  # type: ignore[union-attr]


def test_a_claim_that_came_first_is_a_409_with_its_own_code(http: httpx.Client, app: dibs.Dibs) -> None:
    claimed, done = task_in(app, "claimed"), task_in(app, "completed")
    said = refused(http.patch(f"/api/tasks/{claimed.id}", json={"priority": 1}), 409, "already_started")
    assert (said["task_id"], said["status"]) == (claimed.id, "claimed")
    refused(http.patch(f"/api/tasks/{done.id}", json={"priority": 1}), 409, "wrong_state")
    refused(http.patch("/api/tasks/404", json={"priority": 1}), 404, "task_not_found")


def test_malformed_changes_are_400(http: httpx.Client, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    for body in (
        {},
        {"priority": None},
        {"state": "pending"},
        {"token": 5},
        {"attempts": 0},
        {"task_type": "other"},
        {"priority": "high"},
        {"priority": 2**40},
        {"delay_seconds": -1},
        {"delay_seconds": 1, "run_at": "2099-01-01T00:00:00Z"},
        {"run_at": "tomorrow"},
        {"queue": ""},
        {"params": [1]},
        {"tags": "x"},
        {"tags": ["a,b"]},
        [],
    ):
        answer = http.patch(f"/api/tasks/{task.id}", json=body)
        assert (answer.status_code, answer.json()["success"]) == (400, False), body
    assert app.get(task.id) == task


def test_params_that_violate_the_schema_are_400_and_named(http: httpx.Client, app: dibs.Dibs) -> None:
    app.register_type("resize", {"properties": {"width": {"type": "integer"}}})
    task = app.enqueue("resize", {"width": 1})
    said = refused(http.patch(f"/api/tasks/{task.id}", json={"params": {"width": "x"}}), 400, "schema_violation")
    assert "params/width" in said["error"]


def test_a_limited_key_neither_changes_foreign_tasks_nor_moves_its_own_to_foreign_queues(
    limited: httpx.Client, app: dibs.Dibs
) -> None:
    foreign, own = app.enqueue("resize", queue="theirs"), app.enqueue("resize", queue="mine")
    refused(limited.patch(f"/api/tasks/{foreign.id}", json={"priority": 1}), 404, "task_not_found")
    refused(limited.patch(f"/api/tasks/{own.id}", json={"queue": "theirs"}), 403, "queue_not_allowed")
    everything = {"status": "pending", "changes": {"queue": "theirs"}}
    refused(limited.post("/api/tasks/change", json=everything), 403, "queue_not_allowed")
    assert ok(limited.post("/api/tasks/change", json={"status": "pending", "changes": {"priority": 2}}))["count"] == 1
    assert (app.get(foreign.id), app.get(own.id).priority) == (foreign, 2)  # type: ignore[union-attr]


def test_a_change_needs_the_scope_enqueue(keyed: Served, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    refused(keyed.client("read").patch(f"/api/tasks/{task.id}", json={"priority": 1}), 403, "forbidden")
    refused(keyed.client("work").patch(f"/api/tasks/{task.id}", json={"priority": 1}), 403, "forbidden")
    key = keyed.key("enqueue")
    ok(keyed.client_with(**{"X-API-Key": key.key}).patch(f"/api/tasks/{task.id}", json={"priority": 1}))
    entry = app.history(task.id)[-1]
    assert (entry.event, entry.by) == ("changed", key.about.id)


def test_many_are_changed_page_by_page_and_a_filter_is_required(http: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue_many([dibs.NewTask("resize") for _ in range(3)])
    said = ok(http.post("/api/tasks/change", json={"task_type": "resize", "changes": {"tags": ["x"]}}))
    assert said == {"success": True, "count": 3, "next_cursor": None}
    for body in ({"changes": {"priority": 1}}, {"task_type": "resize"}, {"task_type": "resize", "changes": {}}):
        assert http.post("/api/tasks/change", json=body).status_code == 400
    params = {"task_type": "resize", "changes": {"params": {}}}
    assert http.post("/api/tasks/change", json=params).status_code == 400
