"""Takes the screenshots of the README, or of all pages, from a demo that has run for a while.

python -m tools.screenshots                   the two of the README, into docs/images
python -m tools.screenshots --all FOLDER      every page, light and dark, on a desk and on a phone
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DESK = {"viewport": {"width": 1440, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
MENU = ("/", "/tasks", "/queues", "/limits", "/workers", "/workflows", "/schedules", "/dead", "/keys")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="every page, into this folder")
    parser.add_argument("--after", metavar="SECONDS", type=float, default=840, help="how old the demo has to be")
    options = parser.parse_args()
    with demo() as site, sync_playwright() as playwright:
        place = os.environ.get("DIBS_TEST_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)))
        browser = playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
        page = sign_in(browser, site, color_scheme="light", **DESK)
        page.wait_for_timeout(options.after * 1000)  # while a page is open, the charts have a finer resolution
        if options.all is None:
            take_both(page, site)
        else:
            take_all(browser, site, options.all)
        browser.close()


class Site:
    """A running demo."""

    def __init__(self, started: dict[str, str]) -> None:
        self.url, self.link, self._key = started["url"], started["signin_url"], started["key"]

    def ask(self, path: str) -> Any:
        """An answer of the API."""
        request = urllib.request.Request(f"{self.url}/api/{path}", headers={"X-API-Key": self._key})  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    def film(self) -> int | None:
        """A film whose scenes are being encoded, some of them done: the best moment to look at it."""
        for workflow in self.ask("workflows?name=film&status=running&limit=10")["workflows"]:
            if 3 <= workflow["ended"] <= 5:
                return int(workflow["id"])
        return None


@contextmanager
def demo() -> Iterator[Site]:
    """Start a separate demo, on any free port."""
    command = [sys.executable, "-m", "dibs", "demo", "--json", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        try:
            yield Site(json.loads(process.stdout.readline()))
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


def take_both(page: Page, site: Site) -> None:
    page.wait_for_function("Number(document.getElementById('figure-pending').textContent) >= 5")  # a rush
    shoot(page, IMAGES / "overview.png")
    film = wait_for(site.film)
    page.goto(f"{site.url}/workflows/{film}")
    shoot(page, IMAGES / "workflow.png")


def take_all(browser: Browser, site: Site, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    failed = site.ask("tasks?status=failed&limit=1")["tasks"][0]["id"]
    claimed = site.ask("tasks?status=claimed&limit=1")["tasks"][0]["id"]
    paths = [*MENU, "/tasks?state=failed", f"/tasks/{failed}", f"/tasks/{claimed}", f"/workflows/{wait_for(site.film)}"]
    for kind, shape in {"desk": DESK, "phone": PHONE}.items():
        for scheme in ("light", "dark"):
            page = sign_in(browser, site, color_scheme=scheme, **shape)
            for path in paths:
                page.goto(f"{site.url}{path}")
                name = path.strip("/").replace("/", "-").replace("?", "-").replace("=", "-") or "overview"
                shoot(page, folder / f"{name}-{kind}-{scheme}.png", whole=True)


def sign_in(browser: Browser, site: Site, **options: Any) -> Page:
    page = browser.new_context(reduced_motion="reduce", **options).new_page()
    page.goto(site.link)
    page.wait_for_url(f"{site.url}/")
    return page


def shoot(page: Page, path: Path, *, whole: bool = False) -> None:
    """When the page is live, and has heard of something."""
    page.wait_for_selector("#live-status.on")
    page.wait_for_timeout(1500)
    page.screenshot(path=path, full_page=whole)
    print(f"{path}: {path.stat().st_size / 1024:.0f} kB")


def wait_for(look: Callable[[], int | None]) -> int:
    while (found := look()) is None:
        time.sleep(0.5)
    return found


if __name__ == "__main__":
    main()
