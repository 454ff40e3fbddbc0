"""A phone: everything can be read and pressed at a width of 390 pixels."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.sample import PAGES, fill
from tests.browser.site import Site, expect_no_sideways

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def test_no_page_has_to_be_scrolled_sideways(site: Site) -> None:
    sample = fill(site.app, text="a" * 90 + " " + "long-word-" * 40)
    page = site.visitor(at="/", **PHONE)
    for path in sample.pages:
        page.goto(path)
        expect_no_sideways(page)


def test_the_menu_links_to_every_page(site: Site) -> None:
    fill(site.app)
    page = site.visitor(at="/", **PHONE)
    for path in PAGES:
        tap_in_menu(page, path)
        expect(page).to_have_url(f"{site.url}{path}")
        expect(page.locator("nav.menu a[aria-current]")).to_be_in_viewport()


def test_a_task_is_cancelled_by_touch(site: Site) -> None:
    sample = fill(site.app)
    page = site.visitor(at=f"/tasks/{sample.pending}", **PHONE)
    page.get_by_role("button", name="Cancel").tap()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").tap()
    expect(page.locator("#head .state")).to_have_text("cancelled")


def tap_in_menu(page: Page, path: str) -> None:
    link = page.locator(f'nav.menu a[href="{path}"]')
    link.scroll_into_view_if_needed()
    link.tap()
