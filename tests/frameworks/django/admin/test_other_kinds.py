"""Queues, workflows, schedules, workers and limits in the admin; on the project's database and on a server."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

import dibs
from dibs.django import app
from tests.frameworks.django.admin.pages import act, address, markup, read

pytestmark = pytest.mark.usefixtures("store")

DOTS, SLASH = "..", "a/b?c <i>"


def test_queues_are_paused_and_resumed(root: Client) -> None:
    app.enqueue("mail", queue="bulk")
    app.enqueue("mail", queue="bulk", delay=60)
    act(root, address("queue"), "pause", "bulk")
    assert [queue.name for queue in app.queues() if queue.paused] == ["bulk"]
    assert "paused" in read(root, address("queue"))
    page = markup(root, address("queue", "bulk"))
    assert ('value="resume"' in page, 'value="pause"' in page) == (True, False)
    act(root, address("queue", "bulk"), "resume")
    assert not any(queue.paused for queue in app.queues())
    assert [each.change_message for each in LogEntry.objects.order_by("pk")] == ["Paused", "Resumed"]


def test_the_page_of_a_queue_has_its_settings_and_groups(root: Client) -> None:
    app.set_limit("api", max=1)
    app.set_queue("bulk", fair=True, limits=["api"])
    app.set_group("bulk", "customer-7", weight=2)
    page = read(root, address("queue", "bulk"))
    assert ("Groups take turns: yes" in page, "customer-7" in page, "api" in page) == (True, True, True)
    assert "Queue nowhere" in markup(root, address("queue", "nowhere"))


def test_workflows_are_listed_cancelled_and_retried(root: Client) -> None:
    steps = [
        dibs.NewStep(name="fetch", task=dibs.NewTask("fetch")),
        dibs.NewStep(name="send", task=dibs.NewTask("send"), after=["fetch"]),
    ]
    flow = app.start_workflow(dibs.NewWorkflow(name="order <b>", steps=steps))
    other = app.start_workflow(dibs.NewWorkflow(name="other", steps=steps[:1]))
    assert "order <b>" in read(root, address("workflow"))
    found = markup(root, address("workflow") + "?name=other")
    assert (address("workflow", other.id) in found, address("workflow", flow.id) in found) == (True, False)
    page = read(root, address("workflow", flow.id))
    assert ("0 of 2 steps" in page, "fetch" in page.partition("Steps")[2]) == (True, True)
    act(root, address("workflow", flow.id), "cancel")
    app.upkeep()
    assert app.get_workflow(flow.id).state == "cancelled"  # type: ignore[union-attr]
    assert read(root, address("workflow") + "?state=cancelled").count("order <b>") == 1
    act(root, address("workflow"), "retry", flow.id)
    assert app.get_workflow(flow.id).state == "running"  # type: ignore[union-attr]


def test_the_steps_of_a_large_workflow_are_read_in_pages(root: Client) -> None:
    steps = [dibs.NewStep(name=f"step-{n:03}", task=dibs.NewTask("fetch")) for n in range(130)]
    flow = app.start_workflow(dibs.NewWorkflow(name="wide", steps=steps))
    first = markup(root, address("workflow", flow.id))
    after = app.steps(flow.id)[99].task_id
    assert ("step-099" in first, "step-100" in first, f"?after={after}" in first) == (True, False, True)
    assert "step-129" in markup(root, f"{address('workflow', flow.id)}?after={after}")


@pytest.mark.parametrize(("name", "path"), [("nightly", "nightly"), (DOTS, "_2E_2E"), (SLASH, "a_2Fb_3Fc _3Ci_3E")])
def test_schedules_are_run_disabled_enabled_and_removed(root: Client, name: str, path: str) -> None:
    app.set_schedule(name, "30 3 * * *", "report", {"day": 1}, timezone="Europe/Berlin")
    url = address("schedule", path)
    assert url.replace(" ", "%20") in markup(root, address("schedule"))
    assert "Europe/Berlin" in read(root, url)
    act(root, url, "run")
    assert [task.type for task in app.list_tasks()] == ["report"]
    act(root, url, "disable")
    assert not app.get_schedule(name).enabled
    act(root, address("schedule"), "enable", name)
    assert app.get_schedule(name).enabled
    act(root, url, "remove")
    assert app.schedules() == []
    assert LogEntry.objects.count() == 4
    assert root.get(url).status_code == 404


def test_workers_are_shown_with_what_they_hold(root: Client) -> None:
    task = app.enqueue("mail", queue="bulk")
    app.heartbeat("host-1", queues=["bulk"], metadata={"host": "<script>alert(1)</script>"})
    app.claim("host-1", queues=["bulk"])
    listed = markup(root, address("worker"))
    assert ("host-1" in listed, "<option" in listed) == (True, False)
    page = markup(root, address("worker", "host-1"))
    assert address("task", task.id) in page
    assert "<script>alert(1)" not in page
    assert root.get(address("worker", "nobody")).status_code == 404


def test_limits_are_created_changed_and_removed(root: Client) -> None:
    add = "/admin/dibs/limit/add/"
    assert add in markup(root, address("limit"))
    values = {"name": SLASH, "max": "3", "rate": "100/minute", "burst": "5", "per": "group"}
    assert root.post(add, values)["Location"] == address("limit")
    limit = app.get_limit(SLASH)
    assert (limit.max, limit.rate, limit.burst, limit.per) == (3, "100/minute", 5, "group")
    url = address("limit", "a_2Fb_3Fc _3Ci_3E")
    assert 'value="100/minute"' in markup(root, url)
    assert root.post(url, {"action": "set", "max": "7", "name": "another"}).status_code == 302
    assert [(each.name, each.max, each.rate) for each in app.limits()] == [(SLASH, 7, None)]
    act(root, url, "remove")
    assert app.limits() == []
    assert [each.action_flag for each in LogEntry.objects.order_by("pk")] == [1, 2, 3]


@pytest.mark.parametrize(
    "values", [{"name": "x"}, {"name": "x", "max": "0"}, {"name": "x", "rate": "fast"}, {"name": "", "max": "1"}]
)
def test_a_limit_that_is_not_valid_is_explained(root: Client, values: dict[str, str]) -> None:
    answer = root.post("/admin/dibs/limit/add/", values)
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert app.limits() == []


def test_a_new_limit_does_not_change_one_that_exists(root: Client) -> None:
    app.set_limit("api", max=3)
    answer = root.post("/admin/dibs/limit/add/", {"name": "api", "max": "9"})
    assert "exists" in answer.content.decode()
    assert app.get_limit("api").max == 3
    changed = root.post(address("limit", "api"), {"action": "set", "rate": "often"})
    assert ("errorlist" in changed.content.decode(), 'name="name"' in changed.content.decode()) == (True, False)


def test_long_lists_have_pages(root: Client) -> None:
    for number in range(105):
        app.set_limit(f"limit-{number:03}", max=1)
    first, second = read(root, address("limit")), read(root, address("limit") + "?p=2")
    assert ("limit-099" in first, "limit-100" in first, "limit-104" in second) == (True, False, True)
    assert "limit-104" in read(root, address("limit") + "?p=999")
