"""Handlers for the tests of workflows: in every lane one that reads results, adds steps and stores checkpoints.

They communicate by files in a folder that the test names, like those of handlers.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dibs
from tests.helpers.handlers import GLANCE, begin, say

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url

SOON = dibs.Backoff(0.01, 0.01)


@app.task
def give(value: Any = None) -> Any:
    return value


@app.task(max_attempts=1)
def refuse() -> None:
    raise ValueError("as always")


# What came before


def _read(ctx: dibs.Context) -> dict[str, Any]:
    errors = {name: error.message for name, error in ctx.results.errors.items()}
    return {"all": list(ctx.results.items()), "given": ctx.results.of(give), "errors": errors, "in": ctx.workflow_id}


@app.task
def read(ctx: dibs.Context) -> dict[str, Any]:
    return _read(ctx)


@app.task
async def read_async(ctx: dibs.Context) -> dict[str, Any]:
    return _read(ctx)


@app.task(lane="process")
def read_apart(ctx: dibs.Context) -> dict[str, Any]:
    return _read(ctx)


# What is added


def _split(ctx: dibs.Context, parts: int, fail: int) -> str:
    """The first `fail` attempts raise, after they have added."""
    added = [ctx.step(give, value=n) for n in range(parts)]
    ctx.options(name="sum", on_failure="ignore").step(read, after=added)
    if ctx.attempt <= fail:
        raise ValueError("not yet")
    return "split"


@app.task(backoff=SOON)
def split(ctx: dibs.Context, parts: int, fail: int = 0) -> str:
    return _split(ctx, parts, fail)


@app.task(backoff=SOON)
async def split_async(ctx: dibs.Context, parts: int, fail: int = 0) -> str:
    return _split(ctx, parts, fail)


@app.task(lane="process", backoff=SOON)
def split_apart(ctx: dibs.Context, parts: int, fail: int = 0) -> str:
    return _split(ctx, parts, fail)


def _crawl(ctx: dibs.Context, which: str, depth: int) -> int:
    """Adds two steps of its own type at each level, without names."""
    for _ in range(2 if depth else 0):
        ctx.step(app.handlers[which], depth=depth - 1)
    return depth


@app.task
def crawl(ctx: dibs.Context, depth: int) -> int:
    return _crawl(ctx, "crawl", depth)


@app.task
async def crawl_async(ctx: dibs.Context, depth: int) -> int:
    return _crawl(ctx, "crawl_async", depth)


@app.task(lane="process")
def crawl_apart(ctx: dibs.Context, depth: int) -> int:
    return _crawl(ctx, "crawl_apart", depth)


@app.task
def add_wrongly(ctx: dibs.Context) -> None:
    ctx.step(give, after="nobody")


# What is kept


class _Once:
    """Says how often it was called, in files."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name

    def __call__(self) -> dict[str, Any]:
        count = len(list(Path(self._folder).glob(f"{self._name}.*.called"))) + 1
        say(self._folder, f"{self._name}.{count}.called")
        return {"count": count, "pair": (1, 2)}


@app.task(backoff=SOON)
def keep(ctx: dibs.Context, folder: str) -> list[Any]:
    kept = [ctx.checkpoint(name, _Once(folder, name)) for name in ("one", "two")]
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return kept


@app.task(backoff=SOON)
async def keep_async(ctx: dibs.Context, folder: str) -> list[Any]:
    async def call(name: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        return _Once(folder, name)()

    async def one() -> dict[str, Any]:
        return await call("one")

    async def two() -> dict[str, Any]:
        return await call("two")

    kept = await asyncio.gather(ctx.checkpoint("one", one), ctx.checkpoint("two", two))
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return list(kept)


@app.task(lane="process", backoff=SOON)
def keep_apart(ctx: dibs.Context, folder: str) -> list[Any]:
    return keep.function(ctx, folder)


@app.task(lane="process", backoff=SOON)
async def keep_apart_async(ctx: dibs.Context, folder: str) -> list[Any]:
    return await keep_async.function(ctx, folder)


def _keep_and_wait(ctx: dibs.Context, folder: str) -> Any:
    kept = ctx.checkpoint("one", _Once(folder, "one"))
    begin(ctx, folder, "kept")
    while not (Path(folder) / "go").exists():
        time.sleep(GLANCE)
    try:
        ctx.checkpoint("two", _Once(folder, "two"))
    except dibs.ClaimLost as error:
        say(folder, f"lost.{ctx.token}", f"{error.task_id} {error.token}")
        raise
    return kept


@app.task(max_attempts=5)
def keep_and_wait(ctx: dibs.Context, folder: str) -> Any:
    return _keep_and_wait(ctx, folder)


@app.task(max_attempts=5, lane="process")
def keep_and_wait_apart(ctx: dibs.Context, folder: str) -> Any:
    return _keep_and_wait(ctx, folder)


@app.task(max_attempts=1)
def keep_what_is_not_json(ctx: dibs.Context, name: str = "one") -> Any:
    return ctx.checkpoint(name, object)


def _keep_at_once(ctx: dibs.Context, folder: str) -> list[Any]:
    def call() -> Any:
        time.sleep(0.1)  # the others ask in the meantime
        return _Once(folder, "one")()

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda _: ctx.checkpoint("one", call), range(3)))


@app.task(max_attempts=1)
def keep_at_once(ctx: dibs.Context, folder: str) -> list[Any]:
    return _keep_at_once(ctx, folder)


@app.task(max_attempts=1)
async def keep_at_once_async(ctx: dibs.Context, folder: str) -> list[Any]:
    async def call() -> Any:
        await asyncio.sleep(0.1)  # the others ask in the meantime
        return _Once(folder, "one")()

    return list(await asyncio.gather(*[ctx.checkpoint("one", call) for _ in range(3)]))


@app.task(max_attempts=1, lane="process")
def keep_at_once_apart(ctx: dibs.Context, folder: str) -> list[Any]:
    return _keep_at_once(ctx, folder)


@app.task(max_attempts=1)
async def keep_what_is_to_be_awaited(ctx: dibs.Context) -> Any:
    return await ctx.checkpoint("one", lambda: asyncio.sleep(0, 1))


@app.task(max_attempts=1)
async def keep_with_arguments(ctx: dibs.Context) -> Any:
    return await ctx.checkpoint("one", functools.partial(asyncio.sleep, 0, 1))


@app.task(max_attempts=1)
async def keep_within_itself(ctx: dibs.Context) -> Any:
    async def inner() -> int:
        return 1

    async def outer() -> int:
        return await ctx.checkpoint("one", inner)

    return await ctx.checkpoint("one", outer)


@app.task(max_attempts=1, lane="process")
def leave_a_thread(ctx: dibs.Context, folder: str) -> int:
    """Its thread continues when the task has ended and the next task runs in the same process."""
    threading.Thread(target=_speak_too_late, args=(ctx, folder), daemon=True).start()
    return os.getpid()


def _speak_too_late(ctx: dibs.Context, folder: str) -> None:
    _wait_for(folder, "go")
    ctx.progress(77)
    for number, ask in enumerate([lambda: ctx.checkpoint("one", lambda: "of the first"), lambda: ctx.results]):
        try:
            said = f"read {ask()!r}"
        except dibs.ClaimLost as error:
            said = f"lost {error.task_id} {error.token}"
        say(folder, f"late.{number}", said)


@app.task(max_attempts=1, lane="process")
def stay_with_a_thread(ctx: dibs.Context, folder: str) -> list[Any]:
    ctx.progress(50)
    say(folder, "go")
    _wait_for(folder, "late.1")
    _wait_for(folder, "noted")
    return [os.getpid(), ctx.checkpoint("one", lambda: "of the second")]


def _wait_for(folder: str, name: str) -> None:
    while not (Path(folder) / name).exists():
        time.sleep(GLANCE)


# What comes last


def _clean_up(ctx: dibs.Context) -> dict[str, Any]:
    run = ctx.execution
    failed = {name: error.message for name, error in run.failed.items()}
    return {"state": run.state.value, "completed": run.completed, "failed": failed, "skipped": run.skipped}


@app.task
def clean_up(ctx: dibs.Context) -> dict[str, Any]:
    return _clean_up(ctx)


@app.task
async def clean_up_async(ctx: dibs.Context) -> dict[str, Any]:
    return _clean_up(ctx)


@app.task(lane="process")
def clean_up_apart(ctx: dibs.Context) -> dict[str, Any]:
    return _clean_up(ctx)


@app.task(max_attempts=5)
def report(ctx: dibs.Context, folder: str, name: str = "report") -> Any:
    say(folder, f"{name}.{ctx.workflow_id}.{ctx.token}.reported")
    return dict(ctx.results)


@contextlib.contextmanager
def at(url: str) -> Iterator[dibs.Dibs]:
    """These handlers on the store at `url`."""
    app.use_url(url)
    with app:
        yield app
