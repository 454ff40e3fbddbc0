"""The claim endpoint: its exact responses, concurrent claims, and long polls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import dibs
from tests.helpers.plain_http import NO_TLS
from tests.helpers.waiting import until
from tests.server.conftest import Served

ASK = {
    "worker_id": "worker-youtube-01",
    "task_types": ["youtube_video_scrape"],
    "max_attempts_remaining": 1,
    "sort_by": "priority",
    "sort_order": "desc",
}
PROMISED = [
    "id", "task_type", "status", "params", "priority", "attempts", "max_attempts", "worker_id", "claimed_at",
    "created_at", "queue", "token", "lease_until",
]  # fmt: skip


def claim(http: httpx.Client, **body: Any) -> httpx.Response:
    return http.post("/api/tasks/claim", json={"worker_id": "worker-1", **body})


# The exact answers


def test_completing_again_with_another_result_is_a_409_with_a_code_of_its_own(http: httpx.Client) -> None:
    http.post("/api/tasks", json={"task_type": "t"})
    task = claim(http).json()["task"]
    held = {"worker_id": "worker-1", "token": task["token"]}
    path = f"/api/tasks/{task['id']}/complete"
    assert http.post(path, json={**held, "result": {"a": 1, "b": 2}}).status_code == 200
    assert http.post(path, json={**held, "result": {"b": 2.0, "a": 1}}).json()["repeated"] is True
    answer = http.post(path, json={**held, "result": {"a": 2}})
    assert (answer.status_code, answer.json()["code"]) == (409, "outcome_conflict")
    said = http.post(
        "/api/tasks/finish",
        json={"worker_id": "worker-1", "outcomes": [{"task_id": task["id"], "token": 1, "outcome": "completed"}]},
    )
    assert (said.status_code, said.json()["answers"][0]["code"]) == (200, "outcome_conflict")


def test_a_claim_returns_the_task_with_the_documented_fields(http: httpx.Client) -> None:
    created = http.post(
        "/api/tasks", json={"task_type": "youtube_video_scrape", "params": {"video_id": "abc"}, "priority": 5}
    ).json()["task"]
    answer = http.post("/api/tasks/claim", json=ASK)
    assert answer.status_code == 200
    said = answer.json()
    assert list(said) == ["success", "task", "message"]
    assert (said["success"], said["message"]) == (True, "Task claimed successfully")
    task = said["task"]
    assert list(task)[:13] == PROMISED
    assert {name: task[name] for name in PROMISED if not name.endswith(("_at", "_until"))} == {
        "id": created["id"],
        "task_type": "youtube_video_scrape",
        "status": "claimed",
        "params": {"video_id": "abc"},
        "priority": 5,
        "attempts": 0,
        "max_attempts": 3,
        "worker_id": "worker-youtube-01",
        "queue": "default",
        "token": 1,
    }
    assert task["created_at"] == created["created_at"] < task["claimed_at"] < task["lease_until"]
    assert all(len(task[name]) == len("2025-11-12T10:30:00.123456Z") for name in ("claimed_at", "lease_until"))


def test_an_empty_claim_returns_the_filters(http: httpx.Client) -> None:
    answer = http.post("/api/tasks/claim", json=ASK)
    assert answer.status_code == 404
    assert answer.json() == {
        "success": False,
        "message": "No pending tasks available",
        "filters": {"task_types": ["youtube_video_scrape"], "max_attempts_remaining": 1},
    }


def test_a_claim_with_a_count_returns_all_tasks_and_the_first(http: httpx.Client) -> None:
    for _ in range(3):
        http.post("/api/tasks", json={"task_type": "resize"})
    said = claim(http, count=2).json()
    assert len(said["tasks"]) == 2
    assert said["task"] == said["tasks"][0]
    assert [task["id"] for task in claim(http, count=2).json()["tasks"]] == [said["tasks"][1]["id"] + 1]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "worker_id"),
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "no spaces"}, "worker_id"),
        ({"worker_id": 7}, "worker_id"),
        ({"worker_id": "w", "sort_by": "age"}, "sort_by"),
        ({"worker_id": "w", "sort_order": "up"}, "sort_order"),
        ({"worker_id": "w", "order": "best"}, "order"),
        ({"worker_id": "w", "count": 0}, "count"),
        ({"worker_id": "w", "count": 1001}, "count"),
        ({"worker_id": "w", "count": "2"}, "count"),
        ({"worker_id": "w", "wait_seconds": 61}, "wait_seconds"),
        ({"worker_id": "w", "lease_seconds": 0}, "lease_seconds"),
        ({"worker_id": "w", "state": "pending"}, "state"),
    ],
)
def test_a_malformed_claim_is_refused_with_the_name_of_the_field(http: httpx.Client, body: Any, word: str) -> None:
    answer = http.post("/api/tasks/claim", json=body)
    assert answer.status_code == 400
    said = answer.json()
    assert said["success"] is False
    assert word in said["error"]
    assert said["code"] == "bad_request"


def test_a_claim_by_id_of_a_claimed_task_returns_the_reason(http: httpx.Client) -> None:
    task_id = http.post("/api/tasks", json={"task_type": "resize"}).json()["task"]["id"]
    assert http.post(f"/api/tasks/{task_id}/claim", json={"worker_id": "first"}).status_code == 200
    answer = http.post(f"/api/tasks/{task_id}/claim", json={"worker_id": "second"})
    assert answer.status_code == 409
    said = answer.json()
    assert (said["success"], said["error"], said["code"]) == (
        False,
        "Task already claimed by another worker",
        "already_claimed",
    )
    assert "first" in said["message"]


@pytest.mark.parametrize(
    ("wish", "first"),
    [
        ({}, "high"),
        ({"sort_by": "priority"}, "high"),
        ({"sort_by": "priority", "sort_order": "asc"}, "low"),
        ({"sort_by": "created_at"}, "old"),
        ({"sort_by": "created_at", "sort_order": "desc"}, "low"),
        ({"order": "lifo"}, "low"),
        ({"order": "priority_lifo"}, "high"),
    ],
)
def test_sort_parameters_map_to_orders(http: httpx.Client, wish: dict[str, str], first: str) -> None:
    for name, priority in (("old", 3), ("high", 9), ("low", 1)):
        http.post("/api/tasks", json={"task_type": name, "priority": priority})
    assert claim(http, **wish).json()["task"]["task_type"] == first


# Races


def race(server: Served, workers: int, tasks: int) -> list[httpx.Response]:
    """Run this number of workers, each with its own connection, at the same moment."""
    clients = [server.client() for _ in range(workers)]
    for _ in range(tasks):
        clients[0].post("/api/tasks", json={"task_type": "resize"})
    line = threading.Barrier(workers)

    def ask(number: int) -> httpx.Response:
        line.wait()
        return claim(clients[number], worker_id=f"worker-{number}", task_types=["resize"])

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(ask, range(workers)))


@pytest.mark.parametrize("turn", range(3))
def test_ten_workers_that_claim_ten_tasks_get_ten_different_tasks(server: Served, turn: int) -> None:
    answers = race(server, 10, 10)
    assert [answer.status_code for answer in answers] == [200] * 10
    assert len({answer.json()["task"]["id"] for answer in answers}) == 10
    assert all(answer.json()["task"]["worker_id"] == f"worker-{n}" for n, answer in enumerate(answers))


@pytest.mark.parametrize("turn", range(3))
def test_of_ten_workers_that_claim_five_tasks_five_get_one_each(server: Served, turn: int) -> None:
    answers = race(server, 10, 5)
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [404] * 5
    won = [answer.json()["task"] for answer in answers if answer.status_code == 200]
    assert len({task["id"] for task in won}) == 5
    assert {task["token"] for task in won} == {1}


def test_of_ten_workers_that_claim_one_id_one_gets_the_task(server: Served) -> None:
    clients = [server.client() for _ in range(10)]
    task_id = clients[0].post("/api/tasks", json={"task_type": "resize"}).json()["task"]["id"]
    line = threading.Barrier(10)

    def ask(number: int) -> int:
        line.wait()
        return clients[number].post(f"/api/tasks/{task_id}/claim", json={"worker_id": f"w{number}"}).status_code

    with ThreadPoolExecutor(10) as pool:
        assert sorted(pool.map(ask, range(10))) == [200] + [409] * 9


def test_a_hundred_concurrent_requests_with_one_key_create_one_task(server: Served) -> None:
    clients = [server.client() for _ in range(20)]
    line = threading.Barrier(20)

    def send(number: int) -> list[tuple[int, int]]:
        line.wait()
        answers = [
            clients[number].post("/api/tasks", json={"task_type": "a", "idempotency_key": "k"}) for _ in range(5)
        ]
        return [(answer.status_code, answer.json()["task"]["id"]) for answer in answers]

    with ThreadPoolExecutor(20) as pool:
        sent = [each for several in pool.map(send, range(20)) for each in several]
    assert sorted(status for status, _ in sent) == [200] * 99 + [201]
    assert len({task_id for _, task_id in sent}) == 1


def test_a_bad_task_among_concurrent_enqueues_is_refused_alone(server: Served, app: dibs.Dibs) -> None:
    app.register_type("strict", {"type": "object", "required": ["width"]})
    clients = [server.client() for _ in range(12)]
    line = threading.Barrier(12)

    def send(number: int) -> int:
        line.wait()
        params = {} if number % 3 == 0 else {"width": 1}
        return clients[number].post("/api/tasks", json={"task_type": "strict", "params": params}).status_code

    with ThreadPoolExecutor(12) as pool:
        assert sorted(pool.map(send, range(12))) == [201] * 8 + [400] * 4
    assert len(app.list_tasks()) == 8


def test_concurrent_outcomes_get_a_reply_each(server: Served) -> None:
    clients = [server.client() for _ in range(10)]
    for _ in range(5):
        clients[0].post("/api/tasks", json={"task_type": "resize"})
    ids = [task["id"] for task in claim(clients[0], count=5).json()["tasks"]]
    line = threading.Barrier(10)

    def complete(number: int) -> int:
        line.wait()
        body = {"worker_id": "worker-1", "token": 1 if number < 5 else 2}
        return clients[number].post(f"/api/tasks/{ids[number % 5]}/complete", json=body).status_code

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(complete, range(10))) == [200] * 5 + [409] * 5


# Claims that wait


def test_a_claim_waits_for_a_task(server: Served) -> None:
    waiting, sending = server.client(), server.client()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(claim, waiting, wait_seconds=20, task_types=["resize"])
        until(lambda: server.service.long_polls.waiting == 1)
        sending.post("/api/tasks", json={"task_type": "other"})
        sending.post("/api/tasks", json={"task_type": "resize"})
        assert answer.result().json()["task"]["task_type"] == "resize"


def test_a_waiting_claim_is_woken_by_tasks_that_other_processes_enqueue(server: Served, app: dibs.Dibs) -> None:
    client = server.client()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(claim, client, wait_seconds=20)
        until(lambda: server.service.long_polls.waiting == 1)
        app.enqueue("resize")
        assert answer.result().status_code == 200


def test_a_waiting_claim_without_a_task_returns_empty_after_its_time(http: httpx.Client) -> None:
    assert claim(http, wait_seconds=0.05).status_code == 404


def test_the_claim_that_waits_longest_is_served_first(server: Served) -> None:
    clients = [server.client() for _ in range(4)]
    with ThreadPoolExecutor(3) as pool:
        answers = []
        for number in range(3):
            answers.append(pool.submit(claim, clients[number], worker_id=f"worker-{number}", wait_seconds=20))
            until(lambda seen=number + 1: server.service.long_polls.waiting == seen)
        for number in range(3):
            clients[3].post("/api/tasks", json={"task_type": "resize"})
            assert answers[number].result().json()["task"]["worker_id"] == f"worker-{number}"


def test_a_task_is_not_kept_for_a_client_that_left(server: Served, app: dibs.Dibs) -> None:
    leaving = httpx.Client(verify=NO_TLS, base_url=server.url, timeout=0.2)
    with pytest.raises(httpx.ReadTimeout):
        claim(leaving, wait_seconds=20)
    leaving.close()
    until(lambda: server.service.long_polls.waiting == 0)
    task = app.enqueue("resize")
    assert claim(server.client(), worker_id="other").json()["task"]["id"] == task.id


def test_many_waiting_claims_hold_no_connection_to_the_database(serve: Callable[..., Served], app: dibs.Dibs) -> None:
    """More of them than any pool has, and the server answers others as before."""
    server = serve()
    clients = [server.client() for _ in range(40)]
    with ThreadPoolExecutor(40) as pool:
        answers = [
            pool.submit(claim, client, worker_id=f"worker-{n}", wait_seconds=20) for n, client in enumerate(clients)
        ]
        until(lambda: server.service.long_polls.waiting == 40)
        assert server.client().get("/api/tasks").status_code == 200
        app.enqueue_many(dibs.NewTask("resize") for _ in range(40))
        ids = [answer.result().json()["task"]["id"] for answer in answers]
    assert len(set(ids)) == 40


def test_the_second_of_two_outcomes_for_one_claim_is_refused_alone(http: httpx.Client) -> None:
    task_id = http.post("/api/tasks", json={"task_type": "resize"}).json()["task"]["id"]
    claim(http)
    outcome = {"task_id": task_id, "token": 1, "outcome": "completed"}
    other = {"task_id": task_id + 1, "token": 1, "outcome": "completed"}
    answer = http.post("/api/tasks/finish", json={"worker_id": "worker-1", "outcomes": [outcome, other, outcome]})
    codes = [each.get("code") for each in answer.json()["answers"]]
    assert (answer.status_code, codes) == (200, [None, "task_not_found", "invalid_value"])


def test_a_whole_number_with_a_point_is_an_integer_and_stays_a_float_in_params(http: httpx.Client) -> None:
    sent = b'{"task_type": "resize", "priority": 3.0, "params": {"width": 2.0}}'
    answer = http.post("/api/tasks", content=sent, headers={"content-type": "application/json"})
    assert answer.status_code == 201
    assert answer.json()["task"]["priority"] == 3
    assert '"width":2.0' in answer.text
    assert claim(http, count=1.5).status_code == 400
