"""Every bad request gets a 4xx with a message that states the mistake, never a 5xx, and changes nothing in the store.

The scopes of a key are checked at every endpoint of the table, so that a new endpoint cannot be forgotten.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec
import pytest

import dibs
from dibs.json_values import MAX_BYTES, MAX_DEPTH
from dibs.model.key import Scope
from dibs.server.api import ENDPOINTS
from dibs.server.endpoint import ANY, Endpoint
from dibs.server.openapi.document import describe
from tests.helpers.waiting import until
from tests.server.conftest import Served

JSON = {"content-type": "application/json"}
WORKER = "worker-1"
HUGE = 2**63


def everything(app: dibs.Dibs) -> list[Any]:
    """All that a store holds, to compare."""
    return [
        app.list_tasks(limit=1000),
        app.list_workflows(limit=1000),
        app.all_history(),
        app.schedules(),
        app.list_types(),
        [(queue.name, queue.paused) for queue in app.queues()],
        [worker.id for worker in app.workers()],
        [(key.id, key.revoked_at) for key in app.keys()],  # noqa: SIM118 - a method of the client
    ]


@pytest.fixture
def unchanged(app: dibs.Dibs) -> Iterator[None]:
    """Nothing in the store is different after the test."""
    app.enqueue("kept", {"n": 1}, queue="kept", key="kept")
    before = everything(app)
    yield
    assert everything(app) == before


def refused(answer: httpx.Response, status: int = 400, code: str | None = None) -> dict[str, Any]:
    """The refusal in an answer, which must have this status and the form of a refusal."""
    assert answer.status_code == status, (answer.request.url, answer.request.content[:200], answer.text[:300])
    told: dict[str, Any] = answer.json()
    assert told["success"] is False
    assert told["error"].strip()
    assert told["code"] == (code or told["code"])
    return told


def send(client: httpx.Client, endpoint: Endpoint, content: bytes | str, **headers: str) -> httpx.Response:
    return client.request(endpoint.method, path_of(endpoint), content=content, headers={**JSON, **headers})


def path_of(endpoint: Endpoint, task_id: int = 1, name: str = "kept") -> str:
    return endpoint.path.replace("{id:int}", str(task_id)).replace("{name:name}", name).replace("{id:name}", name)


def sample(endpoint: Endpoint) -> dict[str, Any]:
    """A body that the endpoint takes."""
    found: dict[str, Any] = next(iter(endpoint.examples.values()), {})
    return json.loads(json.dumps(found))


TAKERS = [endpoint for endpoint in ENDPOINTS if endpoint.body is not None]
BY_TASK = [endpoint for endpoint in ENDPOINTS if "/api/tasks/{id:int}" in endpoint.path]
BY_WORKFLOW = [endpoint for endpoint in ENDPOINTS if "/api/workflows/{id:int}" in endpoint.path]
GUARDED = [endpoint for endpoint in ENDPOINTS if endpoint.scopes]

NOT_JSON = [
    b"{",
    b"[1,",
    b"{'a': 1}",
    b'{"a": 01}',
    b'{"a": NaN}',
    b'{"a": Infinity}',
    b'{"a": -Infinity}',
    b'{"a": 1e999}',
    b'{"a": "\\ud800"}',
    b'{"a": "\xed\xa0\x80"}',
    b'{"a": "\xff\xfe"}',
    b'{"\xff": 1}',
    b'{"a": "\x00"}',
    b"{} {}",
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    b"nul",
    b"\x00",
    b"9" * 10_000,
    b"[" * 100_000,
    b'{"a":' * 100_000,
]
NOT_OBJECTS = [b"null", b"true", b"1", b'"text"', b"[]", b"[{}]"]


@cache
def document() -> dict[str, Any]:
    """The description of the API, made when a test needs it: each test process imports this file."""
    return describe(ENDPOINTS)


@pytest.mark.usefixtures("unchanged")
def test_a_body_that_is_not_a_json_object_is_refused_everywhere(http: httpx.Client) -> None:
    for endpoint in TAKERS:
        for content in (*NOT_JSON, *NOT_OBJECTS):
            refused(send(http, endpoint, content))


@pytest.mark.usefixtures("unchanged")
def test_an_empty_body_is_refused_where_a_field_is_required(http: httpx.Client) -> None:
    for endpoint in TAKERS:
        if not endpoint.body_optional:
            refused(send(http, endpoint, b""))


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b'{"task_type": "t", "params": {"a": "\\ud800"}}', "surrogate"),
        (b'{"task_type": "t", "params": {"a": "\xff"}}', "not UTF-8"),
        (b'{"task_type": "t"', "truncated"),
    ],
)
def test_a_malformed_body_is_refused_with_the_reason(http: httpx.Client, content: bytes, word: str) -> None:
    told = refused(http.post("/api/tasks", content=content, headers=JSON), 400, "bad_request")
    assert word in told["error"]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("number", [b"1e308", b"1E+0308", b"2.5e-0308"])
def test_a_body_with_very_many_numbers_that_are_slow_to_decode_is_refused(http: httpx.Client, number: bytes) -> None:
    """msgspec takes 7 microseconds for each: a body of a megabyte stopped the event loop for more than a second."""
    headers = {"content-type": "application/json"}
    for count, message in ((5000, "unknown field"), (5001, "5,000 numbers")):
        body = b'{"task_type": "t", "nonsense": [' + b",".join([number] * count) + b"]}"
        answer = http.post("/api/tasks", content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
        assert message in answer.json()["error"]


def test_a_body_needs_the_content_type_json(http: httpx.Client) -> None:
    for endpoint in TAKERS:
        body = json.dumps(sample(endpoint))
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", "multipart/form-data", ""):
            refused(send(http, endpoint, body, **{"content-type": kind}), 415, "unsupported_media_type")


@pytest.mark.usefixtures("unchanged")
def test_an_unknown_field_is_refused_at_every_level(http: httpx.Client) -> None:
    for endpoint in TAKERS:
        for body in with_unknown_field(sample(endpoint)):
            refused(send(http, endpoint, json.dumps(body)))


def with_unknown_field(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**body, "unknown": 1}
    yield from ({**body, name: 1} for name in ("status", "state", "attempts", "id", "success"))
    for name, value in body.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield {**body, name: [{**value[0], "unknown": 1}]}
        if isinstance(value, dict) and name in ("claim", "backoff"):
            yield {**body, name: {**value, "unknown": 1}}


@pytest.mark.usefixtures("unchanged")
def test_an_unknown_query_parameter_is_refused_everywhere(http: httpx.Client) -> None:
    for endpoint in ENDPOINTS:
        answer = http.request(endpoint.method, f"{path_of(endpoint)}?unknown=1", headers=JSON, content=b"{}")
        refused(answer, 400, "bad_request")


@pytest.mark.usefixtures("unchanged")
def test_a_query_parameter_that_is_out_of_bounds_or_given_twice_is_refused(http: httpx.Client) -> None:
    for query in (
        "limit=0", "limit=1001", "limit=-1", "limit=1.5", "limit=ten", "limit=", "limit=1&limit=2", f"limit={HUGE}",
        f"cursor={HUGE}", "cursor=-1", "cursor=null", "status=unknown", "status=null", "status=", "task_type=",
        "queue=", "queue=%00", "queue=%ff", "queue=%ed%a0%80", "queue=" + "q" * 256, "task_type=a%0Ab", "=1", "&",
        "limit", "limit=" + "9" * 5000, "sort_by=id;drop table tasks", "%ff=1",
    ):  # fmt: skip
        refused(http.get(f"/api/tasks?{query}"))


WRONG: list[Any] = [None, True, -1, 1.5, HUGE, 10**30, "", "text", "\x00", "x" * 256, [], [1], {}, {"a": 1}, "a\nb"]


@pytest.mark.usefixtures("unchanged")
def test_every_field_of_a_wrong_type_or_out_of_its_bounds_is_refused(http: httpx.Client) -> None:
    """What its schema forbids, for each field of each body."""
    tried = 0
    for endpoint in TAKERS:
        allowed = validator(endpoint)
        for body in with_wrong_fields(sample(endpoint), endpoint):
            if not allowed.is_valid(body):
                refused(send(http, endpoint, json.dumps(body)))
                tried += 1
    assert tried > 1000


def with_wrong_fields(body: dict[str, Any], endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    for name in msgspec.json.schema(endpoint.body)["$defs"][endpoint.body.__name__].get("properties", {}):
        for value in WRONG:
            yield {**body, name: value}


def validator(endpoint: Endpoint) -> Any:
    import jsonschema_rs

    name = endpoint.body.__name__
    return jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": document()["components"]}, validate_formats=True
    )


def test_clients_cannot_set_fields_that_the_store_decides(http: httpx.Client, app: dibs.Dibs) -> None:
    for field in ("state", "status", "attempts", "token", "id", "worker_id", "lease_until", "result", "created_at"):
        refused(http.post("/api/tasks", json={"task_type": "t", field: 1}), 400, "bad_request")
        refused(http.post("/api/tasks/batch", json={"tasks": [{"task_type": "t", field: 1}]}), 400, "bad_request")
    assert app.list_tasks() == []


UNSTORABLE = {
    "NUL": '{"text": "a\\u0000b"}',
    "NUL in a key": '{"a\\u0000b": 1}',
    "2**63": f'{{"n": {HUGE}}}',
    "-2**63-1": f'{{"n": {-HUGE - 1}}}',
    "thousands of digits": f'{{"n": {"9" * 5000}}}',
    "lone surrogate": '{"text": "\\ud800"}',
    "lone surrogate in a key": '{"\\udc00": 1}',
    "1e400": '{"n": 1e400}',
    "too deep": '{"a":' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}",
}


@pytest.mark.usefixtures("unchanged")
def test_a_value_that_no_engine_can_store_is_refused_in_every_json_field(http: httpx.Client) -> None:
    for value in UNSTORABLE.values():
        for path, body in (
            ("/api/tasks", '{"task_type": "t", "params": %s}'),
            ("/api/tasks/batch", '{"tasks": [{"task_type": "t"}, {"task_type": "t", "params": %s}]}'),
            ("/api/schedules", '{"name": "s", "cron": "0 3 * * *", "task_type": "t", "params": %s}'),
            ("/api/task-types", '{"name": "t", "defaults": %s}'),
            ("/api/workers/heartbeat", '{"worker_id": "w", "metadata": %s}'),
        ):
            refused(http.post(path, content=body % value, headers=JSON))


def test_a_result_that_no_engine_can_store_leaves_the_task_claimed(http: httpx.Client, app: dibs.Dibs) -> None:
    task = app.enqueue("t")
    app.claim(WORKER)
    before = everything(app)
    for value in UNSTORABLE.values():
        body = f'{{"worker_id": "{WORKER}", "token": 1, "result": {value}}}'
        refused(http.post(f"/api/tasks/{task.id}/complete", content=body, headers=JSON))
        one = f'{{"task_id": {task.id}, "token": 1, "outcome": "completed", "result": {value}}}'
        many = f'{{"worker_id": "{WORKER}", "outcomes": [{one}]}}'
        answer = http.post("/api/tasks/finish", content=many, headers=JSON)
        assert answer.status_code == 400 or answer.json()["answers"][0]["success"] is False
    assert everything(app) == before


def test_an_error_text_with_any_content_is_kept(http: httpx.Client, app: dibs.Dibs) -> None:
    task = app.enqueue("t")
    app.claim(WORKER)
    body = {"worker_id": WORKER, "token": 1, "error_message": "a\x00b", "traceback": "c\x00" * 1000, "retryable": False}

    assert http.post(f"/api/tasks/{task.id}/fail", json=body).json()["status"] == "failed"
    kept = app.get(task.id)
    assert kept is not None
    assert kept.error is not None
    assert kept.error.message == "a␀b"


def test_json_of_the_greatest_allowed_depth_is_stored(http: httpx.Client) -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    task = http.post("/api/tasks", json={"task_type": "t", "params": {"deep": deep}}).json()["task"]

    assert http.get(f"/api/tasks/{task['id']}").json()["task"]["params"] == {"deep": deep}


def test_the_last_of_two_equal_json_keys_applies(http: httpx.Client) -> None:
    content = b'{"task_type": "a", "task_type": "b", "params": {"x": 1, "x": 2}}'
    task = http.post("/api/tasks", content=content, headers=JSON).json()["task"]

    assert (task["task_type"], task["params"]) == ("b", {"x": 2})


NAMES = [
    "x" * 255,
    "😀" * 255,
    "مهمة عاجلة",
    "עברית \u200fltr\u200e",
    "a/b?c=d&e#f%2F",
    "Robert'); DROP TABLE tasks;--",
    '" OR 1=1 --',
    "<script>alert(1)</script>",
    "{{7*7}} ${x} %s \\",
    " spaces around ",
    "..",
    "null",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:12])
def test_any_single_line_is_a_valid_name_and_is_returned_unchanged(
    name: str, http: httpx.Client, app: dibs.Dibs
) -> None:
    body = {"task_type": name, "queue": name, "idempotency_key": name, "params": {name: name}}
    made = http.post("/api/tasks", json=body).json()["task"]
    [stored] = app.list_tasks()

    assert (made["task_type"], made["queue"], made["idempotency_key"], made["params"]) == (
        name,
        name,
        name,
        {name: name},
    )
    assert (stored.type, stored.queue, stored.key, stored.params) == (name, name, name, {name: name})
    assert http.get("/api/tasks", params={"queue": name, "task_type": name}).json()["tasks"] == [made]


def test_a_path_accepts_every_valid_name(http: httpx.Client) -> None:
    for name in NAMES:
        if name != "..":  # which no client sends: it is the way up
            paused = http.post(f"/api/queues/{quote(name, safe='')}/pause").json()
            assert (paused["queue"], paused["paused"]) == (name, True)


NO_NAMES = ["", "x" * 256, "😀" * 256, "a\nb", "a\x7fb", "a\x85b", "\x00", "a\tb"]


@pytest.mark.usefixtures("unchanged")
def test_a_malformed_name_is_refused_everywhere(http: httpx.Client) -> None:
    for name in NO_NAMES:
        for field in ("task_type", "queue", "idempotency_key"):
            refused(http.post("/api/tasks", json={"task_type": "t", field: name}))
        for field in ("queues", "task_types"):
            refused(http.post("/api/tasks/claim", json={"worker_id": "w", field: [name]}))
            refused(http.post("/api/tasks/peek", json={field: [name]}))
        if name:
            refused(http.post(f"/api/queues/{quote(name)}/pause"))


NO_WORKERS = ["", "a b", "a.b", "a/b", "ü", "w\n", "w" * 256, "\x00", "'; --"]


@pytest.mark.usefixtures("unchanged")
def test_a_malformed_worker_id_is_refused_everywhere(http: httpx.Client) -> None:
    for worker_id in NO_WORKERS:
        for endpoint in TAKERS:
            if "worker_id" in sample(endpoint):
                refused(send(http, endpoint, json.dumps({**sample(endpoint), "worker_id": worker_id})))


@pytest.mark.usefixtures("unchanged")
def test_an_unknown_order_is_refused(http: httpx.Client) -> None:
    for wish in (
        {"sort_by": "id"},
        {"sort_by": "priority; --"},
        {"sort_order": "up"},
        {"order": "best"},
        {"sort_by": ""},
    ):
        refused(http.post("/api/tasks/claim", json={"worker_id": "w", **wish}))
        refused(http.post("/api/tasks/peek", json=wish))
        refused(http.post("/api/tasks/exchange", json={"worker_id": "w", "outcomes": [], "claim": wish}))


NO_IDS = [str(HUGE - 1), str(HUGE), str(2**64), "9" * 100, "9" * 5000, "0", "-1", "1.0", "x", "%00", "\uff11", "1%20"]


@pytest.mark.usefixtures("unchanged")
def test_a_malformed_task_id_is_not_found(http: httpx.Client) -> None:
    for task_id in NO_IDS:
        for endpoint in BY_TASK:
            path = endpoint.path.replace("{id:int}", task_id if task_id.isascii() else quote(task_id))
            body = json.dumps({**sample(endpoint)}) if endpoint.body is not None else b""
            refused(http.request(endpoint.method, path, content=body, headers=JSON), 404)


@pytest.mark.usefixtures("unchanged")
def test_a_malformed_workflow_id_is_not_found(http: httpx.Client) -> None:
    for workflow_id in NO_IDS:
        for endpoint in reversed(BY_WORKFLOW):  # a wish for one is recorded, though there is none
            path = endpoint.path.replace("{id:int}", workflow_id if workflow_id.isascii() else quote(workflow_id))
            body = json.dumps(sample(endpoint)) if endpoint.body is not None else b""
            answer = http.request(endpoint.method, path, content=body, headers=JSON)
            assert (answer.status_code, answer.json()["success"]) == (404, False), (endpoint.path, answer.text)


@pytest.mark.usefixtures("unchanged")
def test_an_unknown_path_and_an_unsupported_method_are_reported(http: httpx.Client) -> None:
    for path in (
        "/nowhere",
        "/api",
        "/api/",
        "/api/tasks/",
        "/api//tasks",
        "/api/tasks/1/",
        "/API/tasks",
        "/api/../etc/passwd",
    ):
        refused(http.get(path), 404, "not_found")
    for endpoint in ENDPOINTS:
        answer = http.request("TRACE", path_of(endpoint), content=b"{}", headers=JSON)
        refused(answer, 405, "method_not_allowed")
        assert endpoint.method in answer.headers["allow"]


# Too much


@pytest.mark.usefixtures("unchanged")
def test_a_body_over_1_mib_is_refused_before_it_has_been_sent(serve: Callable[..., Served]) -> None:
    with connect(serve()) as wire:
        wire.sendall(head("POST", "/api/tasks", f"Content-Length: {MAX_BYTES + 1}"))
        assert b" 413 " in wire.recv(4096)


@pytest.mark.usefixtures("unchanged")
def test_a_body_of_unknown_length_is_refused_as_soon_as_it_is_over_1_mib(serve: Callable[..., Served]) -> None:
    with connect(serve()) as wire:
        wire.sendall(head("POST", "/api/tasks", "Transfer-Encoding: chunked"))
        chunk = b"%x\r\n%s\r\n" % (65536, b" " * 65536)
        for _ in range(MAX_BYTES // 65536 + 1):  # and no end after it
            wire.sendall(chunk)
        assert b" 413 " in wire.recv(4096)


def test_a_body_of_just_under_1_mib_is_accepted(http: httpx.Client) -> None:
    body = json.dumps({"task_type": "t", "params": {"text": "x" * (MAX_BYTES - 100)}})

    assert http.post("/api/tasks", content=body, headers=JSON).status_code == 201


def connect(server: Served) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port), timeout=10)


def head(method: str, path: str, *headers: str) -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers, "", "")
    return "\r\n".join(lines).encode()


@pytest.mark.usefixtures("unchanged")
def test_too_many_entries_in_one_request_are_refused(http: httpx.Client) -> None:
    one = {"task_id": 1, "token": 1}
    for path, body in (
        ("/api/tasks/batch", {"tasks": [{"task_type": "t"}] * 1001}),
        ("/api/tasks/batch", {"tasks": []}),
        ("/api/tasks/claim", {"worker_id": "w", "count": 1001}),
        ("/api/tasks/claim", {"worker_id": "w", "count": 0}),
        ("/api/tasks/finish", {"worker_id": "w", "outcomes": [{**one, "outcome": "cancelled"}] * 1001}),
        ("/api/tasks/renew", {"worker_id": "w", "claims": [one] * 1001}),
        ("/api/tasks/start", {"worker_id": "w", "claims": [one] * 1001}),
        ("/api/tasks/progress", {"worker_id": "w", "notes": [{**one, "progress": 1}] * 1001}),
    ):
        refused(http.post(path, json=body))


@pytest.mark.usefixtures("unchanged")
def test_a_batch_with_one_bad_task_stores_none(http: httpx.Client) -> None:
    for bad in (
        {"task_type": ""},
        {"task_type": "t", "priority": HUGE},
        {"task_type": "t", "idempotency_key": "kept", "queue": "kept"},
    ):
        answer = http.post("/api/tasks/batch", json={"tasks": [{"task_type": "good"}, bad]})
        assert answer.status_code in (400, 409)


# Fences


def fenced(endpoint: Endpoint) -> bool:
    return endpoint in BY_TASK and "token" in sample(endpoint)


def test_another_workers_claim_is_refused_with_403_and_a_stale_token_with_409(
    http: httpx.Client, app: dibs.Dibs
) -> None:
    task = app.enqueue("t")
    app.claim(WORKER, lease=0.001)
    while not app.recover():  # its lease ends by the clock of the database
        pass
    app.claim(WORKER)
    before = everything(app)
    for endpoint in filter(fenced, ENDPOINTS):
        path = path_of(endpoint, task.id)
        other = {**sample(endpoint), "worker_id": "worker-2", "token": 2}
        stale = {**sample(endpoint), "worker_id": WORKER, "token": 1}
        never = {**sample(endpoint), "worker_id": WORKER, "token": HUGE - 1}
        refused(http.post(path, json=other), 403, "not_your_claim")
        refused(http.post(path, json=stale), 409, "claim_lost")
        refused(http.post(path, json=never), 409, "claim_lost")
        refused(http.post(path, json={**stale, "token": HUGE}))
    assert everything(app) == before


# Keys


def test_every_endpoint_that_needs_a_key_refuses_a_request_without_one(
    keyed: Served, app: dibs.Dibs, monkeypatch: Any
) -> None:
    from dibs.server import rate_limits

    monkeypatch.setattr(rate_limits, "MAX_FAILURES", 10**9)  # many strangers from one address are another test
    gone, late, good = keyed.key("admin"), keyed.key("admin", expires_in=0.001), keyed.key("admin")
    app.revoke_key(gone.about.id)
    wrong = good.key[:-1] + ("a" if good.key[-1] != "a" else "b")
    unknown = good.key.replace(good.about.id, "a" * len(good.about.id))
    until(lambda: not any(key.id == late.about.id and key.live for key in app.keys()))  # noqa: SIM118 - a method
    before = everything(app)
    for text in (None, "", "x", "dibs__", wrong, unknown, gone.key, late.key, good.key.upper(), "ü", f"{good.key} x"):
        headers = {} if text is None else {"X-API-Key": text.encode("utf-8")}
        client = keyed.client()
        for endpoint in GUARDED:
            answer = send(client, endpoint, json.dumps(sample(endpoint)), **headers)  # type: ignore[arg-type]
            refused(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"] == "ApiKey, Bearer"
    assert everything(app) == before


@pytest.mark.parametrize("scope", [scope for scope in Scope if scope is not Scope.ADMIN])
def test_every_endpoint_refuses_a_key_without_its_scope(scope: Scope, keyed: Served, app: dibs.Dibs) -> None:
    client = keyed.client(scope)
    before = everything(app)
    for endpoint in GUARDED:
        if scope not in endpoint.scopes:
            refused(send(client, endpoint, json.dumps(sample(endpoint))), 403, "forbidden")
    assert everything(app) == before


def test_only_the_listed_endpoints_need_no_key() -> None:
    free = {endpoint.path for endpoint in ENDPOINTS if not endpoint.scopes}

    assert free == {"/health", "/ready", "/api/openapi.json", "/api/docs", "/api/docs.css"}
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.scopes == ANY} == {"/api/wakeups"}


def test_a_workflow_with_a_foreign_queue_does_not_exist_for_a_limited_key(keyed: Served, app: dibs.Dibs) -> None:
    tasks = [dibs.NewTask("t", queue=queue) for queue in ("ours", "theirs")]
    new = dibs.NewWorkflow(name="w", steps=[dibs.NewStep(name=task.queue, task=task) for task in tasks])
    workflow = app.start_workflow(new)
    client = keyed.client("admin", queues=["ours"])
    before = everything(app)
    for endpoint in BY_WORKFLOW:
        content = json.dumps(sample(endpoint)).replace('"task_type"', '"queue": "ours", "task_type"')
        content = content if endpoint.body is not None else ""
        answer = client.request(endpoint.method, path_of(endpoint, workflow.id), content=content, headers=JSON)
        nobodys = client.request(endpoint.method, path_of(endpoint, 999_999), content=content, headers=JSON)
        assert answer.status_code == nobodys.status_code == 404, (endpoint.path, answer.text)
        named, of_nobody = (re.sub(r"(workflow(_id\":)? ?)\d+", r"\1N", each.text) for each in (answer, nobodys))
        assert named == of_nobody, "the two must look alike"
    assert everything(app) == before


def test_a_task_of_a_foreign_queue_does_not_exist_for_a_limited_key(keyed: Served, app: dibs.Dibs) -> None:
    task = app.enqueue("t", queue="theirs")
    app.claim(WORKER)
    client = keyed.client("admin", queues=["ours"])
    before = everything(app)
    for endpoint in BY_TASK:
        body = {**sample(endpoint), **({"worker_id": WORKER, "token": 1} if fenced(endpoint) else {})}
        content = json.dumps(body) if endpoint.body is not None else b""
        answer = client.request(endpoint.method, path_of(endpoint, task.id), content=content, headers=JSON)
        nobodys = client.request(endpoint.method, path_of(endpoint, 999_999), content=content, headers=JSON)
        told, of_nobody = refused(answer, 404, "task_not_found"), refused(nobodys, 404, "task_not_found")
        assert str(told).replace(str(task.id), "N") == str(of_nobody).replace("999999", "N"), "the two must look alike"
    assert everything(app) == before


def test_a_task_of_a_foreign_queue_does_not_exist_for_a_limited_key_in_batch_requests(
    keyed: Served, app: dibs.Dibs
) -> None:
    theirs = app.enqueue("t", queue="theirs")
    app.claim(WORKER)
    client = keyed.client("admin", queues=["ours"])
    before = everything(app)
    one = {"task_id": theirs.id, "token": 1}
    for path, body in (
        ("/api/tasks/finish", {"outcomes": [{**one, "outcome": "completed"}]}),
        ("/api/tasks/exchange", {"outcomes": [{**one, "outcome": "cancelled"}], "claim": {}}),
        ("/api/tasks/renew", {"claims": [one]}),
        ("/api/tasks/start", {"claims": [one]}),
        ("/api/tasks/progress", {"notes": [{**one, "progress": 1}]}),
    ):
        answer = client.post(path, json={"worker_id": WORKER, **body})
        assert [each["code"] for each in answer.json()["answers"]] == ["task_not_found"], path
    standing = client.post("/api/tasks/standing", json={"worker_id": WORKER, "claims": [one]})
    assert standing.json() == {"standings": ["lost"]}
    assert everything(app) == before


def test_a_limited_key_can_neither_name_nor_see_another_queue(keyed: Served, app: dibs.Dibs) -> None:
    app.enqueue("t", queue="theirs", key="taken")
    client = keyed.client("admin", queues=["ours"])
    before = everything(app)
    for path, body in (
        ("/api/tasks", {"task_type": "t", "queue": "theirs"}),
        ("/api/tasks", {"task_type": "t"}),
        ("/api/tasks/batch", {"tasks": [{"task_type": "t", "queue": "ours"}, {"task_type": "t", "queue": "theirs"}]}),
        ("/api/tasks/claim", {"worker_id": "w", "queues": ["ours", "theirs"]}),
        ("/api/tasks/peek", {"queues": ["theirs"]}),
        ("/api/tasks/exchange", {"worker_id": "w", "outcomes": [], "claim": {"queues": ["theirs"]}}),
        ("/api/dead-letter/redrive", {"queue": "theirs"}),
        ("/api/queues/theirs/pause", {}),
        ("/api/queues/theirs/resume", {}),
        ("/api/schedules", {"name": "s", "cron": "0 3 * * *", "task_type": "t", "queue": "theirs"}),
    ):
        refused(client.post(path, json=body), 403, "queue_not_allowed")
    refused(client.get("/api/tasks?queue=theirs"), 403, "queue_not_allowed")
    assert client.get("/api/tasks").json()["tasks"] == []
    assert client.post("/api/tasks/peek", json={}).json()["tasks"] == []
    assert client.post("/api/tasks/claim", json={"worker_id": "w"}).status_code == 404
    assert "theirs" not in client.get("/api/queues").text
    assert "theirs" not in client.get("/api/stats").text
    assert everything(app) == before


def test_an_idempotency_key_of_a_foreign_queue_is_not_in_use(keyed: Served, app: dibs.Dibs) -> None:
    theirs = app.enqueue("t", {"secret": 1}, queue="theirs", key="taken")
    client = keyed.client("enqueue", queues=["ours"])
    task = {"task_type": "t", "queue": "ours", "idempotency_key": "taken", "params": {"secret": 1}}
    ours = client.post("/api/tasks", json=task)
    assert (ours.status_code, ours.json()["deduplicated"]) == (201, False)
    assert ours.json()["task"]["id"] != theirs.id
    again = client.post("/api/tasks/batch", json={"tasks": [task]})
    assert (again.status_code, again.json()["tasks"][0]["id"]) == (200, ours.json()["task"]["id"])
    other = {**task, "params": {"guess": 2}}
    told = refused(client.post("/api/tasks", json=other), 409, "key_conflict")
    assert told["task_id"] == ours.json()["task"]["id"]


def test_a_request_id_that_was_guessed_does_not_show_tasks_of_a_foreign_queue(keyed: Served, app: dibs.Dibs) -> None:
    app.enqueue("t", {"secret": 1}, queue="theirs")
    wish = {"worker_id": WORKER, "request_id": "r-1"}
    assert keyed.client("work", queues=["theirs"]).post("/api/tasks/claim", json=wish).status_code == 200
    client = keyed.client("admin", queues=["ours"])
    before = everything(app)
    for waiting in ({}, {"wait_seconds": 0.05}):
        assert client.post("/api/tasks/claim", json={**wish, **waiting}).status_code == 404
    exchange = {"worker_id": WORKER, "outcomes": [], "claim": {"request_id": "r-1"}}
    assert client.post("/api/tasks/exchange", json=exchange).json()["tasks"] == []
    assert everything(app) == before


WHOLE_STORE = [
    ("POST", "/api/keys"), ("GET", "/api/keys"), ("DELETE", "/api/keys/{id:name}"), ("GET", "/api/history"),
    ("GET", "/api/doctor"), ("POST", "/api/task-types"), ("GET", "/api/upkeep/due-schedules"),
    ("POST", "/api/schedules/{name:name}/tick"), ("POST", "/api/upkeep/promote"), ("POST", "/api/upkeep/recover"),
    ("POST", "/api/upkeep/prune"), ("POST", "/api/upkeep/prune-history"), ("POST", "/api/upkeep/prune-workers"),
]  # fmt: skip


def test_a_limited_key_may_not_act_on_the_whole_store(keyed: Served, app: dibs.Dibs) -> None:
    client = keyed.client("admin", queues=["ours"])
    before = everything(app)
    table = {(endpoint.method, endpoint.path): endpoint for endpoint in ENDPOINTS}
    for which in WHOLE_STORE:
        answer = send(client, table[which], json.dumps(sample(table[which])) if table[which].body else b"")
        refused(answer, 403, "key_limited_to_queues")
    assert everything(app) == before


def test_hostile_headers_are_refused_or_kept_as_text(serve: Callable[..., Served], app: dibs.Dibs) -> None:
    client = serve().client()
    for signature in (b"\x80\x81", b"x" * 256, b"a\x7fb"):
        refused(client.post("/api/tasks", json={"task_type": "t"}, headers={b"X-Dibs-Signature": signature}))
    assert app.list_tasks() == []
    client.post("/api/tasks", json={"task_type": "t"}, headers={"X-Dibs-Signature": "<b>'; --"})
    assert app.all_history()[0].by == "<b>'; --"
