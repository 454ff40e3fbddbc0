"""The dead letter by error: equal errors form a group, and a group is redriven together."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

import dibs
from tests.helpers import workflows
from tests.helpers.browsing import Visitor, text_of
from tests.helpers.tasks import dead, events
from tests.server.dashboard.conftest import Site
from tests.server.dashboard.test_bulk import do_all, states
from tests.server.dashboard.test_tasks import EVIL, ids


def failed(app: dibs.Dibs, *errors: str, **options: Any) -> list[int]:
    """One task in the dead letter for each error."""
    return [task for error in errors for task in dead(app, error=error, **options)]


def groups(text: str) -> list[dict[str, str]]:
    """The fields of each group's form for redriving, those for redriving all left out."""
    forms = re.findall(r"(?s)<form method=\"post\" action=\"/tasks/bulk\".*?</form>", text)
    fields = [dict(re.findall(r'name="(\w+)" value="([^"]*)"', form)) for form in forms]
    return [
        {name: each[name] for name in each if name != "csrf"}
        for each in fields
        if "alike" in each and each["action"] == "redrive"
    ]


def group_with(visitor: Visitor, newest: int) -> dict[str, str]:
    """The form of the group with this task as its newest."""
    rows = dict(re.findall(r'(?s)<tr data-row id="row-(\d+)">(.*?)</tr>', visitor.get("/dead").text))
    [fields] = groups(rows[str(newest)])
    return {name: unescape(value) for name, value in fields.items()}


def sent_back(visitor: Visitor, fields: dict[str, str]) -> int:
    """How many tasks the group's button sends back."""
    return do_all(visitor, **{name: value for name, value in fields.items() if name != "which"})[0]


def tasks_of(visitor: Visitor, newest: int) -> list[int]:
    """The tasks that the group's link leads to."""
    row = visitor.get("/dead").text.partition(f'id="row-{newest}"')[2]
    found = re.search(r'href="(/tasks\?[^"]+)" data-open', row)
    assert found is not None
    return ids(visitor.get(unescape(found[1])))


def test_the_dead_letter_is_filtered_by_tags_and_only_its_tagged_tasks_are_redriven(site: Site, app: dibs.Dibs) -> None:
    [tagged] = failed(app, "no route to host", tags=["eu", "vip"])
    [other] = failed(app, "no route to host", tags=["eu"])
    visitor = site.visitor("admin")
    page = visitor.get("/dead?tags=eu%2Cvip")
    assert "1 failed task" in text_of(page)
    [fields] = groups(page.text)
    assert sent_back(visitor, {name: unescape(value) for name, value in fields.items()}) == 1
    assert [task.state for task in map(app.get, (tagged, other)) if task] == ["pending", "failed"]
    assert visitor.get("/dead?tags=a%22b").status_code == 400


def test_errors_that_differ_only_in_numbers_are_one_group_and_groups_are_sorted_by_frequency(
    site: Site, app: dibs.Dibs
) -> None:
    failed(app, "no route to host")
    failed(app, "order 1 has no lines", "order 22 has no lines", "order 333 has no lines")
    failed(app, "order 4 has no lines", type="other")
    words = text_of(site.visitor("read").get("/dead"))
    assert "5 failed tasks" in words
    assert re.search(r"3 Error order 333 has no lines resize .*1 Error .*1 Error ", words)


def test_an_error_group_links_to_its_tasks(site: Site, app: dibs.Dibs) -> None:
    tasks = failed(app, "order 1 has no lines", "order 22 has no lines")
    failed(app, "no route to host", "order 1 has lines")
    failed(app, "order 4 has no lines", type="other")
    visitor = site.visitor("read")
    links = re.findall(r'href="(/tasks\?[^"]+)" data-open', visitor.get("/dead").text)
    assert ids(visitor.get(links[0].replace("&amp;", "&"))) == tasks[::-1]


def test_redriving_one_error_group_leaves_the_other_groups(site: Site, app: dibs.Dibs) -> None:
    tasks = failed(app, *(f"order {number} has no lines" for number in range(30)))
    others = failed(app, "no route to host", "order 7 has no line")
    visitor = site.visitor("admin")
    fields = group_with(visitor, tasks[-1])
    assert (fields["which"], fields["to"], fields["action"]) == ("matching", "dead", "redrive")
    assert sent_back(visitor, fields) == len(tasks)
    assert all(events(app, task)[-1] == "retried" for task in tasks)
    assert all(events(app, task)[-1] == "failed" for task in others)


SAME = "p" * 60 + " " + "r" * 60 + " " + "s" * 50


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{SAME} alpha {'z' * 100}", f"{SAME} beta {'y' * 100}"),
        (f"{SAME} {'t' * 110} alpha", f"{SAME} {'t' * 110} beta"),
        (f"{SAME} alpha", f"{SAME} alpha and more"),
        ("no route", "No route"),
        ("a\nb", "a\r\nb"),
        ("a  b", "a b"),
        ("ü" * 250 + "x", "ü" * 250 + "y"),
        ('"' * 120 + "x", '"' * 120 + "y"),
    ],
)
def test_error_groups_that_are_shown_separately_are_redriven_separately(
    site: Site, app: dibs.Dibs, one: str, other: str
) -> None:
    tasks, others = failed(app, one, one), failed(app, other, other, other)
    visitor = site.visitor("admin")
    assert tasks_of(visitor, tasks[-1]) == tasks[::-1]
    assert tasks_of(visitor, others[-1]) == others[::-1]
    assert sent_back(visitor, group_with(visitor, tasks[-1])) == 2
    assert {events(app, task)[-1] for task in tasks} == {"retried"}
    assert {events(app, task)[-1] for task in others} == {"failed"}


@pytest.mark.parametrize("tail", ["alpha", "x" * 60_000, "\\" * 500, "\x01" * 500, "😀" * 500])
def test_all_tasks_of_a_group_of_long_errors_are_redriven(site: Site, app: dibs.Dibs, tail: str) -> None:
    tasks = failed(app, *(f"order {number} {SAME} {tail}" for number in (1, 7, 3)))
    visitor = site.visitor("admin")
    assert tasks_of(visitor, tasks[-1]) == tasks[::-1]
    assert sent_back(visitor, group_with(visitor, tasks[-1])) == 3


@pytest.mark.parametrize("error", ["two\nlines", "two\r\nlines", "two\rlines\n", "\n"])
def test_a_group_of_multi_line_errors_is_redriven_by_a_form_without_scripts(
    site: Site, app: dibs.Dibs, error: str
) -> None:
    tasks = failed(app, error, error)
    visitor = site.visitor("admin")
    fields = {name: as_a_browser_sends(value) for name, value in group_with(visitor, tasks[-1]).items()}
    sure = visitor.post("/tasks/bulk", **fields)
    assert "Retry all tasks that match?" in text_of(sure)
    assert f"for example #{tasks[-1]}" in text_of(sure)
    assert "Retried 2 tasks" in text_of(visitor.post("/tasks/bulk", **fields, sure="yes"))


def as_a_browser_sends(value: str) -> str:
    """A hidden field: line breaks are folded when the page is read, and doubled when the form is sent."""
    return value.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def test_a_malformed_error_group_is_refused(site: Site, app: dibs.Dibs) -> None:
    failed(app, "broken")
    visitor = site.visitor("admin")
    for kind in ("Error: broken", "abc", "A" * 32, "a" * 33):
        answer = visitor.post_json("/tasks/bulk", action="redrive", which="matching", alike=kind)
        assert (answer.status_code, "error group" in answer.json()["error"]) == (400, True)
    assert states(app) == {"failed": 1}


def test_tasks_without_an_error_are_a_group_as_well(site: Site, app: dibs.Dibs) -> None:
    failed(app, "broken")
    [task] = failed(app, "")
    visitor = site.visitor("admin")
    assert sent_back(visitor, group_with(visitor, task)) == 1
    assert states(app) == {"failed": 1, "pending": 1}
    assert app.get(task).state == "pending"  # type: ignore[union-attr]


def test_filters_apply_to_the_groups_and_to_redriving_all(site: Site, app: dibs.Dibs) -> None:
    wanted = failed(app, "no route", queue="mail")
    rest = [*failed(app, "no lines", queue="mail"), *failed(app, "no route", queue="media")]
    dead(app, params={"text": "no route"}, queue="mail", error="other")
    visitor = site.visitor("admin")
    page = visitor.get("/dead", params={"queue": "mail", "error": "route", "type": ""})
    assert page.url.query.decode() == "queue=mail&error=route"
    assert "1 failed task" in text_of(page)
    done = visitor.post(
        "/tasks/bulk",
        action="redrive",
        which="matching",
        state="failed",
        queue="mail",
        error="route",
        sure="yes",
        to="dead",
    )
    assert "Retried 1 task" in text_of(done)
    assert done.url.query.decode() == "queue=mail&error=route"
    assert [events(app, task)[-1] for task in (*wanted, *rest)] == ["retried", "failed", "failed"]


def test_a_limited_key_sees_and_redrives_only_tasks_of_its_queues(site: Site, app: dibs.Dibs) -> None:
    failed(app, "mine is broken", queue="mine")
    theirs = failed(app, "theirs is broken", queue="theirs")
    visitor = site.visitor("admin", queues=["mine"])
    page = visitor.get("/dead")
    assert "theirs" not in page.text
    assert "1 failed task" in text_of(page)
    assert visitor.get("/dead?queue=theirs").status_code == 403
    do_all(visitor, action="redrive")
    assert events(app, theirs[0])[-1] == "failed"


@pytest.mark.parametrize("scopes", [["read"], ["read", "enqueue"]])
def test_a_key_without_the_admin_scope_sees_no_redrive_button(site: Site, app: dibs.Dibs, scopes: list[str]) -> None:
    failed(app, "broken")
    page = site.visitor(*scopes).get("/dead")
    assert "broken" in page.text
    assert "redrive" not in page.text.lower()


def test_an_empty_dead_letter_shows_a_message(site: Site) -> None:
    visitor = site.visitor("admin")
    assert "The dead letter is empty." in text_of(visitor.get("/dead"))
    assert "No failed task matches." in text_of(visitor.get("/dead?error=x"))
    for search in ("error=%00", "state=failed", "queue=%01"):
        assert visitor.get(f"/dead?{search}").status_code == 400


def test_hostile_errors_are_shown_as_text_and_can_be_redriven(site: Site, app: dibs.Dibs) -> None:
    tasks = [*failed(app, EVIL), *failed(app, f"{EVIL} {'x' * 60_000}")]
    visitor = site.visitor("admin")
    page = visitor.get("/dead")
    assert "<script>alert" not in page.text
    assert "<img src=x" not in page.text
    assert len(page.content) < 50_000
    for task in tasks:
        assert sent_back(visitor, group_with(visitor, task)) == 1
    assert states(app) == {"pending": 2}


def test_the_confirmation_shows_bidirectional_control_characters_of_the_filter_as_escapes(
    site: Site, app: dibs.Dibs
) -> None:
    failed(app, "before \u202egnp.exe")
    page = site.visitor("admin").get("/dead", params={"error": "\u202egnp"})
    [question] = re.findall(r'data-confirm="(Retry all[^"]*)"', page.text)
    assert "\\u202egnp" in question
    assert "\u202e" not in question


# Discard


def test_an_error_group_is_discarded_after_a_confirmation(site: Site, app: dibs.Dibs) -> None:
    gone, kept = failed(app, "no image 1"), failed(app, "upstream is away")
    visitor = site.visitor("admin")
    assert "Discard" in text_of(visitor.get("/dead"))
    fields = {**group_with(visitor, gone[0]), "action": "discard"}
    asked = visitor.post("/tasks/bulk", **fields)
    assert "Discard all tasks that match?" in text_of(asked)
    assert sent_back(visitor, fields) == 1
    assert [task.id for task in app.list_dead()] == kept
    assert "no image" not in text_of(visitor.get("/dead"))


def test_selected_tasks_are_discarded(site: Site, app: dibs.Dibs) -> None:
    first, second, third = failed(app, "a", "b", "c")
    pending = app.enqueue("resize").id
    visitor = site.visitor("admin")
    done = visitor.post_json("/tasks/bulk", action="discard", ids=f"{first},{third},{pending}").json()
    assert done == {"moved": 2, "looked": 3, "cursor": None}
    assert [task.id for task in app.list_dead()] == [second]
    assert (
        site.visitor("enqueue", "read").post_json("/tasks/bulk", action="discard", ids=str(second)).status_code == 403
    )


def test_one_task_is_discarded_on_its_page(site: Site, app: dibs.Dibs) -> None:
    [task] = failed(app, "no image")
    visitor = site.visitor("admin")
    page = visitor.get(f"/tasks/{task}")
    assert f"Discard task {task}?" in page.text
    assert "In the dead letter" in text_of(page)
    page = visitor.post(f"/tasks/{task}/discard")
    assert "Failed, discarded" in text_of(page)
    assert f"Discard task {task}?" not in page.text
    assert "Retry" in text_of(page)
    assert events(app, task)[-1] == "discarded"


def test_an_ignored_step_is_not_in_the_dead_letter_and_offers_no_retry(site: Site, app: dibs.Dibs) -> None:
    flow = workflows.start(app, workflows.step("a", on_failure="ignore", max_attempts=1), workflows.step("b", "a"))
    workflows.fail(app, flow, "a", "ignored trouble")
    task = workflows.task_of(app, flow, "a")
    visitor = site.visitor("admin")
    assert "The dead letter is empty." in text_of(visitor.get("/dead"))
    page = visitor.get(f"/tasks/{task}")
    assert "Failed, ignored by its workflow" in text_of(page)
    assert f"/tasks/{task}/retry" not in page.text
    assert f"/tasks/{task}/discard" not in page.text
