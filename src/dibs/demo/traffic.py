"""Who uses the site of the demo: many in a rush, few in between, and an operator who closes a queue now and then."""

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
"""Seconds that the demo keeps finished records: however long it runs, its file stays small."""

TIDE = 120.0
"""Seconds from one rush to the next."""

FILMS = ("The Lease", "Two Workers", "A Token of Trust", "Dead Letter Office", "Once Only")
FEEDS = ("news", "news", "sports", "weather", "weather", "gossip")

logger = logging.getLogger("dibs.demo")


class Visitors(threading.Thread):
    """People, until they are sent away. What one of them cannot do because the store is busy is left to the next."""

    def __init__(self, *, tidy: bool) -> None:
        """`tidy`: keep finished records for an hour only, which is for a store that only the demo uses."""
        super().__init__(name="dibs-visitors", daemon=True)
        self._tidy = tidy
        self._leave = threading.Event()
        self._orders = itertools.count(int(time.time()))
        self._reminders: list[Task] = []

    def run(self) -> None:
        """Begin with something of everything; then go on by chance."""
        if self._tidy:
            self._do(_keep_for_an_hour)
        self._do(self._open_the_doors)
        begun = time.monotonic()
        while not self._leave.wait(random.expovariate(visits_per_second(time.monotonic() - begun))):
            self._do(self._visit)

    def send_away(self) -> None:
        """No more requests."""
        self._leave.set()
        self.join()

    def _do(self, something: Callable[[], object]) -> None:
        try:
            something()
        except DibsError as error:
            logger.debug("a visitor gave up: %s", error)

    def _open_the_doors(self) -> None:
        start_film(FILMS[0])
        start_album("ada@example.com")
        start_order(next(self._orders))
        for feed in ("news", "gossip"):
            import_feed.enqueue(feed)
        send_mail.enqueue("nobody@example.com")
        for _ in range(12):
            upload_picture()

    def _visit(self) -> None:
        wishes: dict[Callable[[], object], int] = {
            upload_picture: 40,
            watch: 6,
            read_feed: 10,
            ask_for_album: 5,
            ask_for_film: 3,
            self._buy: 7,
            self._remind: 8,
            self._change_mind: 3,
        }
        random.choices(list(wishes), list(wishes.values()))[0]()

    def _buy(self) -> None:
        start_order(next(self._orders))

    def _remind(self) -> None:
        """A mail for later; some mailboxes do not exist."""
        to = f"visitor-{random.randint(1, 999)}@example.com" if random.random() < 0.85 else "nobody@example.com"
        later = send_mail.options(delay=random.uniform(5, 90), priority=0)
        self._reminders = [*self._reminders[-20:], later.enqueue(to, about="We miss you")]

    def _change_mind(self) -> None:
        """Cancel the last of them."""
        if self._reminders:
            app.cancel(self._reminders.pop().id)


def _keep_for_an_hour() -> None:
    for records in Records:
        app.set_retention(records, KEPT)


def visits_per_second(passed: float) -> float:
    """More in a rush, fewer in between."""
    return 0.9 + 0.7 * math.sin(2 * math.pi * passed / TIDE)


def upload_picture() -> None:
    """Three sizes, one after the other in importance, and a mail."""
    picture = random.randint(1, 99_999)
    resize.enqueue(picture, width=random.choice([320, 800, 1600]))
    resize.options(priority=0).enqueue(picture, width=64)
    send_mail.options(key=f"thanks-{picture}").enqueue(f"visitor-{picture}@example.com", about="Thank you")


def watch() -> None:
    """Everybody looks at the same thing."""
    page = f"/picture/{random.randint(1, 999)}"
    app.enqueue_many([count_views.new(page) for _ in range(random.randint(5, 40))])


def read_feed() -> None:
    """News from elsewhere, and work for the processor."""
    import_feed.enqueue(random.choice(FEEDS))
    render.enqueue(random.randint(1, 20))


def ask_for_album() -> None:
    """See workflows."""
    start_album(f"visitor-{random.randint(1, 999)}@example.com")


def ask_for_film() -> None:
    """See workflows."""
    start_film(random.choice(FILMS))
