"""The handlers of the demo: one for each way in which an attempt can go."""

from __future__ import annotations

import asyncio
import random
import time

from dibs.client import Dibs
from dibs.handlers.context import Context
from dibs.handlers.endings import Permanent, Snooze
from dibs.model.retry import Backoff

app = Dibs()

PATIENTLY = Backoff(base=2, cap=20)


@app.task(queue="pictures", priority=5)
def resize(ctx: Context, picture: int, width: int = 800) -> dict[str, int]:
    """A plain function, in a thread; it tells how far it is."""
    take(ctx, random.uniform(0.3, 3), f"scaling to {width} px")
    return {"picture": picture, "width": width}


@app.task(queue="mail", priority=8, backoff=PATIENTLY, max_attempts=4)
async def send_mail(to: str, about: str = "Welcome") -> str:
    """A coroutine; the mail server is moody, so it is tried again."""
    await asyncio.sleep(random.uniform(0.1, 0.8))
    if to.startswith("nobody@"):
        raise Permanent from LookupError(f"550 no such mailbox: {to}")
    if random.random() < 0.2:
        raise ConnectionError("421 the mail server is busy, try again later")
    return f"“{about}” sent to {to}"


@app.task(queue="imports", backoff=PATIENTLY)
def import_feed(ctx: Context, feed: str) -> int:
    """Some feeds are broken for good, some are asked too early, some have bad days."""
    take(ctx, random.uniform(0.5, 2), f"reading {feed}")
    if feed == "gossip":
        raise Permanent from ValueError("the feed is not XML: it begins with <!doctype html>")
    if feed == "weather" and random.random() < 0.5:
        raise Snooze(random.uniform(5, 15))
    if random.random() < 0.15:
        raise TimeoutError(f"{feed} did not answer within 10 s")
    return random.randint(1, 50)


@app.task(lane="process", timeout=20, queue="video")
def render(frames: int) -> int:
    """Work for the processor, in a process of its own."""
    total = 0
    for frame in range(frames * 10_000):
        total = (total * 31 + frame) % 1_000_003
    return total


@app.task
def count_views(page: str) -> None:
    """Very short, and often many: a worker claims these ahead."""


@app.task(schedule="* * * * *")
def clean_up() -> str:
    """Enqueued by the workers themselves, once a minute, however many they are."""
    return "nothing to clean"


@app.task(schedule="*/15 8-18 * * *", queue="imports")
def check_links() -> str:
    """While people are awake."""
    return "no broken links"


@app.task(schedule="0 7 * * 1", queue="mail")
async def send_digest() -> str:
    """What happened on the site, every Monday morning."""
    return "sent to all"


def take(ctx: Context, seconds: float, doing: str) -> None:
    """Be busy for so long, say how far it is, and stop when asked to."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        ctx.raise_if_cancelled()
        ctx.progress(int(100 * passed / seconds), doing)
        time.sleep(min(0.5, seconds - passed))
