"""The tasks page: a search finds every matching task that the key may see, page by page, and shows it as text."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

import dibs
from dibs import batch_size
from dibs.server.dashboard import search
from tests.helpers.browsing import text_of
from tests.helpers.tasks import dead, enqueue_all, task_in
from tests.server.dashboard.conftest import Site

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> \"' \u202egnp.exe \x07\x1b[31m \u2066x\u2069"


def ids(page: httpx.Response) -> list[int]:
    """The tasks on the page."""
    assert page.status_code == 200, page.text
    return [int(found) for found in re.findall(r'id="row-(\d+)"', page.text)]


def link(page: httpx.Response, rel: str) -> str | None:
    """Where the page leads."""
    found = re.search(rf'rel="{rel}" href="([^"]+)"', page.text)
    return found[1].replace("&amp;", "&") if found else None


@pytest.mark.parametrize(
    ("search", "wanted"),
    [
        ({"state": "failed"}, "failed"),
        ({"state": "scheduled"}, "scheduled"),
        ({"worker": "w-7"}, "claimed"),
        ({"queue": "mail"}, "pending"),
        ({"type": "rare"}, "completed"),
        ({"key": "k 1"}, "cancelled"),
        ({"text": "needle"}, "pending"),
        ({"text": "exploded"}, "failed"),
        ({"error": "exploded"}, "failed"),
        ({"tags": "eu,vip"}, "pending"),
        ({"q": "tag:vip tag:eu"}, "pending"),
        ({"q": "tags:eu needle"}, "pending"),
        ({"q": "state:pending needle"}, "pending"),
        ({"q": "type:rare last:day"}, "completed"),
    ],
)
def test_tasks_are_found_by_every_filter(site: Site, app: dibs.Dibs, search: dict[str, str], wanted: str) -> None:
    [failed] = dead(app, error="it exploded")
    tasks = {
        "failed": failed,
        "pending": app.enqueue("resize", {"a": "needle"}, queue="mail", tags=["vip", "eu"]).id,
        "scheduled": task_in(app, "scheduled").id,
        "claimed": task_in(app, "claimed", worker_id="w-7").id,
        "completed": task_in(app, "completed", type="rare").id,
        "cancelled": task_in(app, "cancelled", key="k 1").id,
    }
    assert ids(site.visitor("read").get("/tasks", params=search)) == [tasks[wanted]]


def test_a_number_alone_is_the_id_of_a_task(site: Site, app: dibs.Dibs) -> None:
    tasks = [app.enqueue("resize", {"n": 1}) for _ in range(3)]
    visitor = site.visitor("read")
    found = visitor.get("/tasks", params={"q": f"#{tasks[1].id}"})
    assert ids(found) == [tasks[1].id]
    assert str(found.url).endswith(f"/tasks?id={tasks[1].id}")
    missing = visitor.get("/tasks", params={"q": "4711"})
    assert "There is no task 4711." in text_of(missing)


def test_the_url_contains_the_filters_of_the_search_and_nothing_else(site: Site) -> None:
    form = {"q": "state:failed boom", "state": "", "queue": "mail", "type": "", "within": ""}
    found = site.visitor("read").get("/tasks", params=form)
    assert str(found.url.query.decode()) == "state=failed&queue=mail&text=boom"


def test_tasks_are_found_by_the_time_when_they_were_created(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    visitor = site.visitor("read")
    assert ids(visitor.get("/tasks", params={"within": "hour"})) == [task.id]
    assert ids(visitor.get("/tasks", params={"since": "2020-01-01", "until": "2100-01-01T10:30"})) == [task.id]
    assert ids(visitor.get("/tasks", params={"since": "2100-01-01"})) == []
    assert ids(visitor.get("/tasks", params={"until": "2020-01-01T00:00:00+02:00"})) == []


@pytest.mark.parametrize(
    "search",
    [
        "since=yesterday",
        "q=state:broken",
        "cursor=-1",
        "type=%01",
        "text=%00",
        "q=last:year",
        "key=%ED",
        "id=x",
        "limit=1",
    ],
)
def test_an_invalid_search_is_reported(site: Site, search: str) -> None:
    answer = site.visitor("read").get(f"/tasks?{search}")
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("id:abc", "'abc' is not a task id."),
        ("id:1.5", "'1.5' is not a task id."),
        ("id:-1", "'-1' is not a task id."),
        ("id:" + "9" * 30, "is not a task id."),
        ("alike:abc", "alike is not an error group: 'abc'."),
        ("queue:mail queue:secret", "queue is written twice: 'mail' and 'secret'."),
        ("last:hour within:day", "within is written twice: 'hour' and 'day'."),
        ("text:a text:b", "text is written twice: 'a' and 'b'."),
        ('queue:""', "queue: has no value."),
        ("until:9999-12-31T23:59-23:00", "until is outside the years 1 to 9999 in UTC."),
    ],
)
def test_invalid_words_in_the_search_box_are_reported_on_a_page(site: Site, words: str, sentence: str) -> None:
    answer = site.visitor("read").get("/tasks", params={"q": words})
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert sentence in text_of(answer)


def test_no_word_of_the_search_box_is_ignored(site: Site, app: dibs.Dibs) -> None:
    wanted = app.enqueue("resize", {"a": "abc def"})
    app.enqueue("resize", {"a": "def"})
    visitor = site.visitor("read")
    for words in ("text:abc def", "abc text:def", 'text:"abc def"', "abc type:resize def"):
        assert ids(visitor.get("/tasks", params={"q": words})) == [wanted.id]


def test_of_two_lower_bounds_of_the_creation_time_the_later_applies(site: Site, app: dibs.Dibs) -> None:
    app.enqueue("resize")
    assert ids(site.visitor("read").get("/tasks?within=day&since=2100-01-01")) == []
    assert len(ids(site.visitor("read").get("/tasks?within=day&since=2020-01-01"))) == 1


def test_the_confirmation_shows_bidirectional_control_characters_as_escapes(site: Site) -> None:
    page = site.visitor("admin").get("/tasks", params={"queue": "a\u202eb", "text": "c\u2066d"})
    [words] = re.findall(r'data-words="([^"]*)"', page.text)
    assert words == "queue:a\\u202eb text:c\\u2066d"


def test_pages_follow_each_other_without_gap_or_repetition_and_link_back(site: Site, app: dibs.Dibs) -> None:
    tasks = enqueue_all(app, [dibs.NewTask("resize", queue=f"q{number % 2}") for number in range(260)])
    wanted = [task.id for task in reversed(tasks) if task.queue == "q1"]
    visitor = site.visitor("read")
    page, seen, addresses = visitor.get("/tasks?queue=q1"), list[int](), list[str]()
    while True:
        seen += ids(page)
        addresses.append(str(page.url))
        app.enqueue("resize", queue="q1")  # what comes meanwhile stands on no page but the first
        older = link(page, "next")
        if older is None:
            break
        page = visitor.get(older)
    assert seen == wanted
    for address in reversed(addresses[:-1]):
        newer = link(page, "prev")
        assert newer is not None
        page = visitor.get(newer)
        assert str(page.url) == address
    assert link(page, "prev") is None


def test_a_long_search_shows_its_progress_and_a_link_to_continue(
    site: Site, app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = app.enqueue("rare")
    enqueue_all(app, [dibs.NewTask("resize") for _ in range(500)])
    monkeypatch.setattr(search, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(search.search_tasks, "__defaults__", (search.PAGE, 0.0))
    monkeypatch.setattr(batch_size, "FIRST_SPAN", 200)
    visitor = site.visitor("read")
    page = visitor.get("/tasks?type=rare")
    assert "Searched 200 tasks, found 0." in text_of(page)
    assert 'id="found" data-looked="200">' in page.text  # and is not live: it would be looked for again and again
    hops = 0
    while not ids(page):
        found = re.search(r'data-next="([^"]+)"', page.text)
        assert found is not None
        page, hops = visitor.get(found[1].replace("&amp;", "&")), hops + 1
    assert (ids(page), hops) == ([rare.id], 2)


def test_the_states_are_counted_and_link_to_their_tasks(site: Site, app: dibs.Dibs) -> None:
    dead(app, 3)
    app.enqueue("resize")
    visitor = site.visitor("read")
    words = text_of(visitor.get("/tasks?type=resize"))
    assert re.search(r"all 4\b.*pending 1\b.*completed 0\b.*failed 3\b", words)
    assert 'href="/tasks?state=failed&amp;type=resize"' in visitor.get("/tasks?type=resize").text


def test_a_limited_key_sees_only_tasks_of_its_queues(site: Site, app: dibs.Dibs) -> None:
    mine, theirs = (
        app.enqueue("resize", {"a": "needle"}, queue="mine"),
        app.enqueue("resize", {"a": "needle"}, queue="theirs"),
    )
    visitor = site.visitor("read", queues=["mine"])
    for query in ("", "?text=needle", "?state=pending", "?type=resize"):
        page = visitor.get(f"/tasks{query}")
        assert ids(page) == [mine.id]
        assert "theirs" not in page.text
    assert ids(visitor.get(f"/tasks?id={theirs.id}")) == []
    refused = visitor.get("/tasks?queue=theirs")
    assert (refused.status_code, "This key may not use queue" in text_of(refused)) == (403, True)


@pytest.mark.parametrize(
    ("scopes", "shown"),
    [
        (["read"], []),
        (["read", "enqueue"], ["retry", "cancel"]),
        (["admin"], ["retry", "cancel", "redrive", "discard"]),
    ],
)
def test_only_allowed_actions_have_buttons(site: Site, app: dibs.Dibs, scopes: list[str], shown: list[str]) -> None:
    dead(app)
    page = site.visitor(*scopes).get("/tasks")
    assert re.findall(r'name="action" value="(\w+)"', page.text) == shown
    assert ('type="checkbox"' in page.text) is bool(shown)


def test_hostile_texts_are_shown_as_text(site: Site, app: dibs.Dibs) -> None:
    names: dict[str, Any] = {"queue": "<i>\u202eq</i>", "key": '"><script>k</script>'}
    task = app.enqueue("<script>t</script>\u202e", {EVIL: EVIL}, **names)
    app.fail(app.claim_by_id(task.id, "w-1"), dibs.Failure("<b>E</b>", EVIL, EVIL), permanent=True)
    visitor = site.visitor("admin")
    for query in ({}, {"state": "failed"}, {"text": "<script>"}, {"q": EVIL}, {"alike": EVIL}, {"worker": '"><b>'}):
        page = visitor.get("/tasks", params=query)
        assert page.status_code in {200, 400}
        assert "<script>t" not in page.text
        assert "<img src=x" not in page.text
        assert not set(page.text) & {"\u202e", "\u2066", "\x07", "\x1b"} - set(_of_box(page))


def _of_box(page: httpx.Response) -> str:
    """What was written into a field stays as it was written: it is sent again."""
    return "".join(re.findall(r'value="([^"]*)"', page.text) + re.findall(r'href="([^"]*)"', page.text))


def test_params_and_errors_of_a_megabyte_make_a_page_of_bounded_size(site: Site, app: dibs.Dibs) -> None:
    for _ in range(3):
        app.enqueue("big", {"text": "x" * 1_000_000})
    page = site.visitor("read").get("/tasks?text=xxxx")
    assert len(ids(page)) == 3
    assert len(page.content) < 30_000
