"""The API takes the trace context of a task from the body or from the header of the request."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import dibs

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00"


def create(http: httpx.Client, header: str | None = None, **body: Any) -> Any:
    """The task that the API answers with."""
    headers = {} if header is None else {"traceparent": header}
    return (
        http.post("/api/tasks", json={"task_type": "resize", **body}, headers=headers).raise_for_status().json()["task"]
    )


def test_the_traceparent_in_the_body_precedes_that_in_the_header(http: httpx.Client) -> None:
    assert create(http, traceparent=TRACE)["traceparent"] == TRACE
    assert create(http, header=TRACE)["traceparent"] == TRACE
    assert create(http, header=OTHER, traceparent=TRACE)["traceparent"] == TRACE
    assert "traceparent" not in create(http)


def test_a_worker_is_given_the_trace_with_the_task(http: httpx.Client) -> None:
    create(http, traceparent=TRACE)
    claim = {"worker_id": "w"}
    claimed = http.post("/api/tasks/claim", json=claim).json()["task"]
    assert claimed["traceparent"] == TRACE
    create(http)
    outcome = {"task_id": claimed["id"], "token": 1, "outcome": "completed"}
    exchanged = http.post("/api/tasks/exchange", json={"worker_id": "w", "outcomes": [outcome], "claim": {}}).json()
    assert [task.get("traceparent") for task in exchanged["tasks"]] == [None]


def test_tasks_of_a_batch_have_their_own_traceparent_or_that_of_the_header(http: httpx.Client) -> None:
    tasks = [{"task_type": "a", "traceparent": TRACE}, {"task_type": "b"}]
    answer = http.post("/api/tasks/batch", json={"tasks": tasks}, headers={"traceparent": OTHER}).json()
    assert [task["traceparent"] for task in answer["tasks"]] == [TRACE, OTHER]


def test_the_steps_of_a_workflow_have_their_own_traceparent_or_that_of_the_header(
    http: httpx.Client, app: dibs.Dibs
) -> None:
    inner = {"name": "inner", "steps": [{"task_type": "b"}]}
    graph = {
        "name": "outer",
        "steps": [{"task_type": "a", "traceparent": TRACE}, {"workflow": inner}],
        "finalizer": {"task_type": "end"},
    }
    answer = http.post("/api/workflows", json=graph, headers={"traceparent": OTHER})
    assert answer.status_code == 201
    more = {"steps": [{"name": "c", "task_type": "c"}]}
    workflow_id = answer.json()["workflow"]["id"]
    added = http.post(f"/api/workflows/{workflow_id}/steps", json=more, headers={"traceparent": OTHER})
    assert added.status_code == 200
    traces = {task.type: task.trace for task in app.list_tasks()}
    assert {name: traces[name] for name in ("a", "b", "c", "end")} == {"a": TRACE, "b": OTHER, "c": OTHER, "end": OTHER}


@pytest.mark.parametrize("header", ["", "nonsense", TRACE.upper(), f"01{TRACE[2:]}", f"{TRACE}-more", "00-" + "0" * 60])
def test_a_malformed_traceparent_in_the_header_is_ignored(http: httpx.Client, header: str) -> None:
    assert "traceparent" not in create(http, header=header)


@pytest.mark.parametrize("wrong", ["", "nonsense", TRACE.upper(), f"01{TRACE[2:]}", f"{TRACE}\n", 7])
def test_a_malformed_traceparent_in_the_body_is_refused(http: httpx.Client, wrong: Any) -> None:
    answer = http.post("/api/tasks", json={"task_type": "resize", "traceparent": wrong})
    assert answer.status_code == 400
    assert "traceparent" in answer.json()["error"]


def test_a_step_that_is_a_workflow_has_no_trace_of_its_own(http: httpx.Client) -> None:
    step = {"workflow": {"name": "inner", "steps": []}, "traceparent": TRACE}
    assert http.post("/api/workflows", json={"name": "outer", "steps": [step]}).status_code == 400
