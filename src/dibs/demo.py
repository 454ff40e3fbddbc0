"""The demo: the background work of a small picture site, lively enough to watch.

`dibs demo` runs it; `dibs worker dibs.demo:app` works for it.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time

from dibs.client import Dibs
from dibs.context import Context
from dibs.endings import Permanent, Snooze
from dibs.retry import Backoff

app = Dibs()

PATIENTLY = Backoff(base=0.5, cap=4)


@app.task(priority=5)
def resize(ctx: Context, picture: int, width: int = 800) -> dict[str, int]:
    """A plain function, in a thread; it tells how far it is."""
    steps = random.randint(2, 8)
    for step in range(steps):
        ctx.raise_if_cancelled()
        ctx.progress(100 * step // steps, f"scaling to {width} px")
        time.sleep(random.uniform(0.1, 0.5))
    return {"picture": picture, "width": width}


@app.task(backoff=PATIENTLY, max_attempts=4)
async def send_mail(to: str) -> str:
    """A coroutine; the mail server is moody, so it is tried again."""
    await asyncio.sleep(random.uniform(0.05, 0.6))
    if random.random() < 0.25:
        raise ConnectionError("421 the mail server is busy, try again later")
    return f"sent to {to}"


@app.task(lane="process", timeout=20, queue="heavy")
def render(frames: int) -> int:
    """Work for the processor, in a process of its own."""
    total = 0
    for frame in range(frames * 40_000):
        total = (total * 31 + frame) % 1_000_003
    return total


@app.task(queue="imports", backoff=PATIENTLY)
def import_feed(feed: str) -> int:
    """Some feeds are broken for good, some are asked too early."""
    time.sleep(random.uniform(0.1, 0.4))
    if feed == "broken":
        raise Permanent("the feed is not XML")
    if random.random() < 0.2:
        raise Snooze(2)
    return random.randint(1, 50)


@app.task
def count_views(page: str) -> None:
    """Very short, and very many: a worker claims these ahead."""


@app.task(schedule="* * * * *")
def clean_up() -> str:
    """Enqueued by the workers themselves, once a minute, however many they are."""
    return "cleaned"


class Visitors(threading.Thread):
    """People who use the site, until they are sent away."""

    def __init__(self) -> None:
        super().__init__(name="dibs-visitors", daemon=True)
        self._leave = threading.Event()

    def run(self) -> None:
        """Ask for something every now and then, and for many things in a rush."""
        while not self._leave.wait(random.uniform(0.1, 0.5)):
            ask()
            if random.random() < 0.1:
                app.enqueue_many([count_views.new(f"/picture/{number}") for number in range(500)])

    def send_away(self) -> None:
        """No more requests."""
        self._leave.set()
        self.join()


def ask() -> None:
    """What one visitor causes."""
    picture = random.randint(1, 999)
    resize.enqueue(picture, width=random.choice([320, 800, 1600]))
    send_mail.options(key=f"welcome-{picture}").enqueue(f"visitor-{picture}@example.com")
    if random.random() < 0.4:
        render.enqueue(random.randint(1, 40))
    if random.random() < 0.4:
        import_feed.enqueue(random.choice(["news", "weather", "broken"]))
    if random.random() < 0.2:
        resize.options(delay=random.uniform(1, 10), priority=0).enqueue(picture, width=64)
