"""Handlers of the process lane with retry rules: a child process imports this module."""

from __future__ import annotations

import os
import signal

import dibs

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url


def exactly(attempt: int, error: Exception) -> float:
    """The delay after an error other than those that are given up on."""
    return 1233 + attempt


@app.task(lane="process", give_up_on=ValueError, backoff=exactly)
def fails_apart(which: str) -> None:
    raise {"ValueError": ValueError, "KeyError": KeyError}[which]


@app.task(lane="process", retry_on=ValueError, backoff=[1000])
def stops_apart() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
