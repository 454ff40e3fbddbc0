"""The dashboard under a path of another application: its scripts use the path as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from starlette.applications import Starlette

import dibs
import dibs.asgi
from tests.browser.site import Windows, live
from tests.helpers.asgi_site import serving


@pytest.fixture
def mounted(url: str, windows: Windows) -> Iterator[str]:
    """The URL of a dashboard whose users sign in to the application around it."""
    client = dibs.AsyncDibs(url)
    web = Starlette(lifespan=dibs.asgi.lifespan(client))
    anna = dibs.asgi.SignedIn(["admin"], name="anna@shop.example")
    web.mount("/shop/queue", dibs.asgi.server(client, sign_in=lambda _: anna))
    with serving(web) as origin:
        yield f"{origin}/shop/queue"
        windows.close()


def test_updates_buttons_shortcuts_and_the_theme_work_under_a_path(
    mounted: str, app: dibs.Dibs, windows: Windows
) -> None:
    page = windows.open()
    page.goto(f"{mounted}/")
    live(page)
    task = app.enqueue("resize", {"n": 1})
    expect(page.locator("#figure-pending")).to_have_text("1")
    expect(page.locator("#chart-depth svg")).to_be_visible()
    page.keyboard.press("/")
    expect(page).to_have_url(f"{mounted}/tasks#search")
    page.locator("#theme").click()
    assert [each["path"] for each in page.context.cookies() if each["name"] == "dibs_theme"] == ["/shop/queue"]
    page.get_by_role("link", name=f"#{task.id}").click()
    expect(page).to_have_url(f"{mounted}/tasks/{task.id}")
    page.get_by_role("button", name="Cancel").first.click()
    page.locator("#confirm-yes:not(.settling)").click()
    expect(page.locator("#notice")).to_contain_text("ancel")
    assert app.history(task.id)[-1].by == "anna@shop.example/dashboard"
    page.get_by_text("anna@shop.example").first.click()
    expect(page.locator(".account .card")).to_contain_text("Signed in as anna@shop.example")
