"""The overview, the queues and the workers: their figures, their visibility and their buttons."""

from __future__ import annotations

import html
import json
import re
import time
from typing import Any

import httpx
import pytest
from markupsafe import escape

import dibs
from dibs.model.registry import Heartbeat
from tests.helpers.browsing import Visitor, text_of
from tests.helpers.databases import run_sql
from tests.helpers.waiting import until
from tests.server.dashboard.conftest import Site

HOSTILE = '<script>alert("x")</script>\u202e\x07'
SHOWN = '<script>alert("x")</script>\\u202e\u2407'


def once_counted(visitor: Visitor, path: str) -> httpx.Response:
    """The page, when the numbers on it are there."""
    answer = None

    def look() -> bool:
        nonlocal answer
        answer = visitor.get(path)
        return "Counting…" not in answer.text and figure(answer, "pending") != "…"

    until(look)
    assert answer is not None
    return answer


def figure(page: httpx.Response, name: str) -> str:
    return html.unescape(page.text.partition(f'id="figure-{name}">')[2].partition("<")[0])


def row(page: httpx.Response, name: str) -> dict[str, str]:
    """The cells of the table row with this name, by the names of the columns."""
    for part in page.text.split("<tr ")[1:]:
        cells = re.findall(r'(?s)<td data-label="([^"]+)"[^>]*>(.*?)</td>', part.partition("</tr>")[0])
        texts = {label: text_of(httpx.Response(200, text=cell)).strip() for label, cell in cells}
        if any(name in text for text in texts.values()):
            return texts
    raise AssertionError(f"{name} is not on the page")


def beat(app: dibs.Dibs, name: str, **about: Any) -> None:
    store: Any = app._store
    store.run(store.registry.heartbeat(Heartbeat(worker_id=name, incarnation="one", **about)))


def fail_for_good(app: dibs.Dibs, task: dibs.Task, message: str = "no") -> None:
    claim = app.claim_by_id(task.id, "worker-1")
    app.fail(claim, message, permanent=True)


# Overview


def test_an_empty_store_shows_how_to_begin(site: Site) -> None:
    page = once_counted(site.visitor("read"), "/")
    assert "enqueue the first task" in text_of(page)
    assert "dibs enqueue" in text_of(page)


def test_the_figures_are_those_of_the_store(site: Site, app: dibs.Dibs) -> None:
    for _ in range(3):
        app.enqueue("resize")
    fail_for_good(app, app.enqueue("resize"))
    app.claim("worker-1")
    beat(app, "worker-1")
    page = once_counted(site.visitor("read"), "/")
    assert "enqueue the first task" not in text_of(page)
    figures = {name: figure(page, name) for name in ("pending", "claimed", "dead", "workers")}
    assert figures == {"pending": "2", "claimed": "1", "dead": "1", "workers": "1"}
    assert figure(page, "oldest") != "\N{EN DASH}"


def test_paused_queues_and_paused_types_are_counted(site: Site, app: dibs.Dibs) -> None:
    app.pause("mail")
    for name in ("resize", "scan"):
        app.pause_type(name)
    page = once_counted(site.visitor("read"), "/")
    assert "1 queue is paused 2 task types are paused" in text_of(page)
    assert "task types" not in text_of(once_counted(site.visitor("read", queues=["mail"]), "/"))


def test_the_newest_failures_are_shown_as_text(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    fail_for_good(app, task, HOSTILE)
    page = site.visitor("read").get("/")
    assert SHOWN in text_of(page)
    assert "<script>alert" not in page.text
    assert f'href="/tasks/{task.id}"' in page.text


def test_a_limited_key_sees_the_figures_of_its_queues(site: Site, app: dibs.Dibs) -> None:
    app.enqueue("resize", queue="mine")
    fail_for_good(app, app.enqueue("resize", queue="theirs"), "a secret of theirs")
    beat(app, "worker-1", queues=["theirs"])
    beat(app, "worker-2", queues=["mine", "theirs"])
    page = once_counted(site.visitor("read", queues=["mine"]), "/")
    assert [figure(page, name) for name in ("pending", "dead", "workers")] == ["1", "0", "1"]
    assert "secret" not in page.text


def test_a_limited_key_is_shown_why_two_charts_are_missing(site: Site, app: dibs.Dibs) -> None:
    page = site.visitor("read", queues=["mine"]).get("/")
    assert "shown only to keys without a limit to queues" in text_of(page)
    assert 'id="chart-wait"' not in page.text
    whole = site.visitor("read").get("/")
    assert "shown only to keys without a limit to queues" not in text_of(whole)
    assert 'id="chart-wait"' in whole.text


def test_the_charts_show_the_samples(site: Site, app: dibs.Dibs, url: str) -> None:
    minute = int(time.time()) // 60 * 60_000_000
    for ago in (1, 2, 3, 4, 200, 201, 202):
        sample = {
            "seconds": 60.0,
            "whole": [[0, 0, 10 * ago, 0, 0, 0, 0], [120, 0, 60, 0, 0], 1.5],
            "queues": {"mine": [[0, 0, ago, 0, 0, 0, 0], [6, 0, 0, 0, 0], None]},
            "wait": [0.1, 0.2, 0.3],
            "run": None,
            "at": (minute // 1_000_000 - 60 * ago) * 1_000_000,
        }
        at = sample["at"]
        run_sql(url, f"INSERT INTO dibs_samples (at, body) VALUES ({at}, '{json.dumps(sample)}')")
    for window in ("15m", "1h", "24h", "7d"):
        seen = site.visitor("read").get(f"/charts?window={window}", headers={"accept": "application/json"}).json()
        assert seen["states"][2] == "pending"
        first = seen["points"][0]
        assert first[1][2] in {40, 2000, 2010, 2020}
        assert first[2][:3] == [2.0, 0.0, 1.0]
        assert first[3] == [0.1, 0.2, 0.3]
    visitor = site.visitor("read", queues=["mine"])
    seen = visitor.get("/charts?window=1h", headers={"accept": "application/json"}).json()
    assert [point[1][2] for point in seen["points"][:4]] == [4, 3, 2, 1]
    assert seen["points"][0][2][0] == 0.1
    assert {point[3] for point in seen["points"][:4]} == {None}


def test_a_window_that_does_not_exist_is_refused(site: Site) -> None:
    assert site.visitor("read").get("/?window=2y").status_code == 400


# Queues


def test_every_queue_is_shown_with_its_depth_and_its_workers(site: Site, app: dibs.Dibs) -> None:
    for _ in range(3):
        app.enqueue("resize", queue="images")
    app.enqueue("resize", queue="images", delay=60)
    app.enqueue("send", queue="mail")
    beat(app, "worker-1", queues=["images"])
    beat(app, "worker-2")
    page = once_counted(site.visitor("read"), "/queues")
    images, mail = row(page, "images"), row(page, "mail")
    assert [images[name] for name in ("Pending", "Claimed", "Waiting", "Dead letter", "Workers")] == [
        "3",
        "0",
        "1",
        "0",
        "2",
    ]
    assert (mail["Pending"], mail["Workers"]) == ("1", "1")


def test_a_queue_is_paused_and_resumed_by_its_button(site: Site, app: dibs.Dibs) -> None:
    name = f"a/b {HOSTILE[:-2]}"
    app.enqueue("send", queue=name)
    visitor = site.visitor("admin")
    page = once_counted(visitor, "/queues")
    assert f'name="name" value="{escape(name)}"' in page.text
    assert "<script>alert" not in page.text
    answer = visitor.post("/queues/pause", name=name)
    assert f"{name} is paused" in text_of(answer)
    assert row(answer, "a/b")["Queue"].endswith("paused")
    assert app.claim("worker-1") is None
    answer = visitor.post("/queues/resume", name=name)
    assert "Resume" not in text_of(answer)
    assert app.claim("worker-1") is not None


def test_a_key_with_only_the_read_scope_sees_no_button(site: Site, app: dibs.Dibs) -> None:
    app.enqueue("send", queue="mail")
    page = once_counted(site.visitor("read"), "/queues")
    assert "mail" in text_of(page)
    assert "<button>Pause" not in page.text
    assert "/pause" not in page.text


def test_a_limited_key_sees_and_pauses_no_other_queue(site: Site, app: dibs.Dibs) -> None:
    app.enqueue("send", queue="mine")
    app.enqueue("send", queue="theirs")
    visitor = site.visitor("admin", queues=["mine"])
    page = once_counted(visitor, "/queues")
    assert "mine" in text_of(page)
    assert "theirs" not in page.text
    assert visitor.post("/queues/pause", name="theirs").status_code == 403
    assert not any(queue.paused for queue in app.queues())
    assert visitor.post("/queues/pause", name="mine").status_code == 200


# Workers


def test_a_worker_is_shown_with_its_claimed_tasks_and_their_leases(site: Site, app: dibs.Dibs) -> None:
    beat(app, "worker-1", queues=["mail"], types=["send"], metadata={"host": "node-7", "pid": 4711, "dibs": "9.9"})
    task = app.enqueue("send", queue="mail")
    app.claim("worker-1")
    page = site.visitor("read").get("/workers")
    for words in ("worker-1", "active", "mail", "send", "node-7", "4711", "9.9", f"#{task.id}", "lease ends in"):
        assert words in " ".join(row(page, "worker-1").values())
    assert f'href="/tasks/{task.id}"' in page.text


def test_a_worker_that_left_is_shown_last(site: Site, app: dibs.Dibs) -> None:
    beat(app, "a-gone", leaving=True)
    beat(app, "b-here")
    text = text_of(site.visitor("read").get("/workers"))
    assert text.index("b-here") < text.index("a-gone")
    assert "1 active, 0 stale, 1 gone" in text


def test_metadata_of_a_worker_is_shown_as_text(site: Site, app: dibs.Dibs) -> None:
    told = {HOSTILE: HOSTILE, "long": "x" * 500_000, "deep": {"a": [1, {"b": None}]}}
    beat(app, "worker-1", metadata=told, queues=[f"queue {n}" for n in range(100)])
    page = site.visitor("read").get("/workers")
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert len(page.text) < 50_000


def test_a_limited_key_sees_the_workers_of_its_queues(site: Site, app: dibs.Dibs) -> None:
    beat(app, "worker-1", queues=["theirs"])
    beat(app, "worker-2", queues=["mine", "theirs"])
    foreign, own = app.enqueue("send", queue="theirs"), app.enqueue("send", queue="mine")
    app.claim_many("worker-2", 2)
    page = site.visitor("read", queues=["mine"]).get("/workers")
    assert "worker-1" not in page.text
    assert "theirs" not in page.text
    assert f"#{own.id}" in text_of(page)
    assert f"#{foreign.id}" not in text_of(page)


@pytest.mark.parametrize("path", ["/", "/queues", "/workers", "/charts"])
def test_every_page_needs_a_session(site: Site, path: str) -> None:
    visitor = site.visitor()
    assert visitor.get(path).url.path == "/signin"
