"""Handlers in all lanes inside of middleware, plain and async, that fails as the params of its task demand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dibs
from dibs import State
from tests.stress.handlers import begin
from tests.stress.reply_log import reply_log_of

OVERRUN = 0.2
"""Seconds for which a middleware that hangs goes on after the timeout of its task, if it can."""

PLACES = ("outer before", "outer after", "inner before", "inner after")
"""Where a middleware fails: in that of the app or in that of the handler, before or after `call_next`."""

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url


@dataclass(frozen=True)
class Fault:
    """A fault of a middleware, and how a task with it has to end: in this state, after so many attempts."""

    state: State
    least: int = 1
    most: int = 1000
    timeout: float | None = None

    @property
    def only_first(self) -> bool:
        """True if only the first attempt has the fault."""
        return self.state is State.COMPLETED


FAULTS = {
    "none": Fault(State.COMPLETED),
    "raises": Fault(State.COMPLETED, least=2),
    "raises Retry": Fault(State.COMPLETED, least=2),
    "hangs": Fault(State.COMPLETED, least=2, timeout=0.3),
    "always raises": Fault(State.FAILED, least=3, most=3),
    "always hangs": Fault(State.FAILED, least=2, most=2, timeout=0.3),
    "raises Permanent": Fault(State.FAILED),
    "is cancelled": Fault(State.CANCELLED, least=0),  # 0: released by a worker that stops, and then cancelled
}

CANCELLED = "is cancelled"
"""It waits until it is."""


class MiddlewareBroken(Exception):
    """What a middleware raises."""


@app.middleware
async def outer(ctx: dibs.Context, call_next: Any) -> Any:
    begin(ctx, ctx.task.params["folder"])
    return await around_async(ctx, call_next, "outer")


async def inner_async(ctx: dibs.Context, call_next: Any) -> Any:
    return await around_async(ctx, call_next, "inner")


async def around_async(ctx: dibs.Context, call_next: Any, layer: str) -> Any:
    for seconds in fault(ctx, f"{layer} before"):
        await asyncio.sleep(seconds)
    result = await call_next()
    for seconds in fault(ctx, f"{layer} after"):
        await asyncio.sleep(seconds)
    return result


def inner(ctx: dibs.Context, call_next: Any) -> Any:
    for seconds in fault(ctx, "inner before"):
        time.sleep(seconds)
    result = call_next()
    for seconds in fault(ctx, "inner after"):
        time.sleep(seconds)
    return result


def fault(ctx: dibs.Context, place: str) -> Iterator[float]:
    """The fault of the task, if it has one in this place: raises, or yields how long to sleep. A middleware that hangs
    does so until the timeout, however late a busy machine notices it."""
    params = ctx.task.params
    name = params["fault"]
    if name == "none" or params["place"] != place or (FAULTS[name].only_first and ctx.attempt > 1):
        return
    log = reply_log_of(params["folder"], ctx.claim.worker_id)
    log.write(name, [(ctx.task.id, ctx.token)])
    if name == "raises Retry":
        raise dibs.Retry(0)
    if name == "raises Permanent":
        raise dibs.Permanent(place)
    if "raises" in name:
        raise MiddlewareBroken(place)
    while not ctx.cancelled:  # in the loop lane the sleep is cancelled as well, and a child process is killed
        yield 0.02
    if name == CANCELLED:
        raise dibs.Cancel
    yield OVERRUN


@app.task(middleware=[inner], backoff=[0.01])
def surrounded(ctx: dibs.Context, folder: str, fault: str, place: str) -> dict[str, Any]:
    return {"token": ctx.token}


@app.task(middleware=[inner_async], backoff=[0.01])
async def surrounded_async(ctx: dibs.Context, folder: str, fault: str, place: str) -> dict[str, Any]:
    return {"token": ctx.token}


@app.task(lane="process", middleware=[inner], backoff=[0.01])
def surrounded_apart(ctx: dibs.Context, folder: str, fault: str, place: str) -> dict[str, Any]:
    return {"token": ctx.token}


@app.task(lane="process", middleware=[inner_async], backoff=[0.01])
async def surrounded_async_apart(ctx: dibs.Context, folder: str, fault: str, place: str) -> dict[str, Any]:
    return {"token": ctx.token}
