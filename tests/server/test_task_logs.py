"""Log lines over HTTP: written in batches by workers in any language, read page by page, waited for."""

from __future__ import annotations

import threading
import time
from typing import Any

import dibs
from tests.server.conftest import Served

AT = "2025-11-12T10:30:00Z"


def line(task: dibs.Task, number: int, **values: Any) -> dict[str, Any]:
    about = {"task_id": task.id, "token": 1, "attempt": 1, "number": number, "at": AT}
    return {**about, "message": f"line {number}", **values}


def claimed(app: dibs.Dibs, **options: Any) -> dibs.Task:
    task = app.enqueue("resize", **options)
    app.claim_by_id(task.id, "worker-1")
    return task


def test_lines_are_written_once_and_read_page_by_page(keyed: Served, app: dibs.Dibs) -> None:
    task = claimed(app)
    http = keyed.client("work", "read")
    body = {"lines": [line(task, number) for number in range(1, 6)]}
    assert http.post("/api/tasks/logs", json=body).json() == {"success": True, "count": 5}
    assert http.post("/api/tasks/logs", json=body).json() == {"success": True, "count": 0}
    first = http.get(f"/api/tasks/{task.id}/logs?limit=3").json()
    rest = http.get(f"/api/tasks/{task.id}/logs", params={"after": first["logs"][-1]["id"]}).json()
    assert [each["message"] for each in [*first["logs"], *rest["logs"]]] == [f"line {n}" for n in range(1, 6)]
    assert (first["logs"][0]["level"], first["logs"][0]["at"], rest["ended"]) == (
        "info",
        "2025-11-12T10:30:00.000000Z",
        False,
    )


def test_a_key_writes_and_reads_lines_of_tasks_in_its_queues_only(keyed: Served, app: dibs.Dibs) -> None:
    own, foreign = claimed(app, queue="mail"), claimed(app, queue="video")
    http = keyed.client("work", "read", queues=["mail"])
    body = {"lines": [line(foreign, 1), line(own, 1), line(foreign, 2)]}
    assert http.post("/api/tasks/logs", json=body).json()["count"] == 1
    assert http.get(f"/api/tasks/{foreign.id}/logs").status_code == 404
    assert http.get(f"/api/tasks/{foreign.id}/logs?wait_seconds=5").status_code == 404
    assert len(http.get(f"/api/tasks/{own.id}/logs").json()["logs"]) == 1
    assert app.logs(foreign.id) == []
    http = keyed.client("enqueue")
    assert http.post("/api/tasks/logs", json=body).status_code == 403
    assert http.get(f"/api/tasks/{own.id}/logs").status_code == 403


def test_a_reader_waits_for_the_next_line_or_the_end_of_the_task(keyed: Served, app: dibs.Dibs) -> None:
    task = claimed(app)
    claim = dibs.ClaimRef(task.id, 1, "worker-1")
    http = keyed.client("work", "read")

    def later() -> None:
        http.post("/api/tasks/logs", json={"lines": [line(task, 1)]})

    writer = threading.Timer(0.3, later)
    writer.start()
    began = time.monotonic()
    answer = http.get(f"/api/tasks/{task.id}/logs?wait_seconds=30").json()
    assert [each["message"] for each in answer["logs"]] == ["line 1"]
    writer.join()
    assert http.get(f"/api/tasks/{task.id}/logs?after=1-1&wait_seconds=0.1").json() == {"logs": [], "ended": False}
    app.complete(claim)
    assert http.get(f"/api/tasks/{task.id}/logs?after=1-1&wait_seconds=30").json() == {"logs": [], "ended": True}
    assert time.monotonic() - began < 20


def test_wrong_lines_and_queries_are_refused(keyed: Served, app: dibs.Dibs) -> None:
    task = claimed(app)
    wrong: list[dict[str, Any]] = [
        {"number": 0},
        {"number": 100_001},
        {"token": 0},
        {"level": "loud"},
        {"at": "2025-11-12T10:30:00"},
        {"message": "x" * 9000},
        {"logger": "x" * 300},
        {"other": 1},
    ]
    http = keyed.client("work", "read")
    for values in wrong:
        answer = http.post("/api/tasks/logs", json={"lines": [{**line(task, 1), **values}]})
        assert answer.status_code == 400, values
    for lines in ([], [line(task, 1)] * 1001):
        assert http.post("/api/tasks/logs", json={"lines": lines}).status_code == 400
    for query in (
        "after=1",
        "after=x-1",
        "limit=0",
        "limit=501",
        "level=loud",
        "attempt=0",
        "wait_seconds=61",
        "a=1",
    ):
        assert http.get(f"/api/tasks/{task.id}/logs?{query}").status_code == 400, query
    assert http.get("/api/tasks/404/logs").status_code == 404
    assert http.post("/api/tasks/logs", json={"lines": [line(task, 1, message="a\x00b")]}).status_code == 200
    assert [each.message for each in app.logs(task.id)] == ["a␀b"]
