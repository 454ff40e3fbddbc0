"""Light and dark: the setting of the system, until the user chooses."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.sample import fill
from tests.browser.site import Site

FAINT = Path(__file__).with_name("faint.js").read_text(encoding="utf-8")
"""Texts that are hard to read: their contrast is below 4.5 to 1."""

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def brightness(page: Page) -> float:
    """Of the paper, from 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).slice(0, 3).map(Number)")
    return float(sum(colour)) / 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_follow_the_colour_scheme_of_the_system(site: Site, scheme: str) -> None:
    page = site.visitor("read", color_scheme=scheme)
    assert (brightness(page) > 128) is (scheme == "light")


def test_a_chosen_colour_scheme_is_kept_on_every_page(site: Site) -> None:
    page = site.visitor("read", color_scheme="light")
    page.get_by_role("button", name="Switch between light and dark").click()
    assert brightness(page) < 128
    page.goto("/tasks")
    assert brightness(page) < 128
    page.get_by_role("button", name="Switch between light and dark").click()
    page.reload()
    assert brightness(page) > 128


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_on_every_page(site: Site, scheme: str) -> None:
    sample = fill(site.app)
    page = site.visitor(color_scheme=scheme)
    faint = {}
    for path in sample.pages:
        page.goto(path)
        expect(page.get_by_role("main")).to_be_visible()
        faint[path] = page.evaluate(FAINT)
    assert {path: found for path, found in faint.items() if found} == {}
