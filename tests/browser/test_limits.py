"""A key with only the read scope sees no actions, and text of a task is only text."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.sample import fill
from tests.browser.site import Site, expect_no_sideways

HOSTILE = {
    "markup": "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>{{ 7 * 7 }}</textarea></title>",
    "attribute": "\"' onmouseover=window.hacked=1 x=\"'><svg onload=window.hacked=1> javascript:window.hacked=1",
    "control": "bell \x07 esc \x1b[31m red \x9b return \r\n tab \t \u202e backwards \u2066 \ufeff zero\u200bwidth 😀",
    "combining": "Z" + "\u0351\u0321" * 60 + " 𓀀" * 40 + "\u00ad" * 50,
    "huge": "long " + "x" * (1_048_576 - 100),
}


def test_a_key_with_only_the_read_scope_sees_no_action_button(site: Site) -> None:
    sample = fill(site.app)
    page = site.visitor("read")
    for path in sample.pages:
        if path == "/keys":
            continue
        page.goto(path)
        expect(page.get_by_role("main")).to_be_visible()
        assert page.locator("main form[method=post] button").count() == 0, path
    expect(page.get_by_role("link", name="Keys")).to_have_count(0)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_limited_key_sees_nothing_of_other_queues(site: Site) -> None:
    site.app.enqueue("resize", {"text": "mine"}, queue="mine")
    fill(site.app, text="secret", queue="theirs")
    page = site.visitor("read", queues=["mine"], at="/tasks")
    expect(page.get_by_role("main")).to_contain_text("mine")
    for path in ("/", "/tasks", "/queues", "/workers", "/dead"):
        page.goto(path)
        expect(page.get_by_role("main")).not_to_contain_text("secret")
        expect(page.get_by_role("main")).not_to_contain_text("theirs")


@pytest.mark.parametrize("kind", sorted(HOSTILE))
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_hostile_text_of_a_task_is_shown_as_text(site: Site, kind: str) -> None:
    sample = fill(site.app, text=HOSTILE[kind])
    page = site.visitor()
    for path in sample.pages:
        page.goto(path)
        expect(page.get_by_role("main")).to_be_visible()
        assert is_unharmed(page), path
        expect_no_sideways(page)


def is_unharmed(page: Page) -> bool:
    """No script ran, nothing was added that is not ours, and the frame of the page is whole."""
    return bool(
        page.evaluate(
            """() => window.hacked === undefined
                 && !document.querySelector("main img, main script, [onerror], [onload], [onmouseover]")
                 && document.querySelector("footer.bottom") !== null && document.title.endsWith("· dibs")"""
        )
    )
