"""Handlers that misbehave in child processes; and, as a program, a worker that is never stopped."""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import sys
import time

import dibs

time.sleep(float(os.environ.get("DIBS_TEST_IMPORT_TAKES", "0")))  # as the imports of many a program do

app = dibs.Dibs("sqlite:///nowhere.db")  # the worker sets the store: app.use_url


@app.task(lane="process", max_attempts=1)
def leave_a_child_behind(seconds: float = 0, code: int | None = None) -> None:
    """Its own child inherits all that is open here, the pipe to the worker included."""
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,), daemon=True).start()
    time.sleep(seconds)
    if code is not None:
        os._exit(code)


@app.task(lane="process", max_attempts=2, backoff=dibs.Backoff(0, 0))
def raise_what_no_text_holds() -> None:
    raise FileNotFoundError("no file named \udcff\x00")


@app.task(lane="process", max_attempts=1)
def log_what_cannot_be_logged() -> str:
    logging.getLogger("broken").warning("a file named %s", "\udcff")
    logging.getLogger("broken").warning("%d files", "no")
    return "logged"


@app.task(lane="process", max_attempts=1)
def interrupt() -> None:
    raise KeyboardInterrupt("mine")


@app.task(lane="process")
def number() -> int:
    return os.getpid()


if __name__ == "__main__":
    faulthandler.dump_traceback_later(45, exit=True)  # if it does not end, print the stacks of its threads
    app.use_url(sys.argv[1])
    app.worker(children=1).start()
    print(number.enqueue().wait(30).state, flush=True)  # and that is the end of the program
