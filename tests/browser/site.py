"""A served dashboard, its visitors, and the errors in their browsers."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, expect

import dibs

REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`content security policy: ${event.violatedDirective} forbids ${event.blockedURI || "inline"}`));
"""

USUAL: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}

TOO_WIDE = """() => {
  const root = document.documentElement;
  if (root.scrollWidth <= root.clientWidth) return [];
  const sticksOut = (each) => each.getBoundingClientRect().right > root.clientWidth + 1;
  return [root.scrollWidth, ...[...document.querySelectorAll("body *")].filter(sticksOut)
    .slice(0, 5).map((each) => each.outerHTML.slice(0, 160))];
}"""
"""What sticks out of the window; nothing if it need not be scrolled sideways."""

GONE = "net::ERR_ABORTED"
"""What becomes of a request when its page is left: nothing is wrong with that."""

MOST = "Failed to load resource"
"""The console message of Chromium for every status from 400 on. Tests check the status itself instead."""


class Windows:
    """The windows of one test, and what was wrong in any of them."""

    def __init__(self, browser: Browser, patience: float) -> None:
        self._browser, self._patience = browser, patience
        self._open: list[BrowserContext] = []
        self.complaints: list[str] = []
        self.forgiven: set[int] = set()

    def open(self, **options: Any) -> Page:
        """A new one that remembers nothing; options are those of a context of Playwright."""
        context = self._browser.new_context(**{**USUAL, **options})
        self._open.append(context)
        context.set_default_timeout(self._patience)
        context.add_init_script(REPORT_VIOLATIONS)
        context.on("console", self._hear)
        context.on("weberror", lambda error: self.complaints.append(f"script: {error.error}"))
        context.on("requestfailed", self._failed)
        context.on("response", self._answered)
        return context.new_page()

    def close(self) -> None:
        """All of them."""
        while self._open:
            self._open.pop().close()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(MOST):
            self.complaints.append(f"console: {message.text}")

    def _failed(self, request: Request) -> None:
        if request.failure != GONE:
            self.complaints.append(f"{request.method} {request.url}: {request.failure}")

    def _answered(self, response: Response) -> None:
        """A refused page is shown as such; a part of a page must be there."""
        page = response.request.is_navigation_request()
        if response.status >= (500 if page else 400) and response.status not in self.forgiven:
            self.complaints.append(f"{response.request.method} {response.url}: {response.status}")


class Site:
    """One server."""

    def __init__(self, url: str, app: dibs.Dibs, windows: Windows) -> None:
        self.url = url
        self.app = app
        self.windows = windows

    def key(self, *scopes: str, **options: Any) -> str:
        """The text of a new key."""
        return self.app.create_key("visitor", list(scopes or ("admin",)), rate_limit="none", **options).key

    def stranger(self, path: str = "/", **options: Any) -> Page:
        """A visitor without a session."""
        page = self.windows.open(base_url=self.url, **options)
        page.goto(path)
        return page

    def stranger_may_enter(self, key: str) -> bool:
        """True if the sign-in page accepts this key."""
        page = self.stranger("/signin")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert").or_(page.get_by_role("navigation", name="Main"))).to_be_visible()
        entered = page.get_by_role("alert").count() == 0
        page.close()  # its stream would be refused when the key is revoked
        return entered

    def visitor(self, *scopes: str, at: str = "/", queues: list[str] | None = None, **options: Any) -> Page:
        """A visitor with a session, signed in with a new key of these scopes (admin)."""
        page = self.windows.open(base_url=self.url, **options)
        page.goto(f"/signin?next={quote(at, safe='')}#key={self.key(*scopes, queues=queues)}")
        page.wait_for_url(f"{self.url}{at}")
        return page


def live(page: Page) -> None:
    """Wait until the page hears of changes, and mark it: what it shows from now on came without a reload."""
    expect(page.locator("#live-status")).to_have_class(re.compile(r"\bon\b"))
    page.evaluate("window.stillTheSame = true")


def expect_no_reload(page: Page) -> None:
    """It is still the page that was marked."""
    assert page.evaluate("window.stillTheSame === true")


def expect_no_sideways(page: Page) -> None:
    """Nothing is wider than the window: no page has to be scrolled sideways."""
    wide = page.evaluate(TOO_WIDE)
    assert wide == [], f"{page.url} is too wide: {wide}"
