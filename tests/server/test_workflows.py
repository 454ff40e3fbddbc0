"""Workflows over HTTP: graphs are stored whole or refused, steps wait for their parents, one processor finalizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import dibs
from dibs.observe import metrics
from tests.helpers.clients import Clock
from tests.helpers.waiting import until
from tests.server.conftest import Served

WORKER = "worker-1"
OURS = {"task_type": "t", "queue": "ours"}
DIAMOND = [
    {"task_type": "fetch"},
    {"task_type": "render", "after": ["fetch"]},
    {"task_type": "render", "after": ["fetch"]},
    {"task_type": "merge", "after": ["render", "render-2"]},
]


def start(http: httpx.Client, *steps: dict[str, Any], **about: Any) -> dict[str, Any]:
    """A workflow that was stored."""
    answer = http.post("/api/workflows", json={"name": "order", "steps": list(steps), **about})
    assert answer.status_code == 201, answer.text
    workflow: dict[str, Any] = answer.json()["workflow"]
    return workflow


def claim(http: httpx.Client) -> dict[str, Any]:
    """The next task."""
    answer = http.post("/api/tasks/claim", json={"worker_id": WORKER})
    assert answer.status_code == 200, answer.text
    task: dict[str, Any] = answer.json()["task"]
    return task


def complete(http: httpx.Client, task: dict[str, Any], **said: Any) -> httpx.Response:
    """The task is done."""
    fence = {"worker_id": WORKER, "token": task["token"]}
    return http.post(f"/api/tasks/{task['id']}/complete", json={**fence, **said})


def run_all(http: httpx.Client, count: int) -> None:
    """Claim and complete this number of tasks, one after the other."""
    for _ in range(count):
        assert complete(http, claim(http)).status_code == 200


def due(http: httpx.Client) -> dict[str, Any]:
    """A workflow that waits for its finalization."""
    workflow = start(http, {"task_type": "fetch"})
    run_all(http, 1)
    return workflow


def post_finalization(
    http: httpx.Client, workflow_id: int, verb: str = "claim", by: str = "p1", **more: Any
) -> httpx.Response:
    """Claim, renew or release the finalization of a workflow."""
    path = f"/api/workflows/{workflow_id}/finalization/{verb}"
    return http.post(path, json={"processor_id": by, **more})


def finalize(http: httpx.Client, workflow_id: int, token: int, by: str = "p1") -> httpx.Response:
    """Act as the holder of a finalization."""
    return http.post(f"/api/workflows/{workflow_id}/finalize", json={"processor_id": by, "token": token})


def tasks_of(http: httpx.Client, workflow: dict[str, Any]) -> dict[str, int]:
    """The tasks of a workflow's steps by their names."""
    steps = http.get(f"/api/workflows/{workflow['id']}/steps").json()["steps"]
    return {step["name"]: step["task_id"] for step in steps}


def inside(http: httpx.Client, workflow: dict[str, Any]) -> int:
    """The workflow that is its step "inner"."""
    steps = http.get(f"/api/workflows/{workflow['id']}/steps").json()["steps"]
    return next(int(step["workflow_id"]) for step in steps if step["name"] == "inner")


def step_names(http: httpx.Client, workflow_id: int) -> list[str]:
    return [step["name"] for step in http.get(f"/api/workflows/{workflow_id}/steps").json()["steps"]]


def status(http: httpx.Client, workflow_id: int) -> str:
    return str(http.get(f"/api/workflows/{workflow_id}").json()["workflow"]["status"])


# Starting


def test_a_graph_is_stored_and_its_steps_wait_for_their_parents(http: httpx.Client) -> None:
    workflow = start(http, *DIAMOND)

    assert (workflow["status"], workflow["steps"], workflow["completion_percentage"]) == ("running", 4, 0.0)
    steps = http.get(f"/api/workflows/{workflow['id']}/steps").json()["steps"]
    assert [step["name"] for step in steps] == ["fetch", "render", "render-2", "merge"]
    assert [step["status"] for step in steps] == ["pending", "blocked", "blocked", "blocked"]
    assert steps[3]["after"] == [steps[1]["task_id"], steps[2]["task_id"]]
    assert claim(http)["workflow_id"] == workflow["id"]


def test_generated_step_names_skip_given_names(http: httpx.Client) -> None:
    workflow = start(http, {"task_type": "t"}, {"task_type": "t"}, {"task_type": "t", "name": "t-2"})

    assert step_names(http, workflow["id"]) == ["t", "t-3", "t-2"]


def test_the_same_key_with_the_same_graph_returns_the_existing_workflow(http: httpx.Client) -> None:
    workflow = start(http, *DIAMOND, idempotency_key="order-7")
    again = http.post("/api/workflows", json={"name": "order", "steps": DIAMOND, "idempotency_key": "order-7"})

    assert (again.status_code, again.json()["deduplicated"]) == (200, True)
    assert again.json()["workflow"]["id"] == workflow["id"]


def test_the_same_key_with_another_graph_is_a_conflict(http: httpx.Client) -> None:
    start(http, *DIAMOND, idempotency_key="order-7")
    other = http.post("/api/workflows", json={"name": "order", "steps": DIAMOND[:1], "idempotency_key": "order-7"})

    assert (other.status_code, other.json()["code"]) == (409, "key_conflict")
    assert len(http.get("/api/workflows").json()["workflows"]) == 1


@pytest.mark.parametrize(
    "steps",
    [
        [{"task_type": "t", "after": ["nobody"]}],
        [{"task_type": "t", "name": "a", "after": ["b"]}, {"task_type": "t", "name": "b", "after": ["a"]}],
        [{"task_type": "t", "name": "a", "after": ["a"]}],
        [{"task_type": "t", "name": "a"}, {"task_type": "t", "name": "a"}],
        [{"task_type": "t", "name": "a"}, {"task_type": "t", "after": ["a", "a"]}],
        [{"workflow": {"name": "inner", "steps": [{"task_type": "t", "after": ["nobody"]}]}}],
    ],
    ids=["unknown parent", "cycle", "itself", "name twice", "parent twice", "within another"],
)
def test_a_graph_that_could_not_run_to_its_end_is_refused(steps: list[Any], http: httpx.Client, app: dibs.Dibs) -> None:
    answer = http.post("/api/workflows", json={"name": "order", "steps": steps})

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_graph")
    assert app.list_tasks() == []


@pytest.mark.parametrize(
    "body",
    [
        {"name": "order", "steps": [{"task_type": "t"}], "key": "order-7"},
        {"name": "order", "steps": [{"task_type": "t", "idempotency_key": "k"}]},
        {"name": "order", "steps": [{"task_type": "t"}], "finalizer": {"task_type": "t", "after": []}},
        {"name": "order", "steps": [{"task_type": "t"}], "deadline_seconds": 1, "deadline_at": "2030-01-01T00:00:00Z"},
        {"name": "order", "steps": [{}]},
        {"name": "order", "steps": [{"task_type": "t", "workflow": {"name": "inner", "steps": []}}]},
        {"name": "order", "steps": [{"workflow": {"name": "inner", "steps": [], "idempotency_key": "k"}}]},
        {"name": "order", "steps": [{"workflow": {"name": "inner", "steps": []}, "queue": "q"}]},
    ],
    ids=[
        "unknown field",
        "key of a step",
        "after of a finalizer",
        "two deadlines",
        "neither",
        "both",
        "inner key",
        "q",
    ],
)
def test_a_graph_with_invalid_fields_is_refused(body: dict[str, Any], http: httpx.Client, app: dibs.Dibs) -> None:
    assert http.post("/api/workflows", json=body).status_code == 400
    assert app.list_tasks() == []


def test_a_workflow_in_a_workflow_is_one_of_its_steps(http: httpx.Client) -> None:
    inner = {"name": "pages", "steps": [{"task_type": "render"}]}
    workflow = start(http, {"task_type": "fetch"}, {"workflow": inner, "after": ["fetch"]})

    [fetch, pages] = http.get(f"/api/workflows/{workflow['id']}/steps").json()["steps"]
    assert (pages["name"], pages["kind"], pages["after"]) == ("pages", "workflow", [fetch["task_id"]])
    sub = http.get(f"/api/workflows/{pages['workflow_id']}").json()["workflow"]
    assert (sub["name"], sub["step_of"], sub["root_id"]) == ("pages", pages["task_id"], workflow["id"])
    assert [each["id"] for each in http.get("/api/workflows").json()["workflows"]] == [workflow["id"]]


def test_workflows_that_are_nested_too_deeply_are_refused(http: httpx.Client, app: dibs.Dibs) -> None:
    body: dict[str, Any] = {"name": "innermost", "steps": [{"task_type": "t"}]}
    for _ in range(64):
        body = {"name": "around", "steps": [{"workflow": body}]}

    assert http.post("/api/workflows", json=body).json()["code"] == "invalid_graph"
    assert app.list_tasks() == []


# Running


def test_a_step_reads_the_results_of_its_parents(http: httpx.Client) -> None:
    start(http, {"task_type": "fetch"}, {"task_type": "merge", "after": ["fetch"]})
    fetch = claim(http)
    complete(http, fetch, result={"rows": 3})
    merge = claim(http)

    [parent] = http.get(f"/api/tasks/{merge['id']}/results").json()["results"]
    assert (parent["task_id"], parent["name"], parent["result"]) == (fetch["id"], "fetch", {"rows": 3})
    assert http.get(f"/api/tasks/{fetch['id']}/results").json() == {"results": []}


def test_a_step_adds_steps_when_it_completes_and_its_children_wait_for_these(http: httpx.Client) -> None:
    workflow = start(http, {"task_type": "fetch"}, {"task_type": "merge", "after": ["fetch"]})
    done = complete(http, claim(http), steps=[{"task_type": "render"}, {"task_type": "render", "after": ["render"]}])

    assert done.status_code == 200
    assert sorted(step_names(http, workflow["id"])) == ["fetch", "fetch/render", "fetch/render-2", "merge"]
    order = []
    for _ in range(3):
        task = claim(http)
        order.append(task["task_type"])
        complete(http, task)
    assert order == ["render", "render", "merge"]


def test_a_step_adds_steps_of_its_own_type_to_any_depth(http: httpx.Client) -> None:
    workflow = start(http, {"task_type": "crawl"}, {"task_type": "merge", "after": ["crawl"]})
    for _ in range(3):
        assert complete(http, claim(http), steps=[{"task_type": "crawl"}]).status_code == 200
    bodies = [{"task_type": "crawl", "after": ["crawl"]}, {"task_type": "crawl"}]
    task = claim(http)
    outcome = {"task_id": task["id"], "token": task["token"], "outcome": "completed", "steps": bodies}
    answers = http.post("/api/tasks/finish", json={"worker_id": WORKER, "outcomes": [outcome]}).json()["answers"]
    assert [each["status"] for each in answers] == ["completed"]

    path = "/".join(["crawl"] * 4)
    names = ["crawl", "merge", "crawl/crawl", "crawl/crawl/crawl", path, f"{path}/crawl", f"{path}/crawl-2"]
    assert step_names(http, workflow["id"]) == names
    for expected in ("crawl", "crawl", "merge"):
        task = claim(http)
        assert task["task_type"] == expected
        complete(http, task)


def test_an_outcome_with_bad_steps_in_a_batch_is_refused_alone(http: httpx.Client) -> None:
    start(http, {"task_type": "a"}, {"task_type": "b"})
    first, second = claim(http), claim(http)
    bad = [{"workflow": {"name": "inner", "steps": [{"task_type": "t", "after": ["nobody"]}]}}]
    body = {
        "worker_id": WORKER,
        "outcomes": [
            {"task_id": first["id"], "token": first["token"], "outcome": "completed", "steps": bad},
            {"task_id": second["id"], "token": second["token"], "outcome": "completed"},
        ],
    }

    refused, done = http.post("/api/tasks/finish", json=body).json()["answers"]
    assert (refused["code"], done["status"]) == ("invalid_graph", "completed")
    assert http.get(f"/api/tasks/{first['id']}").json()["task"]["status"] == "claimed"


def test_steps_added_by_a_request_get_unused_names(http: httpx.Client) -> None:
    workflow = start(http, {"task_type": "render"})
    path = f"/api/workflows/{workflow['id']}/steps"

    added = http.post(path, json={"steps": [{"task_type": "render", "after": ["render"]}, {"task_type": "merge"}]})
    assert (added.status_code, added.json()["workflow"]["steps"]) == (200, 3)
    assert step_names(http, workflow["id"]) == ["render", "render-2", "merge"]
    again = http.post(path, json={"steps": [{"task_type": "t", "name": "merge"}]})
    assert (again.status_code, again.json()["code"]) == (400, "invalid_graph")


def test_concurrent_requests_that_add_steps_without_names_get_different_names(http: httpx.Client) -> None:
    workflow = start(http, {"task_type": "render"})
    path = f"/api/workflows/{workflow['id']}/steps"
    with ThreadPoolExecutor(8) as callers:
        added = [callers.submit(http.post, path, json={"steps": [{"task_type": "render"}]}) for _ in range(40)]

    assert {each.result().status_code for each in added} == {200}
    assert sorted(step_names(http, workflow["id"])) == sorted(["render", *(f"render-{n}" for n in range(2, 42))])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/tasks", {"task_type": "dibs.workflow"}),
        ("/api/tasks/batch", {"tasks": [{"task_type": "dibs.workflow"}]}),
        ("/api/workflows", {"name": "order", "steps": [{"task_type": "dibs.workflow"}]}),
        ("/api/workflows", {"name": "order", "steps": [], "finalizer": {"task_type": "dibs.workflow"}}),
        ("/api/schedules", {"name": "nightly", "cron": "0 0 * * *", "task_type": "dibs.workflow"}),
    ],
)
def test_a_task_with_the_reserved_type_of_sub_workflows_is_refused(
    path: str, body: dict[str, Any], http: httpx.Client, app: dibs.Dibs
) -> None:
    answer = http.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_value")
    assert app.list_tasks() == []


def test_the_worker_id_of_sub_workflows_is_refused_everywhere(http: httpx.Client) -> None:
    workflow = start(http, {"name": "pages", "workflow": {"name": "pages", "steps": [{"task_type": "render"}]}})
    [gate] = http.get(f"/api/workflows/{workflow['id']}/steps").json()["steps"]
    who, place = {"worker_id": gate["worker_id"]}, f"/api/tasks/{gate['task_id']}"
    claims = {"claims": [{"task_id": gate["task_id"], "token": 1}]}

    said = [http.post(f"{place}/{verb}", json={**who, "token": 1}) for verb in ("complete", "release", "renew")]
    said += [http.post(f"{place}/fail", json={**who, "token": 1, "error_message": "no"})]
    said += [http.post(f"{place}/progress", json={**who, "token": 1, "progress": 5})]
    said += [http.post(f"{place}/checkpoints", json={**who, "token": 1, "name": "n", "value": 1})]
    said += [http.post(f"/api/tasks/{verb}", json={**who, **claims}) for verb in ("renew", "start")]
    outcomes = [{"task_id": gate["task_id"], "token": 1, "outcome": "completed"}]
    said += [http.post("/api/tasks/finish", json={**who, "outcomes": outcomes})]
    said += [http.post("/api/tasks/exchange", json={**who, "outcomes": outcomes, "claim": {}})]
    said += [http.post("/api/tasks/claim", json=who)]
    assert {(each.status_code, each.json()["code"]) for each in said} == {(403, "forbidden")}
    assert http.get(place).json()["task"]["status"] == "claimed"


def test_a_cancelled_workflow_is_retried_from_where_it_stopped(http: httpx.Client) -> None:
    workflow = start(http, {"task_type": "fetch"}, {"task_type": "merge", "after": ["fetch"]})
    place = f"/api/workflows/{workflow['id']}"
    assert http.post(f"{place}/retry").json()["code"] == "workflow_state"

    assert http.post(f"{place}/cancel").json()["workflow"]["status"] == "cancelled"
    assert http.post(f"{place}/retry").json()["workflow"]["status"] == "running"
    assert claim(http)["task_type"] == "fetch"


def test_an_unknown_workflow_is_not_found_by_every_endpoint(http: httpx.Client) -> None:
    assert post_finalization(http, 99).status_code == 404  # which is recorded
    for path in ("", "/steps", "/context", "/attempts"):
        answer = http.get(f"/api/workflows/99{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "workflow_not_found")
    for path, body in (("cancel", {}), ("retry", {}), ("steps", {"steps": [{"name": "a", "task_type": "t"}]})):
        answer = http.post(f"/api/workflows/99/{path}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "workflow_not_found")


def test_workflows_are_listed_newest_first_page_by_page(http: httpx.Client) -> None:
    ids = [start(http, {"task_type": "t"}, name=name)["id"] for name in ("a", "b", "a")]

    page = http.get("/api/workflows?limit=2").json()
    assert ([each["id"] for each in page["workflows"]], page["next_cursor"]) == ([ids[2], ids[1]], ids[1])
    rest = http.get(f"/api/workflows?limit=2&cursor={page['next_cursor']}").json()
    assert ([each["id"] for each in rest["workflows"]], rest["next_cursor"]) == ([ids[0]], None)
    assert [each["id"] for each in http.get("/api/workflows?name=b").json()["workflows"]] == [ids[1]]
    assert http.get("/api/workflows?status=completed").json()["workflows"] == []


# Finalizing


def test_one_processor_gets_the_finalization_and_ends_the_workflow(http: httpx.Client) -> None:
    workflow = due(http)
    context = http.get(f"/api/workflows/{workflow['id']}/context").json()["context"]
    assert (context["execution_status"], context["recommended_action"]) == ("all_complete", "complete_workflow")
    assert http.get("/api/finalizations/due").json() == {"workflows": [workflow["id"]]}

    granted, refused = post_finalization(http, workflow["id"]), post_finalization(http, workflow["id"], by="p2")
    assert (granted.status_code, granted.json()["success"], granted.json()["reason"]) == (200, True, "claimed")
    assert (refused.status_code, refused.json()["reason"]) == (409, "already_claimed")
    assert (refused.json()["success"], refused.json()["already_claimed_by"]) == (False, "p1")
    done = finalize(http, workflow["id"], granted.json()["token"])
    assert (done.json()["status"], done.json()["action"]) == ("completed", "complete_workflow")
    assert status(http, workflow["id"]) == "completed"


def test_every_reply_to_a_finalization_claim_has_its_status(http: httpx.Client) -> None:
    ready, early = due(http), start(http, {"task_type": "fetch"})

    answers = [
        post_finalization(http, ready["id"]),
        post_finalization(http, ready["id"]),
        post_finalization(http, ready["id"], by="p2"),
        post_finalization(http, early["id"]),
        post_finalization(http, 99),
        post_finalization(http, 2**63),
    ]
    assert [(each.status_code, each.json()["reason"]) for each in answers] == [
        (200, "claimed"),
        (200, "extended"),
        (409, "already_claimed"),
        (409, "not_ready"),
        (404, "not_found"),
        (404, "not_found"),
    ]
    finalize(http, ready["id"], answers[0].json()["token"])
    over = post_finalization(http, ready["id"])
    assert (over.status_code, over.json()["reason"]) == (409, "already_complete")


def test_only_the_owner_renews_and_releases_a_finalization_claim(http: httpx.Client) -> None:
    workflow = due(http)
    token = post_finalization(http, workflow["id"]).json()["token"]

    assert post_finalization(http, workflow["id"], "renew", by="p2", token=token).status_code == 409
    renewed = post_finalization(http, workflow["id"], "renew", token=token, timeout_seconds=60)
    assert (renewed.status_code, renewed.json()["token"]) == (200, token)
    assert post_finalization(http, workflow["id"], "release", by="p2", token=token).json() == {
        "success": False,
        "released": False,
    }
    assert post_finalization(http, workflow["id"], by="p2").status_code == 409
    assert post_finalization(http, workflow["id"], "release", token=token).json() == {
        "success": True,
        "released": True,
    }
    nobody = post_finalization(http, workflow["id"], "renew", token=token)
    assert (nobody.status_code, nobody.json()["reason"]) == (409, "not_claimed")
    assert nobody.json()["message"] == "Nobody holds the finalization of this workflow"
    assert post_finalization(http, workflow["id"], by="p2").status_code == 200


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_renewing_and_releasing_a_finalization_need_the_token(http: httpx.Client, verb: str) -> None:
    workflow = due(http)
    post_finalization(http, workflow["id"])

    for more in ({}, {"token": None}, {"token": "1"}, {"token": -1}, {"token": 2**63}):
        refused = post_finalization(http, workflow["id"], verb, **more)
        assert (refused.status_code, "token" in refused.json()["error"].lower()) == (400, True)
    stale = post_finalization(http, workflow["id"], verb, token=0)
    assert stale.json()["success"] is False
    assert post_finalization(http, workflow["id"], verb, token=1).json()["success"] is True


def test_a_zombie_is_refused_with_its_old_token(lodge: Callable[..., Served], clock: Clock) -> None:
    http = lodge(clock=clock).client()
    workflow = due(http)
    old = post_finalization(http, workflow["id"], timeout_seconds=30).json()["token"]
    clock.advance(31)
    new = post_finalization(http, workflow["id"], by="p2").json()["token"]

    refused = finalize(http, workflow["id"], old)
    assert (refused.status_code, refused.json()["code"]) == (409, "finalization_lost")
    assert (refused.json()["workflow_id"], refused.json()["token"]) == (workflow["id"], old)
    assert status(http, workflow["id"]) == "running"
    assert finalize(http, workflow["id"], new, by="p2").json()["status"] == "completed"


def test_every_finalization_claim_is_recorded_with_its_reason(http: httpx.Client) -> None:
    workflow = due(http)
    post_finalization(http, workflow["id"])
    post_finalization(http, workflow["id"], by="p2")

    attempts = http.get(f"/api/workflows/{workflow['id']}/attempts").json()["attempts"]
    told = [(each["processor_id"], each["claimed"], each["reason"], each["already_claimed_by"]) for each in attempts]
    assert [each[:3] for each in told] == [("p1", True, "claimed"), ("p2", False, "already_claimed")]
    assert told[1][3] == "p1"


def test_a_server_finalizes_a_workflow_at_once_after_its_last_outcome(serve: Callable[..., Served]) -> None:
    http = serve(upkeep=True, upkeep_every=3600).client()
    alone = start(http, {"task_type": "fetch"})
    run_all(http, 1)
    until(lambda: status(http, alone["id"]) == "completed")

    together = start(http, {"task_type": "fetch"}, finalizer={"task_type": "report"})
    task = claim(http)
    told = {"task_id": task["id"], "token": task["token"], "outcome": "completed"}
    exchanged = http.post(
        "/api/tasks/exchange", json={"worker_id": WORKER, "outcomes": [told], "claim": {"task_types": ["nothing"]}}
    )
    assert exchanged.json()["answers"][0]["status"] == "completed"
    until(lambda: status(http, together["id"]) == "finalizing")
    complete(http, claim(http))
    assert status(http, together["id"]) == "completed"
    [attempt] = http.get(f"/api/workflows/{alone['id']}/attempts").json()["attempts"]
    assert re.fullmatch(r"server-\d+-[0-9a-f]+", attempt["processor_id"])


def test_a_server_finalizes_a_workflow_without_steps_at_once(serve: Callable[..., Served]) -> None:
    http = serve(upkeep=True, upkeep_every=3600).client()
    workflow = start(http)

    until(lambda: status(http, workflow["id"]) == "completed")


def test_a_server_with_upkeep_disabled_does_not_finalize(http: httpx.Client) -> None:
    workflow = due(http)

    assert http.get(f"/api/workflows/{workflow['id']}/attempts").json() == {"attempts": []}
    assert http.get("/api/finalizations/due").json() == {"workflows": [workflow["id"]]}


def test_a_request_for_workflow_upkeep_returns_the_count(lodge: Callable[..., Served], clock: Clock) -> None:
    http = lodge(clock=clock).client()
    workflow = start(http, {"task_type": "fetch"}, deadline_seconds=60)
    assert http.post("/api/upkeep/expire-workflows").json() == {"success": True, "count": 0}
    clock.advance(61)

    assert http.post("/api/upkeep/expire-workflows").json() == {"success": True, "count": 1}
    assert http.get(f"/api/workflows/{workflow['id']}").json()["workflow"]["stopping"] == "deadline"
    assert http.post("/api/upkeep/mend-workflows").json() == {"success": True, "count": 0}


# Checkpoints


def test_a_checkpoint_is_available_to_the_next_attempt(http: httpx.Client) -> None:
    http.post("/api/tasks", json={"task_type": "t"})
    task = claim(http)
    place = f"/api/tasks/{task['id']}/checkpoints"
    fence = {"worker_id": WORKER, "token": task["token"]}

    kept = http.post(place, json={**fence, "name": "downloaded", "value": {"size": 2.0}})
    assert kept.json() == {"success": True, "value": {"size": 2.0}}
    again = http.post(place, json={**fence, "name": "downloaded", "value": "other"})
    assert again.json() == {"success": True, "value": {"size": 2.0}}
    assert http.get(place).json() == {"checkpoints": {"downloaded": {"size": 2.0}}}


def test_a_stale_token_stores_no_checkpoint(http: httpx.Client) -> None:
    http.post("/api/tasks", json={"task_type": "t"})
    task = claim(http)
    http.post(f"/api/tasks/{task['id']}/release", json={"worker_id": WORKER, "token": task["token"]})
    claim(http)
    place = f"/api/tasks/{task['id']}/checkpoints"

    late = http.post(place, json={"worker_id": WORKER, "token": task["token"], "name": "a", "value": 1})
    assert (late.status_code, late.json()["code"]) == (409, "claim_lost")
    assert http.get(place).json() == {"checkpoints": {}}


# Keys that are limited to queues


@pytest.fixture
def limited(keyed: Served) -> httpx.Client:
    """A client that may see the queue "ours" alone."""
    return keyed.client("enqueue", "work", "read", queues=["ours"])


@pytest.fixture
def anyone(keyed: Served) -> httpx.Client:
    """A client that may see everything."""
    return keyed.client("admin")


def test_a_limited_key_starts_workflows_only_in_its_queues(limited: httpx.Client, app: dibs.Dibs) -> None:
    ours, theirs = {"task_type": "t", "queue": "ours"}, {"task_type": "t", "queue": "theirs"}
    for body in (
        {"steps": [ours, theirs]},
        {"steps": [ours], "finalizer": theirs},
        {"steps": [ours, {"workflow": {"name": "inner", "steps": [theirs]}}]},
    ):
        answer = limited.post("/api/workflows", json={"name": "order", **body})
        assert (answer.status_code, answer.json()["code"]) == (403, "queue_not_allowed")
    assert app.list_tasks() == []
    workflow = start(limited, ours)
    added = limited.post(f"/api/workflows/{workflow['id']}/steps", json={"steps": [theirs]})
    assert (added.status_code, added.json()["code"]) == (403, "queue_not_allowed")
    done = complete(limited, claim(limited), steps=[theirs])
    assert (done.status_code, done.json()["code"]) == (403, "queue_not_allowed")


def test_a_workflow_that_has_a_foreign_queue_does_not_exist_for_a_limited_key(
    limited: httpx.Client, anyone: httpx.Client
) -> None:
    mixed = start(anyone, {"task_type": "t", "queue": "ours"}, {"task_type": "t", "queue": "theirs"})
    run_all(limited, 1)
    place = f"/api/workflows/{mixed['id']}"

    asked = [limited.get(f"{place}{path}") for path in ("", "/steps", "/context", "/attempts")]
    asked += [limited.post(f"{place}/{verb}") for verb in ("cancel", "retry")]
    asked += [limited.post(f"{place}/steps", json={"steps": [{"task_type": "t", "queue": "ours"}]})]
    asked += [post_finalization(limited, mixed["id"], "release", token=1), finalize(limited, mixed["id"], 1)]
    assert {(answer.status_code, answer.json()["code"]) for answer in asked} == {(404, "workflow_not_found")}
    assert limited.get("/api/workflows").json()["workflows"] == []


def test_a_finalization_claim_of_a_foreign_workflow_is_answered_like_one_of_an_unknown_workflow(
    limited: httpx.Client, anyone: httpx.Client
) -> None:
    theirs = start(anyone, {"task_type": "t", "queue": "theirs"})

    for verb, more in (("claim", {}), ("renew", {"token": 1})):
        foreign, unknown = (
            post_finalization(limited, theirs["id"], verb, **more),
            post_finalization(anyone, 99, verb, **more),
        )
        assert foreign.status_code == unknown.status_code == 404
        assert {**foreign.json(), "workflow_id": 99} == unknown.json()
    assert anyone.get(f"/api/workflows/{theirs['id']}/attempts").json() == {"attempts": []}


def test_a_limited_key_runs_and_finalizes_workflows_of_its_queues(limited: httpx.Client) -> None:
    workflow = start(limited, {"task_type": "t", "queue": "ours"})
    run_all(limited, 1)
    token = post_finalization(limited, workflow["id"]).json()["token"]

    assert finalize(limited, workflow["id"], token).json()["status"] == "completed"
    assert limited.get("/api/workflows").json()["workflows"][0]["id"] == workflow["id"]
    assert limited.get(f"/api/workflows/{workflow['id']}/attempts").json()["attempts"][0]["claimed"]


def test_the_idempotency_key_of_a_foreign_workflow_is_not_in_use(limited: httpx.Client, anyone: httpx.Client) -> None:
    theirs = start(anyone, {"task_type": "t", "queue": "theirs"}, idempotency_key="order-7")
    mixed = start(anyone, {"task_type": "t", "queue": "theirs"}, OURS, idempotency_key="order-7")
    body = {"name": "order", "steps": [{"task_type": "t", "queue": "ours"}], "idempotency_key": "order-7"}

    answer = limited.post("/api/workflows", json=body)
    assert (answer.status_code, answer.json()["deduplicated"]) == (201, False)
    assert answer.json()["workflow"]["id"] not in (theirs["id"], mixed["id"])


def test_a_workflow_that_grew_into_a_foreign_queue_is_not_returned_for_its_idempotency_key(
    limited: httpx.Client, anyone: httpx.Client
) -> None:
    body = {"name": "order", "steps": [{"task_type": "t", "queue": "ours"}], "idempotency_key": "order-7"}
    workflow = limited.post("/api/workflows", json=body).json()["workflow"]
    secret = {"name": "secret", "task_type": "t", "queue": "theirs"}
    anyone.post(f"/api/workflows/{workflow['id']}/steps", json={"steps": [secret]})

    answer = limited.post("/api/workflows", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "key_conflict")
    assert "theirs" not in answer.text


def test_a_limited_key_cannot_add_a_step_with_a_foreign_parent(limited: httpx.Client, anyone: httpx.Client) -> None:
    secret = {"name": "secret", "task_type": "t", "queue": "theirs"}
    start(anyone, {"name": "open", "task_type": "t", "queue": "ours"}, secret, {"name": "last", **OURS})
    complete(limited, claim(limited))
    task = claim(limited)
    fence = {"task_id": task["id"], "token": task["token"], "outcome": "completed"}

    told = []
    for parent in ("secret", "nobody"):
        steps = [{"name": "spy", **OURS, "after": [parent]}]
        alone = complete(limited, task, steps=steps)
        finish = {"worker_id": WORKER, "outcomes": [{**fence, "steps": steps}]}
        [among] = limited.post("/api/tasks/finish", json=finish).json()["answers"]
        [traded] = limited.post("/api/tasks/exchange", json={**finish, "claim": {}}).json()["answers"]
        assert (alone.status_code, alone.json()["code"]) == (400, "invalid_graph")
        assert among == traded == alone.json()
        told.append(alone.text.replace(parent, "?"))
    assert told[0] == told[1]
    steps = [{"name": "spy", **OURS, "after": ["open", "next"]}, {"name": "next", **OURS}]
    assert complete(limited, task, steps=steps).status_code == 200
    assert complete(limited, task, steps=steps).json()["repeated"]


def test_the_explanation_of_a_step_names_no_foreign_step_to_a_limited_key(
    limited: httpx.Client, anyone: httpx.Client
) -> None:
    secrets = [{"name": f"secret-{n}", "task_type": "t", "queue": "theirs"} for n in range(2)]
    after = ["open", "secret-0", "secret-1"]
    workflow = start(anyone, {"name": "open", **OURS}, *secrets, {"name": "last", **OURS, "after": after})
    place = f"/api/tasks/{tasks_of(anyone, workflow)['last']}/explain"

    reasons = [each["message"] for each in limited.get(place).json()["explanation"]["reasons"]]
    assert (len(reasons), "'open'" in reasons[0], reasons[1]) == (2, True, "It waits for another step.")
    assert "secret-1" in anyone.get(place).text


def test_a_limited_key_retries_no_step_whose_workflow_has_foreign_steps(
    limited: httpx.Client, anyone: httpx.Client, app: dibs.Dibs
) -> None:
    inner = {"name": "inner", "workflow": {"name": "inner", "steps": [{"name": "deep", **OURS}]}}
    theirs = {"name": "theirs", "task_type": "t", "queue": "theirs"}
    mixed, own = start(anyone, {"name": "mine", **OURS}, inner, theirs), start(anyone, {"name": "mine", **OURS}, inner)
    for workflow in (mixed, own):
        assert anyone.post(f"/api/workflows/{workflow['id']}/cancel").status_code == 200
    app.upkeep()

    for name in ("mine", "inner"):
        answer = limited.post(f"/api/tasks/{tasks_of(anyone, mixed)[name]}/retry")
        assert (answer.status_code, answer.json()["code"]) == (404, "task_not_found")
    deep = tasks_of(anyone, {"id": inside(anyone, mixed)})["deep"]
    assert limited.post(f"/api/tasks/{deep}/retry").status_code == 404
    assert status(anyone, mixed["id"]) == "cancelled"
    assert limited.post(f"/api/tasks/{tasks_of(anyone, own)['mine']}/retry").status_code == 200
    assert status(anyone, own["id"]) == "running"


def test_a_limited_key_cannot_cancel_a_sub_workflow_with_foreign_steps_by_the_task_of_its_step(
    limited: httpx.Client, anyone: httpx.Client
) -> None:
    first = {"name": "first", **OURS}
    steps = [OURS, {"task_type": "t", "queue": "theirs"}]
    mixed = start(anyone, first, {"name": "inner", "after": ["first"], "workflow": {"name": "inner", "steps": steps}})
    own = start(anyone, first, {"name": "inner", "after": ["first"], "workflow": {"name": "inner", "steps": [OURS]}})

    place = f"/api/tasks/{tasks_of(anyone, mixed)['inner']}"
    refused = limited.post(f"{place}/cancel")
    assert (refused.status_code, refused.json()["code"]) == (404, "task_not_found")
    assert limited.get(place).status_code == 404  # its result is made of theirs
    assert status(anyone, inside(anyone, mixed)) == "running"
    assert limited.post(f"/api/tasks/{tasks_of(anyone, own)['inner']}/cancel").status_code == 200


def test_a_limited_key_redrives_no_step_whose_workflow_has_foreign_steps(keyed: Served, anyone: httpx.Client) -> None:
    limited = keyed.client("admin", queues=["ours"])
    once = {**OURS, "max_attempts": 1}
    theirs = {"task_type": "t", "queue": "theirs"}
    mixed, own = start(anyone, once, theirs, on_failure="continue"), start(anyone, once, on_failure="continue")
    for _ in range(2):
        task = claim(limited)
        failed = {"worker_id": WORKER, "token": task["token"], "error_message": "no"}
        assert limited.post(f"/api/tasks/{task['id']}/fail", json=failed).status_code == 200

    assert limited.post("/api/dead-letter/redrive", json={"limit": 1}).json()["redriven"] == 1
    assert limited.post("/api/dead-letter/redrive").json()["redriven"] == 0
    statuses = [anyone.get(f"/api/workflows/{each['id']}/steps").json()["steps"][0]["status"] for each in (mixed, own)]
    assert statuses == ["failed", "pending"]
    assert anyone.post("/api/dead-letter/redrive").json()["redriven"] == 1


# Metrics


def sample(page: str, line: str) -> float:
    """The value of a series, which must be there."""
    found = re.search(rf"^{re.escape(line)} (\S+)$", page, re.MULTILINE)
    assert found is not None, line
    return float(found[1])


COUNTED = "finalization_claim_"
REASON = COUNTED + 'contention_by_reason_total{reason="%s"}'


def test_metrics_count_finalization_claims_by_reply(lodge: Callable[..., Served]) -> None:
    before = lodge().client().get("/metrics").text
    http = lodge().client()  # a page holds for a second: this server has none yet
    workflow = due(http)
    post_finalization(http, workflow["id"])
    post_finalization(http, workflow["id"], by="p2")
    post_finalization(http, 99)
    post_finalization(http, workflow["id"], "renew", token=1)
    post_finalization(http, workflow["id"], "renew", by="p2", token=1)
    post_finalization(http, workflow["id"], "release", by="p2", token=1)
    post_finalization(http, workflow["id"], "release", token=1)
    after = http.get("/metrics").text

    grown = {
        line: sample(after, line) - sample(before, line)
        for line in (
            *(COUNTED + name for name in ("attempts_total", "success_total", "contention_total")),
            *(COUNTED + name for name in ("duration_seconds_count", 'duration_seconds_bucket{le="+Inf"}')),
            *(REASON % reason for reason in metrics.REFUSAL_REASONS),
            *(f"{COUNTED}release_{name}" for name in ("attempts_total", "success_total")),
            *(f"{COUNTED}extend_{name}" for name in ("attempts_total", "success_total")),
            *(COUNTED + name for name in ("release_not_owned_total", "extend_failed_total")),
            *(COUNTED + name for name in ("release_duration_seconds_count", "extend_duration_seconds_count")),
        )
    }  # fmt: skip
    assert [grown[line] for line in list(grown)[:5]] == [3, 1, 2, 3, 3]
    assert {line: count for line, count in grown.items() if "reason=" in line} == {
        REASON % "already_claimed": 1,
        REASON % "already_complete": 0,
        REASON % "not_ready": 0,
        REASON % "race_condition": 0,
        REASON % "other": 1,
    }
    assert [grown[line] for line in list(grown)[10:]] == [2, 1, 2, 1, 1, 1, 2, 2]


def test_every_metric_of_finalization_has_a_help_text(http: httpx.Client) -> None:
    page = http.get("/metrics").text

    names = [family.name for family in metrics.FINALIZATION_FAMILIES]
    assert len(names) == len(set(names)) == 13
    for name in names:
        assert re.search(rf"^# HELP {name} \S", page, re.MULTILINE), name


def test_a_limited_key_gets_no_metrics_of_finalization(limited: httpx.Client) -> None:
    assert "finalization" not in limited.get("/metrics").text
