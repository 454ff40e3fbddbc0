"""A worker process: `python -m bench.queues.program QUEUE URL BOARD TASKS SEATS SEAT SETTING`.

It imports what its queue needs and nothing else, so that its memory is that of a real worker.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from bench.queues.board import Board


def main() -> None:
    """Work until a signal."""
    name, url, board, tasks, seats, number, setting = sys.argv[1:]
    queue = importlib.import_module(f"bench.queues.{name}")
    seat = Board(Path(board), int(tasks), int(seats)).seat(int(number))
    sys.exit(queue.work(url, setting, seat, wait_for_start))


def wait_for_start() -> None:
    """Say that everything is imported and open, and wait for the others."""
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
