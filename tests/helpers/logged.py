"""Handlers of the process lane whose logs are captured: a child process imports this module."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

import dibs

app = dibs.Dibs("sqlite:///nowhere.db", capture_logs=dibs.LogCapture(prints=True))  # the worker sets the store

log = logging.getLogger("tests.logged")
log.setLevel(logging.INFO)

_strays: list[threading.Thread] = []


@app.task(lane="process", max_attempts=1)
def logs_apart(ctx: dibs.Context, dies: bool = False) -> None:
    log.info("one \ud800")
    print("two", 2)
    sys.stderr.write("three")
    ctx.log.warning("four")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(lane="process")
def leaves_a_thread() -> None:
    """Start a thread that logs until the process ends: it belongs to no attempt."""
    stop = threading.Event()
    _strays.append(threading.Thread(target=lambda: [log.info("stray") for _ in iter(lambda: stop.wait(0.01), True)]))
    _strays[-1].daemon = True
    _strays[-1].start()
