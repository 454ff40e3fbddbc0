"""The dashboard in a real Chromium, before a real server in a separate process.

A test fails if its page logs a problem in the console: an error, a script that failed, a request that failed, a
violation of the content security policy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

import dibs
from tests.browser.site import Site, Windows
from tests.helpers.servers import server_process

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 15_000
"""Milliseconds for which a page may take to show something: much more than it needs, on a busy machine."""


def chromium() -> str | None:
    """Where the browser is."""
    return os.environ.get("DIBS_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One for all tests here. It is gone before other tests run: its driver leaves an event loop in this thread."""
    place = chromium()
    if place is None:
        why = f"There is no browser: install one of {', '.join(NAMES)}, or name one with DIBS_TEST_CHROMIUM."
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def windows(browser: Browser) -> Iterator[Windows]:
    """Opens windows with nothing remembered."""
    windows = Windows(browser, PATIENCE)
    yield windows
    windows.close()
    assert windows.complaints == []


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """A client of the database, beside the server."""
    with dibs.Dibs(url) as app:
        app.migrate()
        yield app


@pytest.fixture
def site(url: str, app: dibs.Dibs, tmp_path: Path, windows: Windows) -> Iterator[Site]:
    """A server, and visitors; they leave before it does."""
    with server_process(url, tmp_path) as server:
        yield Site(server.url, app, windows)
        windows.close()
