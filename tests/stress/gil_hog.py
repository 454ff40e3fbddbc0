"""Handlers that hold the interpreter lock in a slow regular expression: no lease is lost, no task runs twice.

Promises 2 to 4 and 12. In a child process a handler may do so for longer than a lease; in a thread for a part of a
lease, because its worker cannot renew meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import dibs
from dibs import Event
from tests.stress.checking import pages
from tests.stress.handlers import backtrack, hog, hog_apart, nap
from tests.stress.scenario import Scenario, Stage, main

SHORT, LONG = 2.0, 5.0
"""Seconds: leases. A busy machine gives a hog a part of a processor, which makes it that much longer."""

APART = 1.2
"""Leases for which a handler in a child process hogs."""

AT_ONCE = 0.05
"""Seconds for which the lock is held at once, at least, and twice that at most: measured here and now, with a whole
processor. It is all that a handler in a thread takes."""

NAPS = 50


def play(stage: Stage) -> None:
    app, folder, letters = stage.open(), str(stage.folder), letters_for(AT_ONCE)
    lease = SHORT if stage.short else LONG
    workers = stage.start_processes(1 if stage.short else 2, kind="worker", lease=lease, children=1)
    for _ in stage.rounds():
        hogs = [hog.new(folder=folder, letters=letters)]
        if not stage.short or not stage.tally.injected:
            hogs.append(hog_apart.new(folder=folder, letters=letters, seconds=APART * lease))
        naps = [nap.new(folder=folder, seconds=stage.chance.choice([0, 0.01])) for _ in range(NAPS)]
        for task in app.enqueue_many([*hogs, *naps]):
            app.wait(task.id, 60)
        stage.tally.injected += len(hogs)
    workers.stop()
    stage.checks.append(recoveries)


def letters_for(seconds: float) -> int:
    """How long a text must be: each letter more takes twice as long."""
    letters = 16
    while took(letters) < seconds:
        letters += 1
    return letters


def took(letters: int) -> float:
    began = time.thread_time()
    backtrack(letters)
    return time.thread_time() - began


def recoveries(app: dibs.Dibs) -> Iterator[str]:
    """Leases that were lost although their worker lived."""
    for page in pages(app):
        yield from (f"task {entry.task_id}: its lease was lost" for entry in page if entry.event is Event.RECOVERED)


SCENARIO = Scenario(
    name="gil_hog",
    fault="a handler holds the interpreter's lock (a catastrophic regular expression)",
    promises=(2, 3, 4, 12),
    engines=("sqlite", "postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
