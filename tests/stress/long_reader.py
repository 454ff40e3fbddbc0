"""A reader that does not end: the write-ahead log grows, work continues, and the log shrinks after the reader ends.

Promises 3 and 5. A read transaction stays open, as that of a backup or a forgotten shell. Later writes cannot be moved
into the file. Workers must neither wait for the reader nor fail. When the reader ends, upkeep moves everything into the
file, and the log is written from its beginning again.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.databases import sqlite_path
from tests.helpers.waiting import until
from tests.helpers.wal import written_and_moved
from tests.stress.process_group import PATIENCE
from tests.stress.scenario import Scenario, Stage, main

UPKEEP = 0.2
BEHIND = 2000
"""Frames of the log behind a reader, after which it may end. In the short version a tenth."""


def play(stage: Stage) -> None:
    path = Path(sqlite_path(stage.database))
    behind = BEHIND // 10 if stage.short else BEHIND
    plain_workers = stage.start_processes(2, upkeep_every=UPKEEP, payload=2000)
    for _ in stage.rounds():
        plain_workers.wait_for(stage.chance.randint(2, 20))
        with reading(path):
            until(lambda: unmoved(path) >= behind, PATIENCE)
            stage.tally.injected += 1
            note_size(stage, path)
        stage.tally.recovery.append(seconds_until_moved(path, behind // 2))


READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
for _ in range(2):
    print(connection.execute("SELECT count(*), sum(token) FROM dibs_tasks").fetchone(), flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Somebody sees the store as it is now for as long as the context lasts: a process of its own, since whoever looks
    at a file of SQLite's and closes it lets go of all locks that its own process has on it."""
    command = [sys.executable, "-c", READER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        before = reader.stdout.readline()
        yield
        print(file=reader.stdin, flush=True)
        assert reader.stdout.readline() == before != ""


def unmoved(path: Path) -> int:
    """Frames of the log that are not in the file yet."""
    written, moved = written_and_moved(path)
    return written - moved


def seconds_until_moved(path: Path, most: int) -> float:
    """Wait after the end of the reader until at most this number of frames is left in the log."""
    began = time.monotonic()
    until(lambda: unmoved(path) <= most, PATIENCE)
    return time.monotonic() - began


def note_size(stage: Stage, path: Path) -> None:
    size = Path(f"{path}-wal").stat().st_size / 2**20
    stage.tally.notes["log, MiB"] = max(size, stage.tally.notes.get("log, MiB", 0.0))


SCENARIO = Scenario(
    name="long_reader",
    fault="a reader does not end, and the write-ahead log grows behind it",
    promises=(3, 5),
    engines=("sqlite",),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
