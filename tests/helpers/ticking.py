"""A process that ticks, claims and completes until its input ends.

python -m tests.helpers.ticking URL WORKER
"""

from __future__ import annotations

import sys
import threading

import dibs


def main(url: str, worker: str) -> None:
    """Tick as fast as possible, and complete every second task after more than one tick."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with dibs.Dibs(url) as app:
        while not ended.is_set():
            app.tick()
            claim = app.claim(worker, wait=0.05)
            if claim is not None:
                if claim.task.id % 2:
                    app.claim(worker, wait=1.2)  # the ticks of this time are skipped, or wait
                app.complete(claim)


if __name__ == "__main__":
    main(*sys.argv[1:])
