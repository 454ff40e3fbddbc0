"""Every resource beside tasks and claims: its normal response, its refusals, and its content for a limited key."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import httpx
import psycopg
import pytest

import dibs
from dibs.server.api import ENDPOINTS, health
from dibs.server.app import create_app
from dibs.server.config import ServerConfig
from dibs.server.statistics import store_metrics
from dibs.store.open import open_store
from dibs.wire.history import HistoryEntry
from tests.helpers.clients import Clock
from tests.helpers.retention import keep
from tests.helpers.tasks import dead, task_in
from tests.helpers.waiting import until
from tests.server.conftest import Served

SCHEDULE = {"name": "nightly", "cron": "0 3 * * *", "task_type": "report"}
VERBS = (("GET", ""), ("DELETE", ""), ("POST", "/enable"), ("POST", "/disable"), ("POST", "/run"))
"""What can be done to a schedule, by its name."""


def refused(answer: httpx.Response, status: int, code: str) -> bool:
    said = answer.json()
    assert (answer.status_code, said["code"]) == (status, code), said
    assert said["success"] is False
    return True


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.fixture
def limited(keyed: Served) -> httpx.Client:
    """A client whose key may do everything, to one queue."""
    return keyed.client("admin", queues=["mine"])


# Wake-ups


def test_wakeups_answer_at_once_if_the_client_names_another_process(http: httpx.Client) -> None:
    said = ok(http.get("/api/wakeups?process=other&generation=5&wait_seconds=60"))
    assert said["process"]
    assert isinstance(said["generation"], int)


def test_wakeups_answer_when_something_changes(server: Served, app: dibs.Dibs) -> None:
    client = server.client()
    seen = ok(client.get("/api/wakeups"))
    answers: list[Any] = []
    query = {**seen, "wait_seconds": 15}
    waiting = threading.Thread(target=lambda: answers.append(ok(client.get("/api/wakeups", params=query))))
    waiting.start()
    began = time.monotonic()
    ok(server.client().post("/api/tasks", json={"task_type": "resize"}), 201)
    waiting.join()
    assert time.monotonic() - began < 10
    assert answers[0]["process"] == seen["process"]
    assert answers[0]["generation"] > seen["generation"]


def test_wakeups_return_the_known_generation_after_the_wait(http: httpx.Client) -> None:
    seen = until(lambda: settled(http))
    assert ok(http.get("/api/wakeups", params={**seen, "wait_seconds": 0.05})) == seen


def settled(http: httpx.Client) -> Any:
    """What the server has noticed, once it has noticed all of its own beginning."""
    seen = ok(http.get("/api/wakeups"))
    return seen if ok(http.get("/api/wakeups", params={**seen, "wait_seconds": 0.5})) == seen else None


def test_wakeups_refuse_malformed_parameters(http: httpx.Client) -> None:
    for query in ["wait_seconds=61", "wait_seconds=nan", "generation=-1", "generation=x", "other=1"]:
        assert refused(http.get(f"/api/wakeups?{query}"), 400, "bad_request")


def test_any_scope_may_wait_for_wakeups(keyed: Served) -> None:
    for scope in ("enqueue", "work", "read", "admin"):
        ok(keyed.client(scope, queues=["mine"]).get("/api/wakeups"))


# Workers


def test_a_heartbeat_registers_a_worker_and_leaving_removes_it(http: httpx.Client) -> None:
    beat = {
        "worker_id": "worker-1",
        "incarnation": "abc",
        "queues": ["images"],
        "task_types": ["resize"],
        "metadata": {"host": "a1"},
    }
    assert ok(http.post("/api/workers/heartbeat", json=beat)) == {"success": True}
    [worker] = ok(http.get("/api/workers"))["workers"]
    assert {name: worker[name] for name in ("id", "incarnation", "state", "queues", "task_types", "metadata")} == {
        "id": "worker-1",
        "incarnation": "abc",
        "state": "active",
        "queues": ["images"],
        "task_types": ["resize"],
        "metadata": {"host": "a1"},
    }
    ok(http.post("/api/workers/heartbeat", json={**beat, "leaving": True}))
    assert ok(http.get("/api/workers"))["workers"][0]["state"] == "gone"


def test_a_malformed_heartbeat_is_refused(http: httpx.Client) -> None:
    for beat in [
        {},
        {"worker_id": "a b"},
        {"worker_id": "w", "queues": [1]},
        {"worker_id": "w", "metadata": []},
        {"worker_id": "w", "metadata": {"a": "\x00"}},
        {"worker_id": "w", "incarnation": ""},
        {"worker_id": "w", "state": "active"},
    ]:
        assert http.post("/api/workers/heartbeat", json=beat).status_code == 400


def test_a_limited_key_sees_the_workers_of_its_queues_and_what_they_hold_there(
    limited: httpx.Client, keyed: Served, app: dibs.Dibs
) -> None:
    everyone = keyed.client("work")
    bounds = {"queue_bounds": {"mine": 1, "theirs": 2}, "host": "x"}
    both = {"worker_id": "both", "queues": ["mine", "theirs"], "metadata": bounds}
    ok(everyone.post("/api/workers/heartbeat", json={"worker_id": "all"}))
    ok(everyone.post("/api/workers/heartbeat", json=both))
    ok(everyone.post("/api/workers/heartbeat", json={"worker_id": "foreign", "queues": ["theirs"]}))
    mine = app.enqueue("resize", queue="mine")
    theirs = app.enqueue("resize", queue="theirs")
    for task in (mine, theirs):
        app.claim_by_id(task.id, "both")
    workers = {each["id"]: each for each in ok(limited.get("/api/workers"))["workers"]}
    assert sorted(workers) == ["all", "both"]
    assert workers["both"]["queues"] == ["mine"]
    assert workers["both"]["metadata"] == {"queue_bounds": {"mine": 1}, "host": "x"}
    assert workers["both"]["holds"] == [mine.id]


def test_a_worker_with_a_limited_key_serves_its_queues(keyed: Served, app: dibs.Dibs) -> None:
    worker = keyed.client("work", queues=["mine"])
    ok(worker.post("/api/workers/heartbeat", json={"worker_id": "w"}))
    assert app.workers()[0].queues == ["mine"]
    foreign = {"worker_id": "w", "queues": ["theirs"]}
    assert refused(worker.post("/api/workers/heartbeat", json=foreign), 403, "queue_not_allowed")


# Queues


def test_a_task_type_is_paused_and_resumed(http: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue("resize")
    assert ok(http.post("/api/task-types/resize/pause")) == {"success": True, "task_type": "resize", "paused": True}
    assert [each["name"] for each in ok(http.get("/api/paused-task-types"))["task_types"]] == ["resize"]
    assert app.claim("worker-1") is None
    answer = http.post("/api/task-types/resize/resume", json={})
    assert ok(answer) == {"success": True, "task_type": "resize", "paused": False}
    assert ok(http.get("/api/paused-task-types"))["task_types"] == []


def test_a_task_has_its_expiry_over_http(http: httpx.Client) -> None:
    soon = http.post("/api/tasks", json={"task_type": "resize", "expires_in_seconds": 60}).json()["task"]
    assert soon["expires_at"] > soon["created_at"]
    at = {"task_type": "resize", "expires_at": "2000-01-01T00:00:00Z"}
    late = http.post("/api/tasks", json=at).json()["task"]
    assert late["expires_at"] == "2000-01-01T00:00:00.000000Z"
    assert ok(http.post("/api/upkeep/expire-tasks"))["count"] == 1
    task = ok(http.get(f"/api/tasks/{late['id']}"))["task"]
    assert (task["status"], task["error"]["type"]) == ("cancelled", "TaskExpired")
    assert "expires_at" not in http.post("/api/tasks", json={"task_type": "resize"}).json()["task"]
    both = http.post("/api/tasks", json=at | {"expires_in_seconds": 60})
    assert (both.status_code, "not both" in both.json()["error"]) == (400, True)


def test_queues_are_listed_with_their_depth_and_pause(http: httpx.Client, app: dibs.Dibs) -> None:
    task_in(app, "completed", queue="a")
    app.enqueue("resize", queue="a")
    assert ok(http.post("/api/queues/b/pause")) == {"success": True, "queue": "b", "paused": True}
    a, b = ok(http.get("/api/queues"))["queues"]
    assert (a["name"], a["paused"], a["depth"]) == ("a", False, {"completed": 1, "pending": 1})
    assert (b["name"], b["paused"]) == ("b", True)
    assert ok(http.post("/api/queues/b/resume", json={})) == {"success": True, "queue": "b", "paused": False}
    assert not ok(http.get("/api/queues"))["queues"][1]["paused"]


def test_a_name_in_a_path_may_contain_any_character(http: httpx.Client, app: dibs.Dibs) -> None:
    names = {"a%2Fb": "a/b", "%C3%BC%20x": "ü x", "%2E%2E": "..", "a%3Fb": "a?b"}
    for path, name in names.items():
        assert ok(http.post(f"/api/queues/{path}/pause"))["queue"] == name
    assert {queue.name for queue in app.queues() if queue.paused} == set(names.values())


@pytest.mark.parametrize("name", ["%FF", "%00", "a%0Ab", "%ED%A0%80", "x" * 256])
def test_a_malformed_name_in_a_path_is_refused(http: httpx.Client, name: str) -> None:
    for method, path in (
        ("POST", f"/api/queues/{name}/pause"),
        ("GET", f"/api/task-types/{name}"),
        ("GET", f"/api/schedules/{name}"),
        ("DELETE", f"/api/schedules/{name}"),
        ("POST", f"/api/schedules/{name}/run"),
    ):
        assert refused(http.request(method, path), 400, "invalid_value")


def test_a_limited_key_sees_and_pauses_only_its_queues(limited: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue("resize", queue="mine")
    app.enqueue("resize", queue="theirs")
    assert [queue["name"] for queue in ok(limited.get("/api/queues"))["queues"]] == ["mine"]
    ok(limited.post("/api/queues/mine/pause"))
    assert refused(limited.post("/api/queues/theirs/pause"), 403, "queue_not_allowed")
    assert refused(limited.post("/api/queues/theirs/resume"), 403, "queue_not_allowed")
    assert [queue.name for queue in app.queues() if queue.paused] == ["mine"]


# Task types


def test_a_task_type_is_registered_version_by_version(http: httpx.Client) -> None:
    first = {"name": "resize", "schema": {"type": "object", "required": ["width"]}, "defaults": {"width": 800}}
    said = ok(http.post("/api/task-types", json=first), 201)
    assert said["success"]
    assert said["task_type"]["version"] == 1
    assert ok(http.post("/api/task-types", json=first), 201)["task_type"]["version"] == 1
    ok(http.post("/api/task-types", json={"name": "resize"}), 201)
    assert ok(http.get("/api/task-types/resize"))["task_type"]["version"] == 2
    assert ok(http.get("/api/task-types/resize?version=1"))["task_type"]["schema"] == first["schema"]
    assert [kind["version"] for kind in ok(http.get("/api/task-types"))["task_types"]] == [2, 1]


def test_a_malformed_task_type_is_refused(http: httpx.Client) -> None:
    for kind in [
        {},
        {"name": ""},
        {"name": "a", "schema": 5},
        {"name": "a", "schema": {"type": "no"}},
        {"name": "a", "defaults": []},
    ]:
        assert http.post("/api/task-types", json=kind).status_code == 400


def test_an_unknown_task_type_is_not_found(http: httpx.Client) -> None:
    assert refused(http.get("/api/task-types/nothing"), 404, "task_type_not_found")
    assert refused(http.get("/api/task-types/nothing?version=0"), 400, "bad_request")


# Schedules


def test_a_schedule_is_stored_changed_and_removed(http: httpx.Client, app: dibs.Dibs) -> None:
    full = {
        **SCHEDULE,
        "params": {"kind": "full"},
        "timezone": "Europe/Berlin",
        "catch_up": "all",
        "enabled": False,
        "queue": "reports",
        "priority": 5,
        "max_attempts": 7,
        "timeout_seconds": 30.0,
        "backoff": {"base_seconds": 2.0, "cap_seconds": 60.0},
        "source": "code",
    }
    stored = ok(http.post("/api/schedules", json=full))["schedule"]
    assert {name: stored[name] for name in full} == full
    read = ok(http.get("/api/schedules/nightly"))
    assert (read["schedule"], stored["description"]) == (stored, "at 03:00 every day, Europe/Berlin")
    assert len(read["next_runs"]) == 5 * stored["enabled"]
    assert ok(http.get("/api/schedules")) == {"schedules": [stored]}
    changed = ok(http.post("/api/schedules", json=SCHEDULE))["schedule"]
    assert (changed["queue"], changed["source"], changed["enabled"]) == ("default", "command", False)
    assert ok(http.post("/api/schedules/nightly/enable"))["schedule"]["enabled"]
    assert not ok(http.post("/api/schedules/nightly/disable"))["schedule"]["enabled"]
    task = ok(http.post("/api/schedules/nightly/run"), 201)["task"]
    assert (task["task_type"], task["status"]) == ("report", "pending")
    assert ok(http.delete("/api/schedules/nightly")) == {"success": True}
    assert app.schedules() == []


def test_a_malformed_schedule_is_refused(http: httpx.Client) -> None:
    for wrong in [
        {"name": ""},
        {"name": "x" * 226},
        {"cron": "every night"},
        {"cron": "0 0 30 2 *"},
        {"timezone": "Mars/Olympus"},
        {"catch_up": "some"},
        {"task_type": ""},
        {"params": []},
        {"params": {"a": "\x00"}},
        {"priority": 2**31},
        {"backoff": {"base_seconds": 5, "cap_seconds": -1}},
        {"source": "thin air"},
        {"next_at": "2025-11-12T10:30:00Z"},
    ]:
        assert http.post("/api/schedules", json={**SCHEDULE, **wrong}).status_code == 400


def test_an_unknown_schedule_is_not_found(http: httpx.Client) -> None:
    for method, path in VERBS:
        answer = http.request(method, f"/api/schedules/nothing{path}")
        assert refused(answer, 404, "schedule_not_found")
        assert answer.json()["name"] == "nothing"


def test_a_schedule_may_have_the_name_due(http: httpx.Client) -> None:
    ok(http.post("/api/schedules", json={**SCHEDULE, "name": "due"}))
    assert ok(http.get("/api/schedules/due"))["schedule"]["name"] == "due"


def test_a_due_schedule_is_ticked_once(serve: Any, clock: Clock) -> None:
    http = serve(clock=clock).client()
    ok(http.post("/api/schedules", json={**SCHEDULE, "cron": "* * * * *"}))
    assert ok(http.get("/api/upkeep/due-schedules")) == {"due": []}
    clock.advance(60)
    [due] = ok(http.get("/api/upkeep/due-schedules"))["due"]
    tick = {**{name: due["schedule"][name] for name in ("next_at", "cron", "timezone")}, "now": due["now"]}
    assert ok(http.post("/api/schedules/nightly/tick", json=tick)) == {"success": True, "count": 1}
    assert ok(http.post("/api/schedules/nightly/tick", json=tick)) == {"success": True, "count": 0}


@pytest.mark.parametrize("now", ["0002-01-01T00:00:00Z", "9998-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_the_time_of_the_caller_does_not_make_a_tick_due(serve: Any, clock: Clock, now: str) -> None:
    http = serve(clock=clock).client()
    ok(http.post("/api/schedules", json={**SCHEDULE, "cron": "* * * * *", "catch_up": "all"}))
    clock.advance(60)
    [due] = ok(http.get("/api/upkeep/due-schedules"))["due"]
    tick = {**{name: due["schedule"][name] for name in ("next_at", "cron", "timezone")}, "now": now}
    assert ok(http.post("/api/schedules/nightly/tick", json=tick))["count"] == 1
    assert ok(http.get("/api/schedules/nightly"))["schedule"]["next_at"] > due["now"]


def test_a_tick_without_a_time_zone_is_refused(http: httpx.Client) -> None:
    ok(http.post("/api/schedules", json=SCHEDULE))
    tick = {"next_at": "2025-11-12T10:30:00", "now": "2025-11-12T10:30:00Z", "cron": "0 3 * * *", "timezone": "UTC"}
    assert http.post("/api/schedules/nightly/tick", json=tick).status_code == 400
    tick["next_at"] = "2025-11-12T10:30:00Z"
    assert refused(http.post("/api/schedules/nothing/tick", json=tick), 404, "schedule_not_found")


def test_the_schedules_of_other_queues_do_not_exist_for_a_limited_key(limited: httpx.Client, app: dibs.Dibs) -> None:
    app.set_schedule("mine", "0 3 * * *", "report", queue="mine")
    app.set_schedule("theirs", "0 3 * * *", "report", queue="theirs")
    assert [plan["name"] for plan in ok(limited.get("/api/schedules"))["schedules"]] == ["mine"]
    for method, path in VERBS:
        answer = limited.request(method, f"/api/schedules/theirs{path}")
        assert refused(answer, 404, "schedule_not_found")
    assert [plan.enabled for plan in app.schedules()] == [True, True]
    assert app.list_tasks() == []
    ok(limited.post("/api/schedules/mine/disable"))
    ok(limited.post("/api/schedules/mine/enable"))
    ok(limited.post("/api/schedules/mine/run"), 201)
    ok(limited.delete("/api/schedules/mine"))
    assert [plan.name for plan in app.schedules()] == ["theirs"]


def test_a_limited_key_can_neither_schedule_for_nor_take_over_another_queue(
    limited: httpx.Client, app: dibs.Dibs
) -> None:
    before = app.set_schedule("theirs", "0 3 * * *", "report", queue="theirs")
    foreign = {**SCHEDULE, "queue": "theirs"}
    assert refused(limited.post("/api/schedules", json=foreign), 403, "queue_not_allowed")
    takeover = {**SCHEDULE, "name": "theirs", "queue": "mine"}
    assert refused(limited.post("/api/schedules", json=takeover), 403, "queue_not_allowed")
    assert app.schedules() == [before]
    ok(limited.post("/api/schedules", json={**SCHEDULE, "queue": "mine"}))


# Numbers


def test_stats_return_the_depth_of_the_store(http: httpx.Client, app: dibs.Dibs) -> None:
    task_in(app, "completed", queue="a")
    app.enqueue("resize", queue="b")
    assert ok(http.get("/api/stats"))["stats"]["by_queue"] == {"a": {"completed": 1}, "b": {"pending": 1}}


def test_the_stats_of_a_limited_key_cover_its_queues(limited: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue("resize", queue="theirs")
    app.enqueue("resize", queue="mine")
    assert ok(limited.get("/api/stats"))["stats"]["by_queue"] == {"mine": {"pending": 1}}


def test_metrics_have_the_same_figures_in_the_format_of_prometheus(http: httpx.Client, app: dibs.Dibs) -> None:
    task_in(app, "completed", queue="a")
    app.enqueue("resize", queue='odd "name"\\')
    app.pause("b")
    ok(http.post("/api/workers/heartbeat", json={"worker_id": "w"}))
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'dibs_tasks{queue="a",state="completed"} 1.0' in lines
    assert 'dibs_tasks{queue="a",state="pending"} 0.0' in lines
    assert 'dibs_tasks{queue="odd \\"name\\"\\\\",state="pending"} 1.0' in lines
    assert 'dibs_finished_tasks_last_minute{state="completed"} 1.0' in lines
    assert 'dibs_workers{state="active"} 1.0' in lines
    assert 'dibs_queue_paused{queue="b"} 1.0' in lines
    assert 'dibs_queue_paused{queue="a"} 0.0' in lines
    assert f'dibs_build_info{{version="{dibs.__version__}"}} 1.0' in lines
    for name in (
        "dibs_oldest_pending_age_seconds ",
        'dibs_task_wait_seconds{quantile="0.95"}',
        "dibs_task_run_seconds{",
    ):
        assert any(line.startswith(name) for line in lines), name


def of_store(page: str) -> list[str]:
    """The lines that come from the database."""
    return [line for line in page.splitlines() if line.startswith("dibs_")]


def test_scraping_does_not_read_the_store_each_time(
    server: Served, app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_metrics, "CACHE_SECONDS", 600.0)
    http = server.client()
    first = of_store(http.get("/metrics").text)
    app.enqueue("resize")
    assert of_store(http.get("/metrics").text) == first
    monkeypatch.setattr(store_metrics, "CACHE_SECONDS", 0.0)
    monkeypatch.setattr(store_metrics, "CACHE_FACTOR", 0.0)
    server.service.metrics._pages.clear()  # as after its time
    until(lambda: 'state="pending"} 1.0' in http.get("/metrics").text)


def test_the_metrics_of_a_limited_key_cover_its_queues(limited: httpx.Client, keyed: Served, app: dibs.Dibs) -> None:
    app.enqueue("resize", queue="theirs")
    app.enqueue("resize", queue="mine")
    assert "theirs" in keyed.client("read").get("/metrics").text
    page = limited.get("/metrics").text
    assert 'queue="mine"' in page
    assert "theirs" not in page


# History


def test_the_history_of_all_tasks_is_paged(http: httpx.Client, app: dibs.Dibs) -> None:
    for _ in range(3):
        task_in(app, "cancelled")
    pages, after = [], 0
    while page := ok(http.get(f"/api/history?after={after}&limit=4"))["history"]:
        pages.append(page)
        after = page[-1]["id"]
    assert [len(page) for page in pages] == [4, 2]
    entries = [HistoryEntry.from_model(entry) for entry in app.all_history()]
    assert [entry["id"] for page in pages for entry in page] == [entry.id for entry in entries]


def test_invalid_parameters_of_a_page_of_history_are_refused(http: httpx.Client) -> None:
    for query in ["limit=0", "limit=1001", "after=-1", "after=9223372036854775808", "after=x", "from=1"]:
        assert refused(http.get(f"/api/history?{query}"), 400, "bad_request")


# Upkeep


def test_a_request_for_upkeep_promotes_recovers_and_prunes(serve: Any, url: str, clock: Clock) -> None:
    http = serve(clock=clock).client()
    with dibs.Dibs(url, clock=clock) as app:
        late = app.enqueue("resize", delay=10)
        lost = app.claim_by_id(app.enqueue("resize").id, "worker-1", lease=10)
        done = task_in(app, "completed")
        ok(http.post("/api/workers/heartbeat", json={"worker_id": "w"}))
        clock.advance(60)
        assert ok(http.post("/api/upkeep/promote")) == {"success": True, "count": 1}
        assert ok(http.post("/api/upkeep/recover", json={"limit": 10})) == {"success": True, "count": 1}
        assert [app.get(each).state for each in (late.id, lost.task_id)] == ["pending", "pending"]
        keep(app, completed=61)
        assert ok(http.post("/api/upkeep/prune")) == {"success": True, "count": 0, "next": None}
        keep(app, completed=59, history=59, workers=59)
        assert ok(http.post("/api/upkeep/prune")) == {"success": True, "count": 1, "next": None}
        assert app.get(done.id) is None
        kept = len(app.all_history())
        assert ok(http.post("/api/upkeep/prune-history", json={"limit": 2}))["count"] == 2
        assert len(app.all_history()) == kept - 2
        assert ok(http.post("/api/upkeep/prune-workers"))["count"] == 1


def test_pruning_continues_from_the_position_of_the_previous_response(http: httpx.Client, app: dibs.Dibs) -> None:
    for _ in range(3):
        task_in(app, "completed")
    keep(app, completed=0)
    counts, after = [], {}
    while True:
        said = ok(http.post("/api/upkeep/prune", json={"limit": 2, **after}))
        counts.append(said["count"])
        if said["next"] is None:
            break
        after = {"after": said["next"]}
    assert counts == [2, 1]


def test_malformed_upkeep_is_refused(http: httpx.Client) -> None:
    for path, body in (
        ("promote", {"limit": 0}),
        ("recover", {"limit": 1001}),
        ("prune", {"completed_seconds": 1}),
        ("prune", {"after": 5}),
        ("prune-history", {"history_seconds": 1}),
        ("prune-workers", {"limit": 5}),
    ):
        assert refused(http.post(f"/api/upkeep/{path}", json=body), 400, "bad_request")
    for after in ("the-middle", '{"rules": 1, "at": {"completed": 1e300}}', '{"rules": 1, "at": {"completed": -1}}'):
        assert refused(http.post("/api/upkeep/prune", json={"after": after}), 400, "invalid_value")


# The dead letter


def test_the_dead_letter_is_redriven_by_filter(http: httpx.Client, app: dibs.Dibs) -> None:
    dead(app, 3, error="503 from upstream", queue="a")
    dead(app, 2, error="gone", queue="b")
    assert ok(http.post("/api/dead-letter/redrive", json={"error": "503", "limit": 2})) == {
        "success": True,
        "redriven": 2,
    }
    assert ok(http.post("/api/dead-letter/redrive", json={"queue": "b", "task_type": "other"}))["redriven"] == 0
    assert ok(http.post("/api/dead-letter/redrive", json={"queue": "b"}))["redriven"] == 2
    assert ok(http.post("/api/dead-letter/redrive"))["redriven"] == 1


def test_redriving_continues_over_many_batches(http: httpx.Client, app: dibs.Dibs) -> None:
    dead(app, 1200)
    assert ok(http.post("/api/dead-letter/redrive", json={"limit": 1100}))["redriven"] == 1100
    assert app.stats().depth == {"pending": 1100, "failed": 100}


def test_a_malformed_redrive_is_refused(http: httpx.Client) -> None:
    for body in [{"limit": 0}, {"limit": 10_001}, {"queue": ""}, {"status": "failed"}]:
        assert refused(http.post("/api/dead-letter/redrive", json=body), 400, "bad_request")


def test_a_limited_key_redrives_only_its_queues(keyed: Served, app: dibs.Dibs) -> None:
    for queue in ("one", "two", "theirs"):
        dead(app, 2, queue=queue)
    client = keyed.client("admin", queues=["one", "two"])
    assert refused(client.post("/api/dead-letter/redrive", json={"queue": "theirs"}), 403, "queue_not_allowed")
    assert ok(client.post("/api/dead-letter/redrive", json={"limit": 3}))["redriven"] == 3
    assert ok(client.post("/api/dead-letter/redrive"))["redriven"] == 1
    assert app.stats().by_queue["theirs"] == {"failed": 2}


# Keys


def test_a_key_is_shown_once_and_works_until_it_is_revoked(keyed: Served) -> None:
    admin = keyed.client("admin")
    wish = {"name": "fleet", "scopes": ["read"], "queues": ["mine"], "rate_limit": "600/minute"}
    made = ok(admin.post("/api/keys", json=wish), 201)
    assert made["success"]
    assert made["key"].startswith(f"dibs_{made['id']}_")
    assert {name: made[name] for name in wish} == wish
    listed = ok(admin.get("/api/keys"))["keys"]
    assert [key["name"] for key in listed] == ["test", "fleet"]
    assert "key" not in listed[1]
    assert "digest" not in listed[1]
    fleet = keyed.client_with(**{"X-API-Key": made["key"]})
    ok(fleet.get("/api/stats"))
    said = ok(admin.delete(f"/api/keys/{made['id']}"))
    assert (said["success"], said["id"]) == (True, made["id"])
    assert refused(fleet.get("/api/stats"), 401, "unauthorized")
    assert ok(admin.delete(f"/api/keys/{made['id']}")) == said


def test_a_key_may_revoke_itself(keyed: Served) -> None:
    key = keyed.key("admin")
    client = keyed.client_with(**{"X-API-Key": key.key})
    ok(client.delete(f"/api/keys/{key.about.id}"))
    assert refused(client.get("/api/keys"), 401, "unauthorized")


def test_a_key_can_expire(keyed: Served) -> None:
    admin = keyed.client("admin")
    wish = {"name": "guest", "scopes": ["read"], "expires_at": "2001-01-01T00:00:00+01:00"}
    made = ok(admin.post("/api/keys", json=wish), 201)
    assert made["expires_at"] == "2000-12-31T23:00:00.000000Z"
    assert refused(keyed.client_with(**{"X-API-Key": made["key"]}).get("/api/stats"), 401, "unauthorized")


def test_a_malformed_key_is_refused(http: httpx.Client) -> None:
    for wrong in [
        {"name": ""},
        {"scopes": []},
        {"scopes": ["root"]},
        {"scopes": "read"},
        {"queues": []},
        {"queues": ["\x00"]},
        {"rate_limit": "0/minute"},
        {"rate_limit": "1000000001/minute"},
        {"rate_limit": "none\n"},
        {"rate_limit": None},
        {"expires_in_seconds": 0},
        {"expires_at": "2030-01-01T00:00:00"},
        {"expires_at": "2030-01-01T00:00:00Z", "expires_in_seconds": 5},
        {"id": "chosen"},
    ]:
        answer = http.post("/api/keys", json={"name": "fleet", "scopes": ["read"], **wrong})
        assert answer.status_code == 400
        assert ok(http.get("/api/keys"))["keys"] == []


def test_an_unknown_key_is_not_found_and_not_repeated_in_the_error(http: httpx.Client) -> None:
    for key_id in ["aaaaaaaaaaaa", "x", "%FF", "dibs_aaaaaaaaaaaa_secret"]:
        answer = http.delete(f"/api/keys/{key_id}")
        assert refused(answer, 404, "key_not_found")
        assert "secret" not in answer.text


# Health


def test_the_doctor_returns_its_checks(http: httpx.Client) -> None:
    checks = ok(http.get("/api/doctor"))["checks"]
    assert {"schema"} <= {check["name"] for check in checks}
    assert {check["verdict"] for check in checks} <= {"ok", "warn"}


def test_health_and_readiness_need_no_key(keyed: Served) -> None:
    client = keyed.client()
    assert ok(client.get("/health")) == {"status": "alive"}
    assert ok(client.get("/ready")) == {"status": "ready"}


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_server_whose_database_does_not_answer_is_alive_and_not_ready(
    http: httpx.Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ANSWER_TIMEOUT", 0.3)
    ok(http.get("/ready"))
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE dibs_history")
        answer = http.get("/ready")
        assert refused(answer, 503, "store_unavailable")
        assert answer.headers["retry-after"] == "1"
        ok(http.get("/health"))
    ok(http.get("/ready"))


def test_a_server_that_is_about_to_stop_is_not_ready(url: str) -> None:
    config = ServerConfig(keys=False, access_log=False, upkeep=False)
    gate = create_app(open_store(url), config)  # type: ignore[arg-type]

    async def ask() -> httpx.Response:
        gate.service.stop_waiting()
        transport = httpx.ASGITransport(app=gate)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/ready")

    assert refused(asyncio.run(ask()), 503, "stopping")


# Scopes


WHOLE_STORE = [
    ("POST", "/api/task-types", {"name": "a"}),
    ("GET", "/api/history", None),
    ("POST", "/api/upkeep/promote", None),
    ("POST", "/api/upkeep/recover", None),
    ("POST", "/api/upkeep/prune", None),
    ("POST", "/api/upkeep/prune-history", None),
    ("POST", "/api/upkeep/prune-workers", None),
    ("GET", "/api/upkeep/due-schedules", None),
    (
        "POST",
        "/api/schedules/mine/tick",
        {"next_at": "2025-11-12T10:30:00Z", "now": "2025-11-12T10:30:00Z", "cron": "0 3 * * *", "timezone": "UTC"},
    ),
    ("POST", "/api/keys", {"name": "a", "scopes": ["admin"]}),
    ("GET", "/api/keys", None),
    ("DELETE", "/api/keys/aaaaaaaaaaaa", None),
    ("GET", "/api/doctor", None),
]


def test_endpoints_about_the_whole_store_refuse_a_limited_key(limited: httpx.Client) -> None:
    for method, path, body in WHOLE_STORE:
        answer = limited.request(method, path, json=body) if body else limited.request(method, path)
        assert refused(answer, 403, "key_limited_to_queues"), path


def test_every_endpoint_refuses_a_key_without_its_scope_and_a_request_without_a_key(keyed: Served) -> None:
    nobody = keyed.client()
    clients = {scope: keyed.client(scope) for scope in ("enqueue", "work", "read")}
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace("{id:int}", "1").replace("{name:name}", "x").replace("{id:name}", "x")
        if not endpoint.scopes:
            continue
        assert refused(nobody.request(endpoint.method, path), 401, "unauthorized"), path
        for scope in clients.keys() - endpoint.scopes:
            assert refused(clients[scope].request(endpoint.method, path), 403, "forbidden"), path


def test_a_cross_site_request_changes_nothing(http: httpx.Client, app: dibs.Dibs) -> None:
    answer = http.post("/api/queues/a/pause", headers={"Origin": "http://evil.example"})
    assert refused(answer, 403, "wrong_origin")
    assert app.queues() == []


@pytest.mark.parametrize("path", ["/health", "/ready", "/api/docs"])
def test_endpoints_without_a_key_accept_head(keyed: Served, path: str) -> None:
    client = keyed.client()
    asked, probed = client.get(path), client.head(path)
    assert (probed.status_code, probed.content) == (200, b"")
    assert probed.headers["content-length"] == asked.headers["content-length"]
    assert client.head("/api/tasks").status_code == 405


# The dead letter


def test_the_dead_letter_is_listed_without_ignored_and_discarded_tasks(http: httpx.Client, app: dibs.Dibs) -> None:
    first, second, third = [dead(app, error=f"error {n}", queue=f"q{n}")[0] for n in range(3)]
    gone = ok(http.post(f"/api/tasks/{second}/discard"))
    assert (gone["task"]["status"], gone["task"]["set_aside"]) == ("failed", "discarded")
    page = ok(http.get("/api/dead-letter"))
    assert [task["id"] for task in page["tasks"]] == [third, first]
    assert "set_aside" not in page["tasks"][0]
    assert [task["id"] for task in ok(http.get("/api/dead-letter?queue=q0"))["tasks"]] == [first]
    assert [task["id"] for task in ok(http.get("/api/dead-letter?error=error+2"))["tasks"]] == [third]
    assert ok(http.get("/api/dead-letter?limit=1"))["next_cursor"] == third
    assert ok(http.get("/api/stats"))["stats"]["dead_letter"] == 2
    assert 'dibs_dead_letter_tasks{queue="q1"} 0.0' in http.get("/metrics").text


def test_tasks_of_the_dead_letter_are_discarded_by_ids_and_by_filter(http: httpx.Client, app: dibs.Dibs) -> None:
    tasks = [dead(app, queue=queue)[0] for queue in ("a", "a", "b", "b")]
    assert ok(http.post("/api/dead-letter/discard", json={"ids": [tasks[0], 999]})) == {"success": True, "discarded": 1}
    assert ok(http.post("/api/dead-letter/discard", json={"queue": "b", "limit": 1}))["discarded"] == 1
    assert [task.id for task in app.list_dead()] == [tasks[3], tasks[1]]
    assert ok(http.post("/api/dead-letter/discard"))["discarded"] == 2
    assert ok(http.post("/api/dead-letter/redrive"))["redriven"] == 0
    assert refused(http.post(f"/api/tasks/{app.enqueue('t').id}/discard"), 409, "wrong_state")


def test_a_limited_key_discards_only_tasks_of_its_queues(keyed: Served, app: dibs.Dibs) -> None:
    [mine], [theirs] = dead(app, queue="mine"), dead(app, queue="theirs")
    limited = keyed.client("admin", queues=["mine"])
    assert refused(limited.post(f"/api/tasks/{theirs}/discard"), 404, "task_not_found")
    assert refused(limited.post("/api/dead-letter/discard", json={"queue": "theirs"}), 403, "queue_not_allowed")
    assert ok(limited.post("/api/dead-letter/discard", json={"ids": [theirs]}))["discarded"] == 0
    assert [task["id"] for task in ok(limited.get("/api/dead-letter"))["tasks"]] == [mine]
    assert ok(limited.post("/api/dead-letter/discard"))["discarded"] == 1
    assert [task.id for task in app.list_dead()] == [theirs]
    assert keyed.client("enqueue", "work", "read").post("/api/dead-letter/discard").status_code == 403


# Retention


def test_retention_rules_are_set_listed_and_removed(http: httpx.Client) -> None:
    said = ok(http.post("/api/retention", json={"records": "completed", "task_type": "invoice", "keep_seconds": None}))
    assert said["rule"]["task_type"] == "invoice"
    assert said["rule"]["keep_seconds"] is None
    ok(http.post("/api/retention", json={"records": "history", "keep_seconds": 0}))
    rules = ok(http.get("/api/retention"))["rules"]
    assert [rule["records"] for rule in rules] == [
        "completed",
        "failed",
        "cancelled",
        "history",
        "workers",
        "completed",
    ]
    assert [rule["keep_seconds"] for rule in rules] == [86400, 2592000, 86400, 0, 86400, None]
    ok(http.post("/api/retention/remove", json={"records": "completed", "task_type": "invoice"}))
    again = http.post("/api/retention/remove", json={"records": "completed", "task_type": "invoice"})
    assert refused(again, 404, "retention_not_found")
    changes = ok(http.get("/api/retention/changes?limit=2"))["changes"]
    assert [(change["records"], change["removed"]) for change in changes] == [("completed", True), ("history", False)]


@pytest.mark.parametrize(
    "body",
    [
        {"records": "completed"},
        {"records": "pending", "keep_seconds": 1},
        {"records": "completed", "keep_seconds": -1},
        {"records": "completed", "keep_seconds": "1d"},
        {"records": "completed", "keep_seconds": 1, "queue": "a", "task_type": "b"},
        {"records": "history", "keep_seconds": 1, "queue": "a"},
        {"records": "completed", "keep_seconds": 1, "state": "failed"},
    ],
)
def test_an_invalid_retention_rule_is_a_400(http: httpx.Client, body: dict[str, Any]) -> None:
    assert http.post("/api/retention", json=body).status_code == 400


def test_a_limited_key_sees_the_defaults_and_its_own_rules_and_changes_only_those(
    keyed: Served, limited: httpx.Client, app: dibs.Dibs
) -> None:
    app.set_retention("completed", 1, queue="theirs")
    app.set_retention("completed", 2, type="resize")
    app.set_retention("completed", 3, workflow="order")
    rule = ok(limited.post("/api/retention", json={"records": "completed", "keep_seconds": 4, "queue": "mine"}))["rule"]
    assert rule["changed_by"] is not None
    rules = ok(limited.get("/api/retention"))["rules"]
    assert [rule["queue"] for rule in rules] == [None] * 5 + ["mine"]
    assert [change["queue"] for change in ok(limited.get("/api/retention/changes"))["changes"]] == ["mine"]
    theirs = {"records": "completed", "queue": "theirs"}
    for body in (theirs, {"records": "completed"}, {"records": "completed", "task_type": "resize"}):
        code = "queue_not_allowed" if "queue" in body else "key_limited_to_queues"
        assert refused(limited.post("/api/retention", json={**body, "keep_seconds": 0}), 403, code)
        assert refused(limited.post("/api/retention/remove", json=body), 403, code)
    assert app.retention()[0].keep == 86400


def test_retention_needs_the_scope_read_to_list_and_admin_to_change(keyed: Served) -> None:
    reader, worker = keyed.client("read"), keyed.client("work", "enqueue")
    ok(reader.get("/api/retention"))
    assert refused(worker.get("/api/retention"), 403, "forbidden")
    assert refused(reader.post("/api/retention", json={"records": "failed", "keep_seconds": 0}), 403, "forbidden")
    assert refused(reader.post("/api/retention/remove", json={"records": "failed"}), 403, "forbidden")
