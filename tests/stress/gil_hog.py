"""Handlers that hold the interpreter's lock in a regular expression gone wild: no lease is lost, nothing runs twice.

Promises 2 to 4. In a child process a handler may do so for longer than a lease; in a thread for a part of one, since
its worker cannot renew meanwhile.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import dibs
from dibs import Event
from tests.stress.checking import pages
from tests.stress.handlers import hog, hog_apart, nap
from tests.stress.scenario import Scenario, Stage, main

LEASE = 1.5
APART = 1.2
"""Leases that a handler in a child process hogs for, at least."""

IN_A_THREAD = 0.15
"""Leases that a handler in a thread hogs for. It was measured here and now; there it may have half a processor."""


def play(stage: Stage) -> None:
    app, folder = stage.open(), str(stage.folder)
    long, brief = letters_for(APART * LEASE), letters_for(IN_A_THREAD * LEASE)
    workers = stage.crew(1 if stage.short else 2, kind="worker", lease=LEASE, children=1)
    for number in stage.rounds():
        hogs = [hog_apart.new(folder=folder, length=long), hog.new(folder=folder, length=brief)]
        tasks = app.enqueue_many([*hogs[number:], *(nap.new(folder=folder, seconds=0.01) for _ in range(50))])
        for task in tasks:
            app.wait(task.id, 60)
        stage.tally.injected += len(hogs[number:])
        stage.tally.notes["naps"] = stage.tally.notes.get("naps", 0) + 50
    workers.stop()
    stage.checks.append(recoveries)


def letters_for(seconds: float) -> int:
    """How long a text must be: each letter more takes twice as long."""
    letters = 16
    while (took := hogged(letters)) < 0.02:
        letters += 1
    while took < seconds:
        letters, took = letters + 1, took * 2
    return letters


def hogged(letters: int) -> float:
    began = time.thread_time()
    re.match(r"(a+)+$", "a" * letters + "b")
    return time.thread_time() - began


def recoveries(app: dibs.Dibs) -> Iterator[str]:
    """Leases that were lost although their worker lived."""
    for page in pages(app):
        yield from (f"task {entry.task_id}: its lease was lost" for entry in page if entry.event is Event.RECOVERED)


SCENARIO = Scenario(
    name="gil_hog",
    fault="a handler holds the interpreter's lock (a catastrophic regular expression)",
    promises=(2, 3, 4),
    engines=("sqlite", "postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
