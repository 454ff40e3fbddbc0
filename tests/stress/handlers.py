"""The handlers of real workers in a stress run. Each records its token before it does anything else."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dibs
from dibs import Event
from tests.stress.reply_log import reply_log_of

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url


@app.task(max_attempts=1000)
def nap(ctx: dibs.Context, folder: str, seconds: float = 0) -> dict[str, Any]:
    begin(ctx, folder)
    if seconds:
        time.sleep(seconds)
    return {"token": ctx.token}


@app.task(max_attempts=1000)
async def doze(ctx: dibs.Context, folder: str, seconds: float = 0) -> dict[str, Any]:
    begin(ctx, folder)
    if seconds:
        await asyncio.sleep(seconds)
    return {"token": ctx.token}


@app.task(max_attempts=1000)
def hog(ctx: dibs.Context, folder: str, letters: int, seconds: float = 0) -> dict[str, Any]:
    """Hold the interpreter's lock in C code repeatedly, for this number of seconds in all."""
    begin(ctx, folder)
    end = time.monotonic() + seconds
    backtrack(letters)
    while time.monotonic() < end:
        backtrack(letters)
    return {"token": ctx.token}


def backtrack(letters: int) -> None:
    re.match(r"(a+)+$", "a" * letters + "b")


@app.task(lane="process", max_attempts=1000)
def hog_apart(ctx: dibs.Context, folder: str, letters: int, seconds: float = 0) -> dict[str, Any]:
    return hog.function(ctx, folder, letters, seconds)


@dataclass
class Nap:
    """`seconds`: how long the first attempt takes."""

    folder: str
    seconds: float = 0


Naps = Sequence[dibs.BatchItem[Nap]]


@app.batch_task(size=20, wait=0.05, max_attempts=1000)
def nap_together(items: Naps) -> list[dict[str, Any]]:
    begin_together(items)
    time.sleep(longest(items))
    return [{"token": item.ctx.token} for item in items]


@app.batch_task(size=20, wait=0.05, max_attempts=1000)
async def doze_together(items: Naps) -> list[dict[str, Any]]:
    begin_together(items)
    await asyncio.sleep(longest(items))
    return [{"token": item.ctx.token} for item in items]


@app.batch_task(size=20, wait=0.05, lane="process", max_attempts=1000, timeout=0.2, backoff=[0.01])
def nap_together_apart(items: Naps) -> list[dict[str, Any]]:
    """Killed at its timeout, if the nap is longer."""
    return nap_together.function(items)


def longest(items: Naps) -> float:
    return max(item.value.seconds if item.ctx.attempt == 1 else 0 for item in items)


@app.task(max_attempts=3)
def poison(ctx: dibs.Context, folder: str) -> None:
    """Takes its whole worker along."""
    begin(ctx, folder)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(lane="process", max_attempts=3, backoff=dibs.Backoff(0.01, 0.01))
def poison_apart(ctx: dibs.Context, folder: str) -> None:
    """Takes only its child process along."""
    poison.function(ctx, folder)


def begin_together(items: Naps) -> None:
    """`begin` for all items of a call, in one line of the log."""
    log = reply_log_of(items[0].value.folder, items[0].ctx.claim.worker_id)
    log.write(Event.CLAIMED, [(item.ctx.task.id, item.ctx.token) for item in items])


def begin(ctx: dibs.Context, folder: str) -> None:
    """Record the claim: a handler that runs proves that its claim was acknowledged."""
    reply_log_of(folder, ctx.claim.worker_id).write(Event.CLAIMED, [(ctx.task.id, ctx.token)])
