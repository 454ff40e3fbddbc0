"""The handlers of the demo: one example for each outcome of an attempt."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from dibs.client import Dibs
from dibs.handlers.context import Context
from dibs.handlers.endings import Permanent, Snooze
from dibs.model.retry import Backoff

logger = logging.getLogger(__name__)

app = Dibs()

SLOW_BACKOFF = Backoff(base=2, cap=20)


@app.task(queue="pictures", priority=5, capture_logs=True)
def resize(ctx: Context, picture: int, width: int = 800) -> dict[str, int]:
    """Runs in a thread, reports its progress, and logs what it does."""
    work_for(ctx, random.uniform(0.3, 3), f"scaling to {width} px")
    return {"picture": picture, "width": width}


@app.task(queue="mail", priority=8, backoff=SLOW_BACKOFF, max_attempts=4)
async def send_mail(to: str, about: str = "Welcome") -> str:
    """A coroutine. The mail server is often busy, so attempts are retried."""
    await asyncio.sleep(random.uniform(0.1, 0.8))
    if to.startswith("nobody@"):
        raise Permanent from LookupError(f"550 no such mailbox: {to}")
    if random.random() < 0.2:
        raise ConnectionError("421 the mail server is busy, try again later")
    return f"“{about}” sent to {to}"


@app.task(queue="imports", backoff=SLOW_BACKOFF, capture_logs=True)
def import_feed(ctx: Context, feed: str) -> int:
    """Fails permanently, snoozes or fails temporarily, depending on the feed."""
    work_for(ctx, random.uniform(0.5, 2), f"reading {feed}")
    if feed == "gossip":
        logger.warning("the answer begins with <!doctype html>")
        raise Permanent from ValueError("the feed is not XML: it begins with <!doctype html>")
    if feed == "weather" and random.random() < 0.5:
        raise Snooze(random.uniform(5, 15))
    if random.random() < 0.15:
        raise TimeoutError(f"{feed} did not answer within 10 s")
    return random.randint(1, 50)


@app.task(lane="process", timeout=20, queue="video")
def render(frames: int) -> int:
    """CPU-bound work, in a process of its own."""
    total = 0
    for frame in range(frames * 10_000):
        total = (total * 31 + frame) % 1_000_003
    return total


@app.task
def count_views(page: str) -> None:
    """Very short and frequent: a worker claims several of these tasks ahead."""


@app.task(schedule="* * * * *")
def clean_up() -> str:
    """Enqueued once a minute by its schedule, however many workers there are."""
    return "nothing to clean"


@app.task(schedule="*/15 8-18 * * *", queue="imports")
def check_links() -> str:
    """Enqueued every 15 minutes during the day."""
    return "no broken links"


@app.task(schedule="0 7 * * 1", queue="mail")
async def send_digest() -> str:
    """Enqueued every Monday morning."""
    return "sent to all"


def work_for(ctx: Context, seconds: float, doing: str) -> None:
    """Sleep for the given time, report progress, and stop when cancellation is requested."""
    logger.info("%s", doing)
    started = time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        ctx.raise_if_cancelled()
        ctx.progress(int(100 * passed / seconds), doing)
        time.sleep(min(0.5, seconds - passed))
    logger.info("%s took %.1f s", doing, seconds)
