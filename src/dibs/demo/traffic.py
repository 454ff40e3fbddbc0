"""The simulated users of the demo: a thread that enqueues tasks at a rate that rises and falls."""

from __future__ import annotations

import itertools
import logging
import math
import random
import threading
import time
from collections.abc import Callable

from dibs.demo.tasks import app, count_views, import_feed, render, resize, send_mail
from dibs.demo.workflows import start_album, start_film, start_order
from dibs.errors import DibsError
from dibs.model.retention import Records
from dibs.model.task import Task

HOUR = 3600.0
KEPT = HOUR
"""Seconds that the demo keeps finished records, so that its file stays small."""

RUSH_INTERVAL = 120.0
"""Seconds from one peak of the traffic to the next."""

FILMS = ("The Lease", "Two Workers", "A Token of Trust", "Dead Letter Office", "Once Only")
FEEDS = ("news", "news", "sports", "weather", "weather", "gossip")

logger = logging.getLogger("dibs.demo")


class Traffic(threading.Thread):
    """Enqueues tasks until it is stopped. A request that the store refuses is dropped."""

    def __init__(self, *, tidy: bool) -> None:
        """`tidy`: keep finished records for an hour only. Use this for a store that only the demo uses."""
        super().__init__(name="dibs-demo-traffic", daemon=True)
        self._tidy = tidy
        self._stopping = threading.Event()
        self._orders = itertools.count(int(time.time()))
        self._reminders: list[Task] = []

    def run(self) -> None:
        """Start one of each workflow and task, then send requests at random intervals."""
        if self._tidy:
            self._try(_keep_for_an_hour)
        self._try(self._start_one_of_each)
        started = time.monotonic()
        while not self._stopping.wait(random.expovariate(requests_per_second(time.monotonic() - started))):
            self._try(self._send_request)

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stopping.set()
        self.join()

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except DibsError as error:
            logger.debug("the demo dropped a request: %s", error)

    def _start_one_of_each(self) -> None:
        start_film(FILMS[0])
        start_album("ada@example.com")
        start_order(next(self._orders))
        for feed in ("news", "gossip"):
            import_feed.enqueue(feed)
        send_mail.enqueue("nobody@example.com")
        for _ in range(12):
            upload_picture()

    def _send_request(self) -> None:
        requests: dict[Callable[[], object], int] = {
            upload_picture: 40,
            view_page: 6,
            read_feed: 10,
            request_album: 5,
            request_film: 3,
            self._buy: 7,
            self._remind: 8,
            self._cancel_reminder: 3,
        }
        random.choices(list(requests), list(requests.values()))[0]()

    def _buy(self) -> None:
        start_order(next(self._orders))

    def _remind(self) -> None:
        """Enqueue a mail for later; some mailboxes do not exist."""
        to = f"visitor-{random.randint(1, 999)}@example.com" if random.random() < 0.85 else "nobody@example.com"
        later = send_mail.options(delay=random.uniform(5, 90), priority=0)
        self._reminders = [*self._reminders[-20:], later.enqueue(to, about="We miss you")]

    def _cancel_reminder(self) -> None:
        """Cancel the newest reminder."""
        if self._reminders:
            app.cancel(self._reminders.pop().id)


def _keep_for_an_hour() -> None:
    for records in Records:
        app.set_retention(records, KEPT)


def requests_per_second(passed: float) -> float:
    """Return the rate of requests after `passed` seconds: a sine wave."""
    return 0.9 + 0.7 * math.sin(2 * math.pi * passed / RUSH_INTERVAL)


def upload_picture() -> None:
    """Enqueue two sizes of a picture with different priorities, and a mail."""
    picture = random.randint(1, 99_999)
    tags = [f"album-{picture % 20}", random.choice(["web", "phone"])]
    resize.options(tags=tags).enqueue(picture, width=random.choice([320, 800, 1600]))
    resize.options(priority=0, tags=[*tags, "thumbnail"]).enqueue(picture, width=64)
    send_mail.options(key=f"thanks-{picture}", tags=tags).enqueue(f"visitor-{picture}@example.com", about="Thank you")


def view_page() -> None:
    """Enqueue many views of the same page."""
    page = f"/picture/{random.randint(1, 999)}"
    app.enqueue_many([count_views.new(page) for _ in range(random.randint(5, 40))])


def read_feed() -> None:
    """Enqueue the import of a feed, and a CPU-bound task."""
    import_feed.enqueue(random.choice(FEEDS))
    render.enqueue(random.randint(1, 20))


def request_album() -> None:
    """Start an album workflow."""
    start_album(f"visitor-{random.randint(1, 999)}@example.com")


def request_film() -> None:
    """Start a film workflow."""
    start_film(random.choice(FILMS))
