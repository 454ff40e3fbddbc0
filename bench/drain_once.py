"""A worker of bench/instructions.py: runs the tasks of a queue and stops when none is left.

A line of JSON on standard input names the database and the kind of handler. Of dibs only public names are imported.
"""

from __future__ import annotations

import json
import sys

from bench.queues.dibs_queue import COROUTINE, TYPE
from dibs import Dibs

LEASE = 600
"""Seconds; longer than a drain takes under valgrind, so that the number of renewals does not depend on its duration."""


def main() -> None:
    """Work until the queue is empty."""
    job = json.loads(sys.stdin.readline())
    app = Dibs(job["url"])
    if job["setting"] == COROUTINE:

        @app.task(name=TYPE)
        async def coroutine(number: int) -> None: ...

    else:

        @app.task(name=TYPE)
        def function(number: int) -> None: ...

    app.worker(burst=True, lease=LEASE).run()


if __name__ == "__main__":
    main()
