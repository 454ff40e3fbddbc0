"""Signing in with a browser: a key is needed, and is enough."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.site import Site


def test_the_sign_in_form_leads_to_the_requested_page(site: Site) -> None:
    page = site.stranger("/tasks?state=failed")
    page.get_by_label("API key").fill(site.key("read"))
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{site.url}/tasks?state=failed")
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()


def test_a_link_with_a_key_signs_in_and_leaves_no_key_in_the_url(site: Site) -> None:
    page = site.visitor("read")
    expect(page).to_have_url(f"{site.url}/")
    page.go_back()
    assert "dibs_" not in page.url


def test_a_link_with_a_key_signs_in_also_in_a_tab_that_shows_the_sign_in_page(site: Site) -> None:
    page = site.stranger("/signin")
    expect(page.get_by_label("API key")).to_be_visible()
    page.goto(f"/signin#key={site.key('read')}")  # the same page: the browser does not load it again
    expect(page).to_have_url(f"{site.url}/")
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()


def test_a_wrong_key_is_refused_with_a_message(site: Site) -> None:
    page = site.stranger()
    expect(page).to_have_url(f"{site.url}/signin")
    page.get_by_label("API key").fill("dibs_aaaaaaaaaaaa_" + "b" * 44)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not a valid API key")
    expect(page.get_by_role("navigation", name="Main")).to_have_count(0)


def test_signing_out_ends_the_session_in_every_window(site: Site) -> None:
    page = site.visitor("read")
    other = page.context.new_page()
    other.goto("/tasks")
    page.locator("details.account summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{site.url}/signin")
    other.reload()
    expect(other).to_have_url(re.compile(r"/signin\?next=%2Ftasks$"))


def test_a_revoked_key_ends_its_sessions(site: Site) -> None:
    page = site.visitor("read", at="/tasks")
    site.windows.forgiven.add(401)  # an open page asks before it knows
    for key in site.app.keys():  # noqa: SIM118
        site.app.revoke_key(key.id)
    page.reload()
    expect(page).to_have_url(re.compile("/signin"))
