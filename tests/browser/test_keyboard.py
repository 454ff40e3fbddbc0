"""The keyboard: everything can be reached, seen and done without a mouse."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.sample import fail_many, fill
from tests.browser.site import Site

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def test_every_page_has_a_shortcut_of_two_keys(site: Site) -> None:
    fill(site.app)
    page = site.visitor(at="/")
    places = {
        "t": "tasks",
        "q": "queues",
        "l": "limits",
        "w": "workers",
        "f": "workflows",
        "s": "schedules",
        "d": "dead",
        "o": "",
    }
    for key, place in places.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"{site.url}/{place}")  # and until it is loaded: before that its shortcuts do not work


def test_a_task_is_found_and_opened_from_the_keyboard(site: Site) -> None:
    sample = fill(site.app)
    page = site.visitor(at="/tasks")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("state:failed")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("failed"))
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(f"#row-{sample.failed}")).to_have_class(re.compile(r"\bhere\b"))
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}/tasks/{sample.failed}")


def test_a_task_is_selected_and_retried_from_the_keyboard(site: Site) -> None:
    failed = fail_many(site.app, 2)[1]
    page = site.visitor(at="/tasks?state=failed")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("checkbox", name=f"Select task {failed}")).to_be_checked()
    page.get_by_role("button", name="Retry", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_role("button", name="Back")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(f"#row-{failed}")).to_have_count(0)
    assert site.app.stats().depth == {"pending": 1, "failed": 1}


def test_escape_closes_a_confirmation_without_an_action(site: Site) -> None:
    sample = fill(site.app)
    page = site.visitor(at=f"/tasks/{sample.pending}")
    button = page.get_by_role("button", name="Cancel")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(button).to_be_focused()
    page.reload()
    expect(page.locator("#head .state")).to_have_text("pending")


def test_the_shortcuts_are_listed(site: Site) -> None:
    page = site.visitor("read", at="/")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_the_menu_can_be_skipped(site: Site) -> None:
    page = site.visitor("read", at="/tasks")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_the_focused_element_is_marked_and_never_hidden(site: Site) -> None:
    sample = fill(site.app)
    page = site.visitor(at="/")
    for path in sample.pages:
        page.goto(path)
        for _ in range(40):
            page.keyboard.press("Tab")
            if (where := unseen_focus(page)) is not None:
                raise AssertionError(f"on {path} nobody sees that the focus is on {where}")


def unseen_focus(page: Page) -> str | None:
    """The element with the focus, if it has no visible outline or is outside of the window; else None."""
    return page.evaluate(  # type: ignore[no-any-return]
        """() => {
          const active = document.activeElement;
          if (!active || active === document.body) return null;
          const style = getComputedStyle(active), box = active.getBoundingClientRect();
          const drawn = active.querySelector("rect.box"); // a box of a graph has a thicker edge instead
          const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0
            || drawn && parseFloat(getComputedStyle(drawn).strokeWidth) >= 2;
          const inside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
          return outlined && inside && box.width > 0 ? null : active.outerHTML.slice(0, 200);
        }"""
    )
