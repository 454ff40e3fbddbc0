"""Tenants: an API key that is limited to queues neither sees nor changes anything of other queues.

Every endpoint of the API and every page of the dashboard is tested, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from difflib import unified_diff
from typing import Any, get_args

import msgspec
import pytest

import dibs
from dibs.server.api import ENDPOINTS
from dibs.server.dashboard.bulk import Action
from dibs.server.dashboard.routes import PAGES
from dibs.server.endpoint import Endpoint
from tests.helpers.browsing import Visitor
from tests.helpers.clients import Clock
from tests.server.conftest import Served
from tests.server.test_refusals import sample

SECRET = "zebra"
SECRETS = "zebras"
"""The foreign queues: the one that everything is in, and one that is paused and empty."""

UNKNOWN = 987_654_321
"""The id of nothing."""

STREAMS = {"/api/events", "/live"}
HINTS = {"/api/wakeups"}
"""Endpoints that report to every key that something changed, and not what."""

SHARED = {"/api/task-types", "/api/task-types/{name:name}", "/api/task-types/{name:name}/settings"}
"""Task types and their settings belong to the store: every key with the scope `read` sees them."""


def fill(app: Any, queue: str, *, name: str) -> dict[str, list[Any]]:
    """Something of every kind in the queue, with the name in everything; the ids."""
    task = {"queue": queue, "max_attempts": 1, "params": {name: name}}
    made = [app.enqueue(name, **task, key=f"{name}-{n}").id for n in range(6)]
    app.enqueue(name, **task, delay=3600)
    app.cancel(app.enqueue(name, **task).id)
    claims = app.claim_many(f"{name}-worker", 4, queues=[queue])
    app.complete(claims[0], {name: name})
    for claim in claims[1:3]:
        app.fail(claim, f"{name} broke", permanent=True)
    app.progress(claims[3], 50, name)
    app.keep_checkpoint(claims[3], name, name)
    app.heartbeat(f"{name}-worker", queues=[queue], metadata={"host": name})
    app.set_schedule(name, "0 3 * * *", name, params={name: name}, queue=queue)
    app.set_limit(f"{name}-limit", max=1000)
    app.set_queue(queue, fair=True, limits=[f"{name}-limit"])
    app.set_group(queue, name, weight=3)
    flows = [flow(app, queue, name), flow(app, queue, name, drive=False)]
    every = [each.id for each in app.list_tasks(limit=1000) if each.queue == queue]
    return {"tasks": sorted({*every, *made}), "workflows": flows, "names": [name, queue, f"{name}-worker"]}


def flow(app: Any, queue: str, name: str, *, drive: bool = True) -> int:
    """A workflow of the queue, with one of its steps failed, and a finalization asked for."""
    steps = [
        dibs.NewStep(name=f"{name}-{n}", task=dibs.NewTask(f"{name}-step", queue=queue, max_attempts=1)) for n in "ab"
    ]
    made: int = app.start_workflow(
        dibs.NewWorkflow(name=name, steps=steps, on_failure="continue", key=f"{name}{drive}")
    ).id
    for claim in app.claim_many(f"{name}-worker", 2, queues=[queue], types=[f"{name}-step"]) if drive else ():
        if claim.task.id % 2:
            app.complete(claim, name)
        else:
            app.fail(claim, name, permanent=True)
    app.claim_finalization(made, f"{name}-processor")
    return made


# What a limited key sees


def asked_for(method: str) -> list[str]:
    """The paths of every endpoint and page of this method."""
    found = [each.path for each in [*ENDPOINTS, *PAGES] if each.method == method]
    return [path for path in found if path not in STREAMS | HINTS | SHARED]


def places(ours: dict[str, list[Any]]) -> Iterator[str]:
    """Every address that can be looked at, with what a path names."""
    yield f"/api/limits/{ours['names'][0]}-limit"
    for path in asked_for("GET"):
        if "{path" in path or "signin" in path or "/static" in path:
            continue
        kind = "workflows" if "workflows" in path else "tasks"
        for number in ours[kind] if "{id:int}" in path else [0]:
            for name in ("params", "result", "error") if "whole" in path else ours["names"][:1]:
                yield path.replace("{id:int}", str(number)).replace("{name:name}", name)
    queue = ours["names"][1]
    yield from (f"/api/tasks?queue={queue}", f"/tasks?queue={queue}&text=e", "/tasks?state=failed", "/dead?error=broke")
    yield from (f"/tasks?key={ours['names'][0]}-1", f"/tasks?worker={ours['names'][2]}", "/charts?window=1h")


def answers_of(served: Served, ours: dict[str, list[Any]]) -> dict[str, str]:
    """The responses of every endpoint to a key that is limited to one queue."""
    key = served.key("admin", queues=[ours["names"][1]]).key
    answers: dict[str, str] = {}
    with closing(Visitor(served.url)) as visitor:
        visitor.sign_in(key)
        http = served.client_with(**{"X-API-Key": key})
        for place in places(ours):
            answer = (
                http.get(place) if place.startswith(("/api", "/metrics", "/ready", "/health")) else visitor.get(place)
            )
            assert answer.status_code < 500, place
            answers[place] = plain(answer.text, served)
    return answers


NOISE = (
    r"[0-9a-f]{64}",  # the token of the forms
    r"[0-9a-f]{8}-\d+(?=\")",  # the version of the pulse, which counts anew in each server
    r"(?<=>)[^<]*(?=</time>)",  # how long ago something was, by the server's own clock
    r"(?s)<svg.*?</svg>|[0-9.,]+ m?s\b",  # how long something has been running, by the same clock
    r"\[0\.0(,0\.0)+\]|null",  # rates: none before the second look
    r"[0-9a-f]{16}",  # the names of files and of keys
)


def plain(text: str, served: Served) -> str:
    """The text without what is different each time it is asked for."""
    text = text.replace(served.url, "SERVER").replace(served.url.rsplit("/", 1)[0], "SERVER")
    for noise in NOISE:
        text = re.sub(noise, "", text)
    return text


def differences(before: dict[str, str], after: dict[str, str]) -> dict[str, list[str]]:
    """The lines that are not the same."""
    found = {}
    for place, answer in after.items():
        if answer != before[place]:
            lines = unified_diff(before[place].splitlines(), answer.splitlines(), n=0, lineterm="")
            found[place] = list(lines)[2:]
    return found


@pytest.fixture
def tenant(open_app: Callable[..., Any], url: str, clock: Clock) -> Any:
    """A client of the database, whose time stands still."""
    return open_app(url, clock=clock)


def test_changes_in_other_queues_change_no_response_to_a_limited_key(
    lodge: Callable[..., Served], tenant: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.server.dashboard.search.MAX_SECONDS", 60)  # a search that takes longer shows no count
    ours = fill(tenant, "ours", name="lion")
    alone = answers_of(lodge(keys=True, clock=clock), ours)
    fill(tenant, SECRET, name=SECRET)
    tenant.start_workflow(dibs.NewWorkflow(name=SECRET, steps=[]))
    tenant.pause(SECRETS)
    among = answers_of(lodge(keys=True, clock=clock), ours)
    assert among.keys() == alone.keys()
    assert [place for place, answer in among.items() if SECRET in answer] == []
    assert differences(alone, among) == {}


def test_responses_to_a_limited_key_do_not_count_searched_tasks_of_other_queues(keyed: Served, app: dibs.Dibs) -> None:
    fill(app, SECRET, name=SECRET)
    with closing(Visitor(keyed.url)) as visitor:
        visitor.sign_in(keyed.key("admin", queues=["ours"]).key)
        assert 'data-looked="0"' in visitor.get("/tasks?text=x").text
        deed = {"action": "cancel", "which": "matching", "text": "x"}
        assert visitor.post_json("/tasks/bulk", **deed).json() == {"moved": 0, "looked": 0, "cursor": None}


# What a limited key does


def foreign(app: Any, theirs: dict[str, list[Any]]) -> list[Any]:
    """All that the store holds of the foreign queues."""
    return [
        [task for task in app.list_tasks(limit=1000) if task.id in theirs["tasks"]],
        [app.history(task_id) for task_id in theirs["tasks"]],
        [app.checkpoints(task_id) for task_id in theirs["tasks"]],
        [(app.get_workflow(flow), app.steps(flow), app.finalization_attempts(flow)) for flow in theirs["workflows"]],
        [worker for worker in app.workers() if worker.queues == [SECRET]],
        [plan for plan in app.schedules() if plan.queue == SECRET],
        [(queue.name, queue.paused) for queue in app.queues() if queue.name in (SECRET, SECRETS)],
        [app.limits(), app.queue_settings(), app.groups(SECRET)],
        [(key.id, key.revoked_at) for key in app.keys()],  # noqa: SIM118 - a method of the client
    ]


def addresses(path: str, theirs: dict[str, list[Any]]) -> list[tuple[str, str]]:
    """The address of everything foreign that a path can name, each with that of something that does not exist."""
    if "{id:int}" in path:
        ids = theirs["workflows" if "workflows" in path else "tasks"]
        pairs = [(path.replace("{id:int}", str(each)), path.replace("{id:int}", str(UNKNOWN))) for each in ids]
    else:
        pairs = [(path, path)]
    part = "params" if "whole" in path else None
    return [
        (named(known, part or SECRET, SECRET), named(unknown, part or "nobody", "nobody")) for known, unknown in pairs
    ]


def named(path: str, name: str, key: str) -> str:
    """The path with these names of a resource and of a key."""
    return path.replace("{name:name}", name).replace("{id:name}", key).replace("{group:name}", SECRET)


def alike(text: str) -> str:
    """The answer without what names the thing that was asked for."""
    return NUMBER.sub("N", text.replace(SECRET, "nobody"))


NUMBER = re.compile(r"\b\d+\b")
TOKENS: dict[str, Any] = {"worker_id": f"{SECRET}-worker", "token": 1, "processor_id": f"{SECRET}-processor"}


def body_of(endpoint: Endpoint) -> dict[str, Any] | None:
    """A body that the endpoint takes, with the names of a foreign worker where it asks for one."""
    if endpoint.body is None:
        return None
    fields = {field.encode_name for field in msgspec.structs.fields(endpoint.body)}
    found = {**sample(endpoint), **{name: value for name, value in TOKENS.items() if name in fields}}
    return {**found, "queue": "ours"} if "queue" in fields else found


def test_foreign_resources_do_not_exist_for_a_limited_key_at_any_endpoint(keyed: Served, app: dibs.Dibs) -> None:
    theirs = fill(app, SECRET, name=SECRET)
    client, before = keyed.client("admin", queues=["ours"]), foreign(app, theirs)
    asked = [each for each in ENDPOINTS if each.path not in STREAMS]
    for endpoint in asked:
        for known, unknown in addresses(endpoint.path, theirs):
            answers = [client.request(endpoint.method, place, json=body_of(endpoint)) for place in (known, unknown)]
            assert answers[0].status_code == answers[1].status_code < 500, (endpoint.method, known, answers[0].text)
            if known != unknown:  # else an echo of the name in the path would be taken for a leak
                assert alike(answers[0].text) == alike(answers[1].text), known
            else:
                assert SECRET not in answers[0].text.replace(TOKENS["worker_id"], ""), known
    assert foreign(app, theirs) == before


FORMS: dict[str, list[dict[str, Any]]] = {
    "/tasks/bulk": [
        {"action": action, "which": which, "ids": "1,2,3,4,5,6,7,8", "sure": "yes"}
        for action in get_args(Action)
        for which in ("picked", "matching")
    ],
    "/queues/pause": [{"name": SECRET}],
    "/queues/resume": [{"name": SECRETS}],
    "/schedules/run": [{"name": SECRET}],
    "/schedules/enable": [{"name": SECRET}],
    "/schedules/disable": [{"name": SECRET}],
    "/keys": [{"name": "spy", "admin": "on"}],
}


def test_foreign_resources_do_not_exist_for_a_limited_key_on_any_page(keyed: Served, app: dibs.Dibs) -> None:
    app.pause(SECRETS)
    theirs = fill(app, SECRET, name=SECRET)
    with closing(Visitor(keyed.url)) as visitor:
        visitor.sign_in(keyed.key("admin", queues=["ours"]).key)
        before = foreign(app, theirs)
        for each in PAGES:
            if each.path in STREAMS or "{path" in each.path or "sign" in each.path:
                continue
            for known, unknown in addresses(each.path, theirs):
                for form in FORMS.get(each.path, [{}]):
                    answers = [
                        visitor.get(place) if each.method == "GET" else visitor.post(place, **form)
                        for place in (known, unknown)
                    ]
                    assert answers[0].status_code == answers[1].status_code < 500, (known, answers[0].text)
                    assert SECRET not in answers[0].text.replace(str(form), "") or form.get("name"), known
        assert foreign(app, theirs) == before


def test_the_results_of_parents_in_other_queues_are_left_out(keyed: Served, app: dibs.Dibs) -> None:
    steps = [
        dibs.NewStep(name="open", task=dibs.NewTask("t", queue="ours")),
        dibs.NewStep(name=SECRET, task=dibs.NewTask("t", queue=SECRET)),
        dibs.NewStep(name="last", task=dibs.NewTask("t", queue="ours"), after=["open", SECRET]),
    ]
    finalizer = dibs.NewTask("report", queue="ours")
    flow = app.start_workflow(dibs.NewWorkflow(name="mixed", steps=steps, finalizer=finalizer))
    for claim in app.claim_many("w", 2):
        app.complete(claim, {"from": claim.task.queue})
    last = next(step.task_id for step in app.steps(flow.id) if step.name == "last")
    limited, anyone = keyed.client("work", queues=["ours"]), keyed.client("work")
    place = f"/api/tasks/{last}/results"
    assert [each["name"] for each in limited.get(place).json()["results"]] == ["open"]
    assert [each["name"] for each in anyone.get(place).json()["results"]] == ["open", SECRET]
    with dibs.Dibs(keyed.url, api_key=keyed.key("work", "read", queues=["ours"]).key) as remote:
        assert [each.name for each in remote.results(last)] == ["open"]


def test_a_finalizer_gets_the_results_of_its_own_queues_from_a_limited_key(keyed: Served, app: dibs.Dibs) -> None:
    steps = [dibs.NewStep(name=queue, task=dibs.NewTask("t", queue=queue)) for queue in ("ours", SECRET)]
    flow = app.start_workflow(
        dibs.NewWorkflow(name="mixed", steps=steps, finalizer=dibs.NewTask("report", queue="ours"))
    )
    for claim in app.claim_many("w", 2):
        app.complete(claim, {"from": claim.task.queue})
    finalizer = app.get_workflow(flow.id).finalizer_id
    for queues, names in ((["ours"], ["ours"]), ([SECRET, "ours"], ["ours", SECRET]), (None, ["ours", SECRET])):
        answer = keyed.client("work", queues=queues).get(f"/api/tasks/{finalizer}/results")
        assert [each["name"] for each in answer.json()["results"]] == names


def test_a_finalizer_gets_the_ends_of_the_steps_of_its_own_queues_from_a_limited_key(
    keyed: Served, app: dibs.Dibs
) -> None:
    steps = [
        dibs.NewStep(name="ours", task=dibs.NewTask("a", queue="mine")),
        dibs.NewStep(name=SECRET, task=dibs.NewTask("b", queue="theirs", max_attempts=1)),
    ]
    end = dibs.NewTask("end", queue="mine")
    flow = app.start_workflow(
        dibs.NewWorkflow(name=SECRET, steps=steps, on_failure="continue", finalizer=end, finalize_when="always")
    )
    app.complete(app.claim("w", queues=["mine"]))  # type: ignore[arg-type]
    app.fail(app.claim("w", queues=["theirs"]), SECRET)  # type: ignore[arg-type]
    app.upkeep()
    answer = keyed.client("work", queues=["mine"]).get(f"/api/tasks/{flow.finalizer_id}/execution")
    assert answer.status_code == 200
    assert SECRET not in answer.text
    execution = answer.json()["execution"]
    assert [step["name"] for step in execution["steps"]] == ["ours"]
    assert execution["status"] == "failed"


def test_states_and_tasks_of_other_queues_are_not_read_by_a_limited_key(keyed: Served, app: dibs.Dibs) -> None:
    ids = [app.enqueue("a", queue=queue).id for queue in ("mine", "theirs", "mine")]
    limited = keyed.client("read", queues=["mine"])
    states = limited.post("/api/tasks/states", json={"ids": ids}).json()["states"]
    assert states == {"pending": [ids[0], ids[2]]}
    tasks = limited.post("/api/tasks/read", json={"ids": ids[::-1]}).json()["tasks"]
    assert [task["id"] for task in tasks] == [ids[2], ids[0]]
    assert keyed.client("work").post("/api/tasks/states", json={"ids": ids}).status_code == 403
    assert limited.post("/api/tasks/states", json={"ids": []}).status_code == 400
    assert limited.post("/api/tasks/states", json={"ids": [1] * 10_001}).status_code == 400


def test_a_heartbeat_of_a_limited_key_changes_no_worker_of_another_queue(keyed: Served, app: dibs.Dibs) -> None:
    theirs, ours = (keyed.client("admin", queues=[queue]) for queue in (SECRET, "ours"))
    beat = {"worker_id": "worker-1", "incarnation": "i-1"}
    assert theirs.post("/api/workers/heartbeat", json={**beat, "metadata": {"host": SECRET}}).status_code == 200
    before = theirs.get("/api/workers").json()
    assert ours.get("/api/workers").json() == {"workers": []}
    for more in ({"metadata": {"host": "ours"}}, {"incarnation": "i-2"}, {"leaving": True}):
        assert ours.post("/api/workers/heartbeat", json={**beat, **more}).status_code == 200
    assert theirs.get("/api/workers").json() == before
    assert [each["queues"] for each in ours.get("/api/workers").json()["workers"]] == [["ours"], ["ours"]]
    assert sorted(worker.state for worker in app.workers()) == ["active", "active", "gone"]


def test_the_next_due_time_for_a_limited_key_ignores_other_queues(keyed: Served, app: dibs.Dibs) -> None:
    app.enqueue("t", queue=SECRET, delay=100)
    limited = keyed.client("work", queues=["ours"])
    assert limited.get("/api/tasks/next-due").json() == {"seconds": None}
    app.enqueue("t", queue="ours", delay=1000)
    assert 900 < limited.get("/api/tasks/next-due").json()["seconds"] <= 1000
    assert keyed.client("work").get("/api/tasks/next-due").json()["seconds"] <= 100


def test_a_workflow_without_tasks_is_in_the_default_queue(keyed: Served, app: dibs.Dibs) -> None:
    empty = app.start_workflow(dibs.NewWorkflow(name=SECRET, steps=[], key="k"))
    assert empty.queues == ["default"]
    limited = keyed.client("admin", queues=["ours"])
    assert limited.get(f"/api/workflows/{empty.id}").status_code == 404
    assert limited.get("/api/workflows").json()["workflows"] == []
    assert limited.post("/api/workflows", json={"name": "mine", "steps": []}).json()["code"] == "queue_not_allowed"
    nested = {"name": "mine", "steps": [{"workflow": {"name": "inner", "steps": []}}]}
    assert limited.post("/api/workflows", json=nested).json()["code"] == "queue_not_allowed"
    assert keyed.client("enqueue", queues=["default"]).post("/api/workflows", json=nested).status_code == 201


def test_an_event_stream_of_a_limited_key_has_no_events_of_other_queues(keyed: Served, app: dibs.Dibs) -> None:
    fill(app, SECRET, name=SECRET)
    task = app.enqueue("t", queue="ours")
    client = keyed.client("read", queues=["ours"])
    with client.stream("GET", "/api/events", headers={"last-event-id": "0"}) as answer:
        lines = answer.iter_lines()
        first = next(line for line in lines if line.startswith("data:"))
    assert f'"task_id":{task.id}' in first
    assert SECRET not in first
