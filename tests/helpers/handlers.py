"""Handlers for the tests of the worker: in every lane one that is slow, one that does not end, and one that misbehaves.

They communicate by files in a folder that the test names, so that a test waits for a condition and not for a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dibs

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url

GLANCE = 0.005


# Slow handlers


@app.task(max_attempts=100)
def nap(seconds: float = 0) -> None:
    time.sleep(seconds)


@app.task(max_attempts=100)
async def doze(seconds: float = 0) -> None:
    await asyncio.sleep(seconds)


@app.task(lane="process")
def toil(seconds: float = 0) -> int:
    time.sleep(seconds)
    return os.getpid()


_kept: list[bytes] = []


@app.task(lane="process")
def swell(mebibytes: int) -> int:
    """Keeps what it takes, as a leak does."""
    _kept.append(b"x" * (mebibytes * 2**20))
    return os.getpid()


@app.task
async def block(folder: str, seconds: float) -> None:
    """Holds up the event loop."""
    say(folder, "blocking")
    time.sleep(seconds)  # noqa: ASYNC251


@app.task(lane="process")
def backtrack(folder: str) -> None:
    """Holds the interpreter lock, in C, for longer than any test waits."""
    say(folder, "backtracking", os.getpid())
    re.match(r"(a+)+$", "a" * 64 + "b")


# Handlers that run until the test ends them, or until a cancel request


@app.task
def stay(ctx: dibs.Context, folder: str, name: str = "stay") -> dict[str, Any]:
    begin(ctx, folder, name)
    while not (Path(folder) / f"{name}.go").exists():
        if ctx.cancelled:
            say(folder, f"{name}.stopped", time.time())
        ctx.raise_if_cancelled()
        time.sleep(GLANCE)
    return {"token": ctx.token, "pid": os.getpid()}


@app.task
async def linger(ctx: dibs.Context, folder: str, name: str = "linger") -> dict[str, Any]:
    begin(ctx, folder, name)
    try:
        while not (Path(folder) / f"{name}.go").exists():  # noqa: ASYNC110
            await asyncio.sleep(GLANCE)
    except asyncio.CancelledError:
        say(folder, f"{name}.stopped", time.time())
        raise
    return {"token": ctx.token, "pid": os.getpid()}


@app.task(lane="process")
def remain(ctx: dibs.Context, folder: str, name: str = "remain") -> dict[str, Any]:
    return stay.function(ctx, folder, name)


@app.task
def persist(ctx: dibs.Context, folder: str, name: str = "persist") -> dict[str, Any]:
    """Ignores cancel requests."""
    begin(ctx, folder, name)
    while not (Path(folder) / f"{name}.go").exists():
        time.sleep(GLANCE)
    say(folder, f"{name}.ended", ctx.token)
    return {"token": ctx.token, "pid": os.getpid()}


@app.task
def mark(ctx: dibs.Context, folder: str, name: str, does: str = "") -> None:
    """Report that it ran. Most runs are very short; one of them may wait, or kill its process."""
    say(folder, f"{name}.{ctx.token}.ran")
    if does == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    while does == "hold" and not (Path(folder) / f"{name}.go").exists():
        time.sleep(GLANCE)


@app.task(lane="process")
def speak_apart(ctx: dibs.Context, folder: str) -> None:
    ctx.progress(30, "from afar")
    ctx.log.warning("hello")
    while not (Path(folder) / "speak.go").exists():
        time.sleep(GLANCE)


@app.task(lane="process")
def progress_apart(ctx: dibs.Context) -> None:
    ctx.progress(60)
    ctx.progress(100)


def _mumble(ctx: dibs.Context) -> None:
    """Reports progress and fails, with text that no database can encode."""
    ctx.progress(50, "half \ud800 way\x00")
    raise ValueError("no \ud800 and \x00")


@app.task
def mumble_thread(ctx: dibs.Context) -> None:
    _mumble(ctx)


@app.task(lane="process")
def mumble_process(ctx: dibs.Context) -> None:
    _mumble(ctx)


@app.task
def echo_thread(code: int) -> str:
    return chr(code)


@app.task(lane="process")
def echo_process(code: int) -> str:
    return chr(code)


# Handlers that misbehave


@app.task(lane="process")
def die_apart() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _renamed() -> None: ...


renamed = app.task(name="renamed", lane="process")(_renamed)  # under this name, no child finds the handler


# The reports of handlers, and how a test reads them


def begin(ctx: dibs.Context, folder: str, name: str) -> None:
    say(folder, f"{name}.{ctx.token}.began", os.getpid())


def say(folder: str | Path, what: str, detail: Any = "") -> None:
    """A file, there at once with all that is in it."""
    unfinished = Path(folder) / f".{what}.{os.getpid()}"
    unfinished.write_text(f"{detail} ", encoding="ascii")
    unfinished.rename(Path(folder) / what)


def heard(folder: str | Path, what: str) -> str | None:
    """The detail of a report (a space if it has none), or None if there is no such report."""
    with contextlib.suppress(FileNotFoundError):
        return (Path(folder) / what).read_text(encoding="ascii")
    return None


@contextlib.contextmanager
def at(url: str) -> Iterator[dibs.Dibs]:
    """These handlers on the store at `url`, to enqueue for them or to work in this process."""
    app.use_url(url)
    with app:
        yield app
