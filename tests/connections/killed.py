"""Transactions on every kind of object, in processes that are killed.

`python -m tests.connections.killed URL MODE ROUNDS` kills ROUNDS processes for each kind. Each process writes a row and
enqueues the task for it, commits, and goes on with the next row until it is killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import Any

import dibs
from tests.helpers.clients import AsyncAsSync, Loop
from tests.helpers.connections import KINDS, Opens, waits_on

LONGEST = 0.03
"""Seconds after the first commit of a process until it is killed, at most."""


def main(url: str, mode: str, rounds: int) -> None:
    """Kill a process with transactions of each kind, so many times."""
    kinds = KINDS["sqlite" if url.startswith("sqlite") else "postgres", mode].values()
    for number, kind in enumerate(kind for kind in kinds for _ in range(rounds)):
        _kill_amid_transactions(url, mode, kind, first=number * 100_000)


def _kill_amid_transactions(url: str, mode: str, kind: Opens, first: int) -> None:
    committed, reports = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(committed)
        try:
            _commit_until_killed(url, mode, kind, first, reports)
        finally:
            os._exit(1)
    os.close(reports)
    assert os.read(committed, 1), "the process ended before its first commit"
    time.sleep(random.uniform(0, LONGEST))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(committed)


def _commit_until_killed(url: str, mode: str, kind: Opens, first: int, reports: int) -> None:
    app: Any = dibs.Dibs(url) if mode == "sync" else AsyncAsSync(dibs.AsyncDibs(url), Loop())
    mine = kind(url, waits_on(app.loop if mode == "async" else None))
    for order in range(first, first + 100_000):
        mine.execute(f"INSERT INTO orders VALUES ({order})")
        app.on(mine.given).enqueue("ship", key=str(order))
        mine.commit()
        os.write(reports, b".")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
