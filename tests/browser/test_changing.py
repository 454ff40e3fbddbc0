"""The form that changes a waiting task: by keyboard, with a confirmation, without a reload."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.site import Site, expect_no_reload, live

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def test_a_waiting_task_is_changed_from_the_keyboard(site: Site) -> None:
    task = site.app.enqueue("resize", {"width": 1})
    page = site.visitor("read", "enqueue", at=f"/tasks/{task.id}")
    live(page)
    page.locator("#change summary").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Priority")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Priority")).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("7")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text(f"Change task {task.id}?")
    expect(page.get_by_role("button", name="Back")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#notice")).to_contain_text("Changed: priority.")
    expect(page.get_by_label("Priority")).to_be_focused()
    expect(page.locator("#history")).to_contain_text("priority 0 → 7")
    page.get_by_label("Params").fill('{"width": 2}')
    page.locator("#change").get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.locator("#params-text")).to_contain_text("2")
    expect_no_reload(page)
    found = site.app.get(task.id)
    assert found is not None
    assert (found.priority, found.params) == (7, {"width": 2})


def test_the_form_disappears_when_a_worker_claims_the_task(site: Site) -> None:
    task = site.app.enqueue("resize")
    page = site.visitor("read", "enqueue", at=f"/tasks/{task.id}")
    live(page)
    expect(page.locator("#change summary")).to_be_visible()
    site.app.claim("worker-1", lease=3600)
    expect(page.locator("#change summary")).to_have_count(0)


def test_a_refused_change_is_reported_and_the_input_stays(site: Site) -> None:
    task = site.app.enqueue("resize")
    page = site.visitor("read", "enqueue", at=f"/tasks/{task.id}")
    live(page)
    site.windows.forgiven.add(400)
    page.locator("#change summary").click()
    page.get_by_label("Tags").fill("a\\b")
    page.get_by_label("Tags").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.locator("#notice")).to_contain_text("is not allowed")
    expect(page.get_by_label("Tags")).to_have_value("a\\b")
    assert site.app.get(task.id) == task
