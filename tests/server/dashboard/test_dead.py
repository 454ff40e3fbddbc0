"""The dead letter, by error: what is alike stands together, and is sent back together."""

from __future__ import annotations

import re

import pytest

import dibs
from tests.helpers.browsing import text_of
from tests.helpers.tasks import dead, events
from tests.server.dashboard.conftest import Site
from tests.server.dashboard.test_bulk import do_all, states
from tests.server.dashboard.test_tasks import EVIL, ids


def failed(app: dibs.Dibs, *errors: str, **options: str) -> list[int]:
    """One task in the dead letter for each error."""
    return [task for error in errors for task in dead(app, error=error, **options)]


def groups(text: str) -> list[dict[str, str]]:
    """The fields of each group's form, those for redriving all left out."""
    forms = re.findall(r"(?s)<form method=\"post\" action=\"/tasks/bulk\".*?</form>", text)
    fields = [dict(re.findall(r'name="(\w+)" value="([^"]*)"', form)) for form in forms]
    return [{name: each[name] for name in each if name != "csrf"} for each in fields if "alike" in each]


def test_errors_that_differ_in_numbers_stand_together_the_most_frequent_first(site: Site, app: dibs.Dibs) -> None:
    failed(app, "no route to host")
    failed(app, "order 1 has no lines", "order 22 has no lines", "order 333 has no lines")
    failed(app, "order 4 has no lines", type="other")
    words = text_of(site.visitor("read").get("/dead"))
    assert "5 failed tasks" in words
    assert re.search(r"3 Error order 333 has no lines resize .*1 Error .*1 Error ", words)


def test_a_group_leads_to_its_tasks(site: Site, app: dibs.Dibs) -> None:
    tasks = failed(app, "order 1 has no lines", "order 22 has no lines")
    failed(app, "no route to host", "order 1 has lines")
    failed(app, "order 4 has no lines", type="other")
    visitor = site.visitor("read")
    links = re.findall(r'href="(/tasks\?[^"]+)" data-open', visitor.get("/dead").text)
    assert ids(visitor.get(links[0].replace("&amp;", "&"))) == tasks[::-1]


def test_one_group_is_sent_back_and_no_other(site: Site, app: dibs.Dibs) -> None:
    tasks = failed(app, *(f"order {number} has no lines" for number in range(30)))
    others = failed(app, "no route to host", "order 7 has no line")
    visitor = site.visitor("admin")
    [fields] = [each for each in groups(visitor.get("/dead").text) if "lines" in each["alike"]]
    assert (fields.pop("which"), fields.pop("to"), fields.pop("action")) == ("matching", "dead", "redrive")
    assert do_all(visitor, action="redrive", **fields)[0] == len(tasks)
    assert all(events(app, task)[-1] == "retried" for task in tasks)
    assert all(events(app, task)[-1] == "failed" for task in others)


def test_tasks_without_an_error_are_a_group_as_well(site: Site, app: dibs.Dibs) -> None:
    failed(app, "broken")
    [task] = failed(app, "")
    visitor = site.visitor("admin")
    for fields in groups(visitor.get("/dead").text):
        assert (
            do_all(visitor, action="redrive", **{k: v for k, v in fields.items() if k not in ("which", "action")})[0]
            == 1
        )
    assert app.get(task).state == "pending"  # type: ignore[union-attr]


def test_filters_leave_the_rest_alone_and_hold_for_redriving_all(site: Site, app: dibs.Dibs) -> None:
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
    assert "Sent 1 task back" in text_of(done)
    assert done.url.query.decode() == "queue=mail&error=route"
    assert [events(app, task)[-1] for task in (*wanted, *rest)] == ["retried", "failed", "failed"]


def test_a_key_for_some_queues_sees_and_sends_back_theirs_alone(site: Site, app: dibs.Dibs) -> None:
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
def test_who_may_not_redrive_sees_no_button_for_it(site: Site, app: dibs.Dibs, scopes: list[str]) -> None:
    failed(app, "broken")
    page = site.visitor(*scopes).get("/dead")
    assert "broken" in page.text
    assert "redrive" not in page.text.lower()


def test_an_empty_dead_letter_says_so(site: Site) -> None:
    visitor = site.visitor("admin")
    assert "The dead letter is empty." in text_of(visitor.get("/dead"))
    assert "No failed task matches." in text_of(visitor.get("/dead?error=x"))
    for search in ("error=%00", "state=failed", "queue=%01"):
        assert visitor.get(f"/dead?{search}").status_code == 400


def test_hostile_errors_are_shown_as_text_and_can_be_sent_back(site: Site, app: dibs.Dibs) -> None:
    tasks = [*failed(app, EVIL), *failed(app, f"{EVIL} {'x' * 60_000}")]
    visitor = site.visitor("admin")
    page = visitor.get("/dead")
    assert "<script>alert" not in page.text
    assert "<img src=x" not in page.text
    assert len(page.content) < 50_000
    for task in tasks:
        [line] = [each for each in _lines(visitor) if each["newest"] == task]
        assert do_all(visitor, action="redrive", **line["fields"])[0] == 1
    assert states(app) == {"pending": 2}


def _lines(visitor: object) -> list[dict[str, object]]:
    from html import unescape

    text = visitor.get("/dead").text  # type: ignore[attr-defined]
    rows = re.findall(r'(?s)<tr data-row id="row-(\d+)">(.*?)</tr>', text)
    lines = []
    for newest, row in rows:
        [fields] = groups(row)
        kept = {name: unescape(value) for name, value in fields.items() if name not in ("which", "action", "to")}
        lines.append({"newest": int(newest), "fields": kept})
    return lines
