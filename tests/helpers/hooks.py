"""Handlers of the process lane with outcome hooks: a child process imports this module."""

from __future__ import annotations

import os
import signal
from typing import Any

import dibs

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url

heard_apart: list[tuple[int, Any]] = []
"""What the hooks were given, in the process that called them."""


@app.on_success
@app.on_error
async def hear(ended: dibs.EndedAttempt) -> None:
    heard_apart.append((ended.task.id, ended.failure.type if ended.failure else ended.result))


@app.task(lane="process", max_attempts=1, on_dead=hear)
def tells_apart(text: str) -> str:
    if text == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return text
