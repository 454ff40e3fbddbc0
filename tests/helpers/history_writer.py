"""A process that writes to the history until its input ends: short and long transactions, some of them rolled back.

python -m tests.helpers.history_writer URL SEED
"""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import Any

import dibs


def main(url: str, seed: str) -> None:
    """Enqueue and cancel tasks; on PostgreSQL some of them in transactions that end late, or are rolled back."""
    chance = random.Random(int(seed))
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with dibs.Dibs(url) as app:
        while not ended.wait(0.01):
            if url.startswith("postgresql") and chance.random() < 0.4:
                _in_transaction(url, app, chance)
            else:
                task = app.enqueue("short")
                if chance.random() < 0.5:
                    app.cancel(task.id)


def _in_transaction(url: str, app: Any, chance: random.Random) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        app.on(connection).enqueue("long")
        time.sleep(chance.random() * 0.05)
        app.on(connection).enqueue("long")
        if chance.random() < 0.5:
            connection.rollback()


if __name__ == "__main__":
    main(*sys.argv[1:])
