"""Tasks by filters over HTTP: lists that continue where they stopped, bulk actions, and the limits of a key."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import dibs
from tests.helpers.tasks import task_in
from tests.server.conftest import Served

BAD_QUERIES = (
    "since=yesterday",
    "since=2030-01-01T00:00:00",
    "since=2030-13-01T00:00:00Z",
    "until=0.5",
    "until=1700000000",
    "text=",
    "text=%00",
    "text=" + "x" * 1001,
    "key=",
    "worker=a%0Ab",
    "tags=",
    "tags=a,,b",
    "tags=%20a",
)


def listed(client: httpx.Client, **query: Any) -> list[int]:
    answer = client.get("/api/tasks", params=query).json()
    assert answer["next_cursor"] is None
    return [task["id"] for task in answer["tasks"]]


def test_tasks_are_listed_by_key_worker_time_and_text(http: httpx.Client, app: dibs.Dibs) -> None:
    one = app.enqueue("resize", {"name": "Straße"}, key="order-7")
    two = app.enqueue("resize", {"name": "road"})
    app.claim_by_id(two.id, "worker-1")
    created = two.created_at.isoformat()
    assert listed(http, key="order-7") == [one.id]
    assert listed(http, worker="worker-1") == [two.id]
    assert listed(http, text="Straße") == [one.id]
    assert listed(http, since=created) == [two.id]
    assert listed(http, until=created) == [one.id]


def test_tasks_are_tagged_listed_and_changed_by_tags(http: httpx.Client) -> None:
    body = {"task_type": "resize", "tags": ["eu", "customer-42"]}
    task = http.post("/api/tasks", json=body).json()["task"]
    http.post("/api/tasks", json={"task_type": "resize", "tags": ["customer-4"]})
    assert task["tags"] == ["eu", "customer-42"]
    assert listed(http, tags="customer-42") == listed(http, tags="eu,customer-42") == [task["id"]]
    cancelled = http.post("/api/tasks/cancel", json={"tags": ["eu"]}).json()
    assert (cancelled["count"], cancelled["next_cursor"]) == (1, None)


def test_a_tag_that_is_not_allowed_is_refused_in_words(http: httpx.Client) -> None:
    refused = http.post("/api/tasks", json={"task_type": "resize", "tags": ["eu", "a,b"]})
    words = "a tag: one line without commas, quotes and backslashes, and without spaces at its ends"
    assert refused.json()["error"] == f"Expected {words} - at `$.tags[1]`."
    refused = http.get("/api/tasks?tags=a,,b")
    assert refused.json()["error"] == "Expected 1 to 20 tags of 1 to 64 characters, separated by commas - at `$.tags`."


@pytest.mark.parametrize("tags", ["eu", [""], ["a,b"], ["x" * 65], ["a"] * 21, [" a"], [7], None])
def test_invalid_tags_are_refused_with_400(http: httpx.Client, tags: Any) -> None:
    assert http.post("/api/tasks", json={"task_type": "resize", "tags": tags}).status_code == 400


def test_a_long_search_returns_a_cursor_to_continue_with(
    http: httpx.Client, app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = app.enqueue("resize", {"name": "needle"})
    app.enqueue_many([dibs.NewTask("resize") for _ in range(50)])
    monkeypatch.setattr("dibs.server.api.tasks.SEARCH_SECONDS", 0.0)
    pages, cursor = [], None
    while True:
        query = {"text": "needle"} if cursor is None else {"text": "needle", "cursor": cursor}
        pages.append(http.get("/api/tasks", params=query).json())
        cursor = pages[-1]["next_cursor"]
        if cursor is None:
            break
    assert len(pages) > 2
    assert [task["id"] for page in pages for task in page["tasks"]] == [wanted.id]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has 10,000 characters, and is read 5 tasks at a time."""
    monkeypatch.setattr("dibs.model.search.PAGE_CONTENT", 10_000)
    for module in ("inspect", "claim"):
        monkeypatch.setattr(f"dibs.store.operations.{module}.ROWS_AT_ONCE", 5)


def pages(http: httpx.Client, path: str) -> list[list[int]]:
    """The ids of the tasks on each page, from the first page to the last."""
    found, cursor = list[list[int]](), ""
    while True:
        page = http.get(f"{path}{cursor}").json()
        found.append([task["id"] for task in page["tasks"]])
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("path", ["/api/tasks?limit=20", "/api/tasks?limit=20&text=xxx", "/api/dead-letter?limit=20"])
def test_a_page_of_large_tasks_ends_early_and_its_cursor_continues(
    http: httpx.Client, app: dibs.Dibs, path: str
) -> None:
    """Decoding a page of a thousand tasks of a megabyte would take gigabytes, and stop the server for minutes."""
    for size in [4000] * 5 + [1] * 7 + [60_000] * 2:
        task_in(app, "failed", params={"text": "xxx" + "x" * size})
    found = pages(http, path)
    assert [len(page) for page in found] == [1, 1, 9, 2, 1]
    assert [task for page in found for task in page] == list(range(14, 0, -1))


@pytest.mark.usefixtures("small_pages")
def test_a_peek_at_large_tasks_ends_early(http: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue_many([dibs.NewTask("large", {"text": "x" * size}) for size in [1] * 7 + [4000] * 7])
    found = http.post("/api/tasks/peek", json={"count": 14}).json()["tasks"]
    assert [task["id"] for task in found] == list(range(1, 10))
    assert len(app.peek(14)) == 14


@pytest.mark.usefixtures("small_pages")
def test_a_client_of_a_server_gets_as_many_large_tasks_as_it_asks_for(server: Served, app: dibs.Dibs) -> None:
    for _ in range(9):
        task_in(app, "failed", params={"text": "x" * 4000})
    with dibs.Dibs(server.url) as remote:
        assert [task.id for task in remote.list_tasks(limit=8)] == list(range(9, 1, -1))
        assert [task.id for task in remote.list_dead(limit=8)] == list(range(9, 1, -1))
        assert [task.id for task in remote.list_tasks(text="xxx", limit=8)] == list(range(9, 1, -1))
        assert len(remote.list_tasks(limit=10)) == 9


@pytest.mark.parametrize("query", BAD_QUERIES)
def test_a_filter_that_cannot_match_is_a_bad_request(http: httpx.Client, query: str) -> None:
    answer = http.get(f"/api/tasks?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0].rstrip("s") in answer.json()["error"]
    assert "unknown" not in answer.json()["error"]  # the filter is known, its value is wrong


def test_all_matching_tasks_are_cancelled_and_retried(http: httpx.Client, app: dibs.Dibs) -> None:
    tasks = [app.enqueue("resize", {"n": n}, queue="media") for n in range(3)]
    other = app.enqueue("resize", queue="other")
    answer = http.post("/api/tasks/cancel", json={"queue": "media"})
    assert (answer.status_code, answer.json()) == (200, {"success": True, "count": 3, "next_cursor": None})
    assert {task.state for task in app.list_tasks(queue="media")} == {"cancelled"}
    answer = http.post("/api/tasks/retry", json={"status": "cancelled", "text": '"n":1'})
    assert answer.json() == {"success": True, "count": 1, "next_cursor": None}
    assert [task.id for task in app.list_tasks(state="pending")] == [other.id, tasks[1].id]


@pytest.mark.parametrize("body", [{}, {"queue": None}, {"cursor": 5}, {"colour": "red"}, {"limit": 5}], ids=str)
def test_a_bulk_action_without_a_filter_changes_nothing(http: httpx.Client, app: dibs.Dibs, body: Any) -> None:
    app.enqueue("resize", delay=60)
    for verb in ("cancel", "retry"):
        assert http.post(f"/api/tasks/{verb}", json=body).status_code == 400
    assert app.stats().depth == {"scheduled": 1}


def test_a_key_finds_and_changes_tasks_of_its_queues_only(keyed: Served, app: dibs.Dibs) -> None:
    mine = app.enqueue("resize", {"name": "needle"}, queue="mine", key="a")
    theirs = app.enqueue("resize", {"name": "needle"}, queue="theirs", key="b")
    client = keyed.client("read", "enqueue", queues=["mine"])
    assert listed(client, text="needle") == listed(client, since="2000-01-01T00:00:00Z") == [mine.id]
    assert listed(client, key="b") == []
    for path in ("cancel", "retry"):
        refused = client.post(f"/api/tasks/{path}", json={"queue": "theirs"})
        assert (refused.status_code, refused.json()["code"]) == (403, "queue_not_allowed")
        assert client.post(f"/api/tasks/{path}", json={"key": "b"}).json()["count"] == 0
    assert client.get("/api/tasks?queue=theirs&text=needle").status_code == 403
    assert client.post("/api/tasks/cancel", json={"text": "needle"}).json()["count"] == 1
    assert (app.get(mine.id).state, app.get(theirs.id).state) == ("cancelled", "pending")  # type: ignore[union-attr]


@pytest.mark.parametrize("scope", ["read", "work"])
def test_a_bulk_action_needs_the_scope_of_cancel_and_retry(keyed: Served, app: dibs.Dibs, scope: str) -> None:
    task_in(app, "pending")
    client = keyed.client(scope)
    for verb in ("cancel", "retry"):
        assert client.post(f"/api/tasks/{verb}", json={"status": "pending"}).status_code == 403


def test_a_bulk_action_is_signed_with_the_key(keyed: Served, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    key = keyed.key("enqueue")
    keyed.client_with(**{"X-API-Key": key.key}).post("/api/tasks/cancel", json={"task_type": "resize"})
    assert app.history(task.id)[-1].by == key.about.id
