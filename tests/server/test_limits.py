"""Limits over HTTP: what the endpoints answer and refuse, and what a key that is limited to queues may do."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import dibs
from tests.helpers.each import for_each
from tests.server.conftest import Served


def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: httpx.Response, status: int, code: str) -> Any:
    content = answer.json()
    assert (answer.status_code, content["code"], content["success"]) == (status, code, False), content
    return content


@pytest.fixture
def limited(keyed: Served) -> httpx.Client:
    """A client whose key may do everything, to one queue."""
    return keyed.client("admin", "enqueue", "read", queues=["mine"])


# Limits


def test_a_limit_is_stored_read_listed_and_removed(http: httpx.Client) -> None:
    body = {"max": 5, "rate": "100/minute", "burst": 10, "per": "group"}
    stored = ok(http.put("/api/limits/stripe", json=body))
    assert stored["success"] is True
    limit = stored["limit"]
    assert {name: limit[name] for name in body} == body
    assert (limit["name"], limit["used"], limit["waiting"], limit["source"]) == ("stripe", 0, 0, "command")
    assert ok(http.get("/api/limits/stripe")) == {"limit": limit}
    assert ok(http.get("/api/limits")) == {"limits": [limit]}
    assert ok(http.delete("/api/limits/stripe")) == {"success": True}
    refused(http.get("/api/limits/stripe"), 404, "limit_not_found")
    refused(http.delete("/api/limits/stripe"), 404, "limit_not_found")


def test_a_put_replaces_the_whole_limit(http: httpx.Client) -> None:
    ok(http.put("/api/limits/stripe", json={"max": 5, "rate": "1/second"}))
    changed = ok(http.put("/api/limits/stripe", json={"max": 2}))["limit"]
    assert (changed["max"], changed["rate"]) == (2, None)


def test_a_patch_keeps_what_it_leaves_out_and_null_removes(http: httpx.Client) -> None:
    ok(http.put("/api/limits/stripe", json={"max": 5, "rate": "1/second", "burst": 3, "per": "group"}))
    changed = ok(http.patch("/api/limits/stripe", json={"max": 2}))["limit"]
    assert (changed["max"], changed["rate"], changed["burst"], changed["per"]) == (2, "1/second", 3, "group")
    changed = ok(http.patch("/api/limits/stripe", json={"rate": None, "per": None}))["limit"]
    assert (changed["max"], changed["rate"], changed["burst"], changed["per"]) == (2, None, 1, None)
    refused(http.patch("/api/limits/stripe", json={"max": None}), 400, "invalid_value")
    refused(http.patch("/api/limits/new", json={"per": "group"}), 400, "invalid_value")
    assert ok(http.patch("/api/limits/new", json={"max": 1}))["limit"]["max"] == 1
    assert ok(http.get("/api/limits/stripe"))["limit"] == changed


def test_both_the_value_set_by_hand_and_the_declared_value_are_shown(http: httpx.Client) -> None:
    ok(http.put("/api/limits/stripe", json={"max": 5, "source": "code"}))
    by_hand = ok(http.put("/api/limits/stripe", json={"max": 2}))["limit"]
    assert (by_hand["max"], by_hand["overridden"], by_hand["declared"]["max"]) == (2, True, 5)
    assert ok(http.put("/api/limits/stripe", json={"max": 5, "source": "code"}))["limit"]["max"] == 2
    assert ok(http.put("/api/limits/stripe", json={"max": 6, "source": "code"}))["limit"]["max"] == 6


def test_the_name_of_a_limit_may_have_any_character_of_a_name(http: httpx.Client) -> None:
    assert ok(http.put("/api/limits/a%2Fb%20c%3F", json={"max": 1}))["limit"]["name"] == "a/b c?"
    assert ok(http.get("/api/limits/a%2Fb%20c%3F/groups"))["limit"] == "a/b c?"


@for_each(
    "body",
    [
        {},
        {"max": None, "rate": None},
        {"max": 0},
        {"max": "5"},
        {"max": 1.5},
        {"max": True},
        {"max": 10**10},
        {"max": 1, "burst": 2},
        {"rate": "none"},
        {"rate": "5/fortnight"},
        {"rate": "0/second"},
        {"rate": "1/second", "burst": 0},
        {"max": 1, "per": "tenant"},
        {"max": 1, "source": "hand"},
        {"max": 1, "used": 0},
    ],
)
def test_a_limit_that_makes_no_sense_is_a_400(http: httpx.Client, body: dict[str, Any]) -> None:
    answer = http.put("/api/limits/stripe", json=body)
    assert (answer.status_code, answer.json()["code"] in ("bad_request", "invalid_value")) == (400, True), answer.text
    assert ok(http.get("/api/limits")) == {"limits": []}


def test_a_limit_that_is_named_twice_is_a_400(http: httpx.Client) -> None:
    ok(http.put("/api/limits/stripe", json={"max": 5}))
    twice = ["stripe", "stripe"]
    refused(http.post("/api/tasks", json={"task_type": "charge", "limits": twice}), 400, "invalid_value")
    refused(http.patch("/api/queues/mail/settings", json={"limits": twice}), 400, "invalid_value")


# Queues, types, groups


def test_a_queue_has_settings(http: httpx.Client) -> None:
    ok(http.put("/api/limits/mail-api", json={"max": 5}))
    empty = ok(http.get("/api/queues/mail/settings"))["settings"]
    assert (empty["fair"], empty["limits"], empty["source"]) == (False, [], None)
    stored = ok(http.patch("/api/queues/mail/settings", json={"limits": ["mail-api"]}))
    assert (stored["success"], stored["settings"]["limits"]) == (True, ["mail-api"])
    fair = ok(http.patch("/api/queues/mail/settings", json={"fair": True}))["settings"]
    assert (fair["fair"], fair["limits"]) == (True, ["mail-api"])
    assert ok(http.get("/api/settings")) == {"queues": [fair], "task_types": []}


def test_tasks_that_wait_obey_a_new_limit_when_the_answer_comes(http: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue_many([dibs.NewTask("resize", queue="mail") for _ in range(3)])
    ok(http.put("/api/limits/mail-api", json={"max": 1}))
    changed = ok(http.patch("/api/queues/mail/settings", json={"limits": ["mail-api"]}))
    assert changed["next_cursor"] is None
    assert len(app.claim_many("worker-1", 3)) == 1


def test_tasks_that_wait_are_brought_in_line_in_batches(http: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue_many([dibs.NewTask("resize", queue="mail") for _ in range(3)])
    ok(http.put("/api/limits/mail-api", json={"max": 1}))
    ok(http.patch("/api/queues/mail/settings", json={"limits": ["mail-api"], "settle": False}))
    first = ok(http.post("/api/upkeep/settle", json={"limit": 2}))
    assert (first["count"], first["next_cursor"]) == (2, 2)
    assert first["change"] == 1
    last = ok(http.post("/api/upkeep/settle", json={"after": 2, "change": 1}))
    assert last == {"success": True, "count": 1, "next_cursor": None, "change": 1}
    assert len(app.claim_many("worker-1", 3)) == 1


def test_a_type_has_limits_and_a_parameter_that_names_the_group(http: httpx.Client) -> None:
    ok(http.put("/api/limits/tenant", json={"max": 2, "per": "group"}))
    body = {"limits": ["tenant"], "group_by": "tenant"}
    stored = ok(http.patch("/api/task-types/charge/settings", json=body))["settings"]
    assert {name: stored[name] for name in body} == body
    assert ok(http.get("/api/task-types/charge/settings"))["settings"] == stored
    assert ok(http.get("/api/settings"))["task_types"] == [stored]
    removed = ok(http.patch("/api/task-types/charge/settings", json={"group_by": ""}))["settings"]
    assert (removed["limits"], removed["group_by"]) == (["tenant"], None)


def test_settings_with_a_limit_that_does_not_exist_are_refused(http: httpx.Client) -> None:
    refused(http.patch("/api/queues/mail/settings", json={"limits": ["stripe"]}), 404, "limit_not_found")
    refused(http.patch("/api/task-types/charge/settings", json={"limits": ["stripe"]}), 404, "limit_not_found")
    refused(http.patch("/api/queues/mail/settings", json={"limits": ["a"] * 9}), 400, "bad_request")
    assert ok(http.get("/api/settings")) == {"queues": [], "task_types": []}


def test_groups_have_weights_and_pages(http: httpx.Client) -> None:
    changed = ok(http.put("/api/queues/mail/groups/acme", json={"weight": 3}))
    assert changed["group"] == {"queue": "mail", "group": "acme", "weight": 3.0, "waiting": 0}
    assert ok(http.put("/api/queues/mail/groups", json={"weight": 2}))["group"]["group"] is None
    first = ok(http.get("/api/queues/mail/groups?limit=1"))
    assert ([each["group"] for each in first["groups"]], first["next_cursor"]) == ([None], "")
    second = ok(http.get("/api/queues/mail/groups?limit=1&cursor="))
    assert ([each["group"] for each in second["groups"]], second["next_cursor"]) == (["acme"], "acme")
    last = ok(http.get("/api/queues/mail/groups?limit=1&cursor=acme"))
    assert last == {"groups": [], "next_cursor": None}
    for weight in (0, -1, 2e6, "3", None, True):
        refused(http.put("/api/queues/mail/groups/acme", json={"weight": weight}), 400, "bad_request")


def test_the_groups_of_a_limit_that_does_not_exist_are_a_404(http: httpx.Client) -> None:
    refused(http.get("/api/limits/stripe/groups"), 404, "limit_not_found")


# Keys


def test_changes_need_the_scope_admin_and_reads_the_scope_read(keyed: Served, app: dibs.Dibs) -> None:
    app.set_limit("stripe", max=5)
    reader, worker = keyed.client("read", "enqueue", "work"), keyed.client("work")
    for path in ("/api/limits", "/api/limits/stripe", "/api/limits/stripe/groups", "/api/settings"):
        ok(reader.get(path))
        refused(worker.get(path), 403, "forbidden")
    refused(reader.put("/api/limits/stripe", json={"max": 1}), 403, "forbidden")
    refused(reader.delete("/api/limits/stripe"), 403, "forbidden")
    refused(reader.patch("/api/queues/mine/settings", json={"fair": True}), 403, "forbidden")
    refused(reader.patch("/api/task-types/charge/settings", json={"limits": []}), 403, "forbidden")
    refused(reader.put("/api/queues/mine/groups/acme", json={"weight": 2}), 403, "forbidden")
    assert app.get_limit("stripe").max == 5


def test_a_limited_key_sees_the_limits_that_its_queues_and_types_carry(limited: httpx.Client, app: dibs.Dibs) -> None:
    for name in ("of-mine", "of-theirs", "of-a-type", "of-nothing"):
        app.set_limit(name, max=5)
    app.set_queue("mine", limits=["of-mine"])
    app.set_queue("theirs", limits=["of-theirs"])
    app.set_type("charge", limits=["of-a-type"])
    assert [each["name"] for each in ok(limited.get("/api/limits"))["limits"]] == ["of-a-type", "of-mine"]
    ok(limited.get("/api/limits/of-mine"))
    for name in ("of-theirs", "of-nothing", "unknown"):
        refused(limited.get(f"/api/limits/{name}"), 404, "limit_not_found")
    settings = ok(limited.get("/api/settings"))
    assert ([each["queue"] for each in settings["queues"]], len(settings["task_types"])) == (["mine"], 1)


def test_a_limited_key_changes_no_limits(limited: httpx.Client, app: dibs.Dibs) -> None:
    app.set_limit("stripe", max=5)
    app.set_queue("mine", limits=["stripe"])
    for answer in (
        limited.put("/api/limits/stripe", json={"max": 1}),
        limited.delete("/api/limits/stripe"),
        limited.get("/api/limits/stripe/groups"),
        limited.patch("/api/queues/mine/settings", json={"limits": []}),
        limited.patch("/api/queues/mine/settings", json={"fair": True, "source": "code"}),
        limited.patch("/api/task-types/charge/settings", json={"limits": []}),
    ):
        refused(answer, 403, "key_limited_to_queues")
    assert (app.get_limit("stripe").max, app.get_queue("mine").limits) == (5, ["stripe"])


def test_a_limited_key_uses_only_limits_that_its_queues_and_types_carry(
    limited: httpx.Client, http: httpx.Client, app: dibs.Dibs
) -> None:
    for name in ("of-mine", "of-theirs", "of-a-type"):
        app.set_limit(name, max=5)
    app.set_queue("mine", limits=["of-mine"])
    app.set_queue("theirs", limits=["of-theirs"])
    app.set_type("charge", limits=["of-a-type"])
    task = {"task_type": "resize", "queue": "mine", "limits": ["of-mine", "of-a-type"], "group": "acme"}
    made = limited.post("/api/tasks", json=task)
    assert (made.status_code, sorted(made.json()["task"]["limits"])) == (201, ["of-a-type", "of-mine"])
    for name in ("of-theirs", "unknown"):
        foreign = {**task, "limits": ["of-mine", name]}
        refusals = [
            refused(limited.post("/api/tasks", json=foreign), 400, "limit_unknown"),
            refused(limited.post("/api/tasks/batch", json={"tasks": [task, foreign]}), 400, "limit_unknown"),
            refused(limited.post("/api/workflows", json={"name": "w", "steps": [foreign]}), 400, "limit_unknown"),
        ]
        assert {each["error"] for each in refusals} == {f"There is no limit {name!r}."}
    assert len(app.list_tasks()) == 1


def test_a_limited_key_completes_a_step_with_steps_of_its_own_limits_only(keyed: Served, app: dibs.Dibs) -> None:
    app.set_limit("of-theirs", max=5)
    worker = keyed.client("work", queues=["mine"])
    step = dibs.NewStep(name="a", task=dibs.NewTask("a", queue="mine"))
    app.start_workflow(dibs.NewWorkflow(name="w", steps=[step]))
    claim = app.claim("worker-1")
    assert claim is not None
    more = {"name": "b", "task_type": "b", "queue": "mine", "limits": ["of-theirs"]}
    body = {"worker_id": "worker-1", "token": claim.token, "steps": [more]}
    refused(worker.post(f"/api/tasks/{claim.task.id}/complete", json=body), 400, "limit_unknown")
    assert app.get(claim.task.id).state == "claimed"  # type: ignore[union-attr]


def test_tasks_with_limits_that_make_no_sense_are_refused(http: httpx.Client, app: dibs.Dibs) -> None:
    app.set_limit("tenant", max=1, per="group")
    refused(http.post("/api/tasks", json={"task_type": "a", "limits": ["stripe"]}), 400, "limit_unknown")
    refused(http.post("/api/tasks", json={"task_type": "a", "limits": ["tenant"]}), 400, "invalid_value")
    for limits in (["tenant"] * 9, [""], "tenant", [1]):
        refused(http.post("/api/tasks", json={"task_type": "a", "limits": limits, "group": "g"}), 400, "bad_request")
    for group in ("", 1, "a\tb", "x" * 256):
        refused(http.post("/api/tasks", json={"task_type": "a", "group": group}), 400, "bad_request")
    assert app.list_tasks() == []


def test_a_claim_by_id_beyond_a_limit_is_a_409_that_names_the_limit(http: httpx.Client, app: dibs.Dibs) -> None:
    app.set_limit("stripe", max=1)
    first, second = (http.post("/api/tasks", json={"task_type": "a", "limits": ["stripe"]}).json() for _ in "ab")
    ok(http.post(f"/api/tasks/{first['task']['id']}/claim", json={"worker_id": "worker-1"}))
    beyond = http.post(f"/api/tasks/{second['task']['id']}/claim", json={"worker_id": "worker-2"})
    assert refused(beyond, 409, "limit_reached")["name"] == "stripe"
    assert ok(http.get("/api/limits/stripe"))["limit"]["used"] == 1


def test_a_limited_key_sets_turns_and_weights_in_its_queues_only(limited: httpx.Client, app: dibs.Dibs) -> None:
    assert ok(limited.patch("/api/queues/mine/settings", json={"fair": True}))["settings"]["fair"] is True
    ok(limited.put("/api/queues/mine/groups/acme", json={"weight": 3}))
    refused(limited.patch("/api/queues/theirs/settings", json={"fair": True}), 403, "queue_not_allowed")
    refused(limited.get("/api/queues/theirs/settings"), 403, "queue_not_allowed")
    refused(limited.put("/api/queues/theirs/groups/acme", json={"weight": 3}), 403, "queue_not_allowed")
    refused(limited.get("/api/queues/theirs/groups"), 403, "queue_not_allowed")
    assert ([each.queue for each in app.queue_settings()], app.groups("theirs")) == (["mine"], [])
