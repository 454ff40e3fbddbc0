"""Schedules in the dashboard: their ticks and results, and buttons for the actions that the API allows."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import dibs
from tests.helpers.browsing import text_of
from tests.server.dashboard.conftest import Site


def actions(page: str) -> set[str]:
    return set(re.findall(r'action="(/schedules/[^"]*)"', page))


def test_a_schedule_is_shown_with_a_description_in_words_and_its_next_ticks(site: Site, app: dibs.Dibs) -> None:
    app.set_schedule("nightly", "0 3 * * *", "report", timezone="Europe/Berlin")
    app.set_schedule("odd", "7,22 1-5,20 1 */2 *", "odd", queue="slow")
    page = site.visitor("read").get("/schedules")
    text = text_of(page)
    assert "nightly report · queue default at 03:00 every day, Europe/Berlin 0 3 * * * Europe/Berlin" in text
    assert re.search(r"Europe/Berlin in \d+ (h|min|s) \w+ \d+ \w+ 03:00 then (\d+ \w+ 03:00 , ){3}\d+ \w+ 03:00", text)
    assert "odd odd · queue slow at minutes 7 and 22 in hours 1 to 5 and 20 on the 1st of January, March, May" in text
    assert "2 of 2 enabled" in text


def test_an_interval_an_ended_schedule_and_skipped_ticks_are_shown(site: Site, app: dibs.Dibs) -> None:
    app.set_schedule("poll", every=900, type="poll", overlap="skip")
    app.run_schedule("poll")
    app.set_schedule("launch", at=datetime(2020, 1, 31, 8, tzinfo=UTC), type="launch")
    app.tick()
    text = text_of(site.visitor("read", "enqueue").get("/schedules"))
    assert "1 of 2 enabled, 96 ticks" in text
    assert re.search(r"every 15 minutes overlap: skip, a tick is skipped until #?\d+ has ended", text), text
    assert "ended launch launch · queue default once, at 2020-01-31 08:00:00 UTC" in text


def test_the_ticks_of_the_coming_day_are_shown_as_a_chart(site: Site, app: dibs.Dibs) -> None:
    app.set_schedule("often", "*/5 * * * *", "poll")
    app.set_schedule("resting", "* * * * *", "poll", enabled=False)
    page = site.visitor("read").get("/schedules")
    assert "1 of 2 enabled, 288 ticks" in text_of(page)
    assert page.text.count("3 ticks in a quarter of an hour") == 96


def test_a_schedule_is_run_now_disabled_and_enabled(site: Site, app: dibs.Dibs) -> None:
    app.set_schedule("a/b c", "0 3 * * *", "report")
    visitor = site.visitor("read", "enqueue")
    assert actions(visitor.get("/schedules").text) == {"/schedules/run", "/schedules/disable"}
    assert re.search(r"Task \d+ is pending\.", text_of(visitor.post("/schedules/run", name="a/b c")))
    assert [task.type for task in app.list_tasks()] == ["report"]
    disabled = visitor.post("/schedules/disable", name="a/b c")
    assert "Schedule a/b c is disabled." in text_of(disabled)
    assert "/schedules/enable" in actions(disabled.text)
    assert not app.get_schedule("a/b c").enabled
    assert "Schedule a/b c is enabled." in text_of(visitor.post("/schedules/enable", name="a/b c"))
    assert app.get_schedule("a/b c").enabled


def test_a_key_with_only_the_read_scope_sees_no_button_and_is_refused(site: Site, app: dibs.Dibs) -> None:
    app.set_schedule("nightly", "0 3 * * *", "report")
    visitor = site.visitor("read")
    assert actions(visitor.get("/schedules").text) == set()
    for verb in ("run", "enable", "disable"):
        assert visitor.post(f"/schedules/{verb}", name="nightly").status_code == 403
    assert app.list_tasks() == []


def test_schedules_of_other_queues_do_not_exist_for_a_limited_key(site: Site, app: dibs.Dibs) -> None:
    app.set_schedule("ours", "0 3 * * *", "report", queue="ours")
    app.set_schedule("theirs", "0 3 * * *", "report", queue="theirs")
    visitor = site.visitor("read", "enqueue", queues=["ours"])
    text = text_of(visitor.get("/schedules"))
    assert "1 of 1 enabled" in text
    assert "theirs" not in text
    for verb in ("run", "enable", "disable"):
        assert visitor.post(f"/schedules/{verb}", name="theirs").status_code == 404
        assert visitor.post(f"/schedules/{verb}", name="ours").status_code == 200
    assert [task.queue for task in app.list_tasks()] == ["ours"]


def test_more_schedules_than_fit_a_page_are_shown_page_by_page(site: Site, app: dibs.Dibs) -> None:
    for number in range(103):
        app.set_schedule(f"plan-{number:03}", "0 3 * * *", "report")
    visitor = site.visitor("read")
    first = visitor.get("/schedules")
    more = re.search(r'href="(/schedules\?after=[^"]*)" rel="next"', first.text)
    assert more is not None
    assert re.findall(r"<b>(plan-\d+)</b>", visitor.get(more[1]).text) == ["plan-100", "plan-101", "plan-102"]


def test_hostile_names_are_shown_as_text(site: Site, app: dibs.Dibs) -> None:
    app.set_schedule('"><script>alert(1)</script>', "0 3 * * *", "<img src=x>")
    visitor = site.visitor("admin")
    page = visitor.get("/schedules")
    assert "<script>alert" not in page.text
    assert "<img src=x>" not in page.text
    assert "is pending." in text_of(visitor.post("/schedules/run", name='"><script>alert(1)</script>'))


def test_the_buttons_of_a_schedule_whose_name_is_a_relative_path_work(site: Site, app: dibs.Dibs) -> None:
    for name in (".", ".."):
        app.set_schedule(name, "0 3 * * *", "report")
    page = site.visitor("admin").get("/schedules").text
    assert actions(page) == {"/schedules/run", "/schedules/disable"}
    assert set(re.findall(r'name="name" value="([^"]*)"', page)) == {".", ".."}


def test_a_store_without_schedules_shows_a_message(site: Site) -> None:
    assert "No schedules." in text_of(site.visitor("read").get("/schedules"))


def test_a_link_to_a_schedule_opens_its_page_of_the_list_and_marks_it(site: Site, app: dibs.Dibs) -> None:
    for number in range(120):
        app.set_schedule(f"no {number:03}", "0 3 * * *", "report")
    visitor = site.visitor("read")

    def rows(page: str) -> list[tuple[str, str]]:
        return re.findall(r'<tr data-row id="schedule-no%20(\d+)"( class="shown")?>', page)

    late = rows(visitor.get("/schedules?show=no+110").text)
    assert [number for number, _ in late] == [f"{number:03}" for number in range(100, 120)]
    assert [number for number, mark in late if mark] == ["110"]
    early = rows(visitor.get("/schedules?show=no+007").text)
    assert [number for number, mark in early if mark] == ["007"]
    assert len(early) == 100
    assert len(rows(visitor.get("/schedules?show=gone").text)) == 100
