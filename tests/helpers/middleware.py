"""Handlers of the process lane inside middleware: a child process imports this module."""

from __future__ import annotations

import asyncio
from typing import Any

import dibs

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url


@app.middleware
async def embrace(ctx: dibs.Context, call_next: Any) -> Any:
    if ctx.task.type == "slow_apart":
        await asyncio.sleep(60)
    return f"<<{await call_next()}>>"


def enclose(ctx: dibs.Context, call_next: Any) -> Any:
    return f"({call_next()})"


@app.task(lane="process", middleware=[enclose])
def enclosed_apart(text: str) -> str:
    return text


@app.task(lane="process")
async def awaited_apart(text: str) -> str:
    return text


@app.task(lane="process", timeout=0.3, max_attempts=1)
def slow_apart() -> None: ...


@app.task(lane="process")
def hidden_apart() -> None: ...
