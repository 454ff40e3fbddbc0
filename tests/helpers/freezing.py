"""Processes that are frozen at any point of their work."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from tests.helpers.databases import is_locked
from tests.helpers.waiting import until

PROC = Path("/proc")


def freeze(pid: int, *, outside_transactions_of: str | None = None) -> None:
    """Stop it; with a database, not while a transaction is open in there.

    A frozen process that holds SQLite's lock stops all others: that is another fault (stress/table_locked.py).
    """
    _stop(pid)
    while outside_transactions_of and is_locked(outside_transactions_of):
        thaw(pid)
        time.sleep(0.005)
        _stop(pid)


def thaw(pid: int) -> None:
    """Let the process continue."""
    os.kill(pid, signal.SIGCONT)


def _stop(pid: int) -> None:
    """A signal is only on its way when `kill` returns: till it comes the threads run on, into a transaction maybe."""
    os.kill(pid, signal.SIGSTOP)
    if PROC.exists():
        until(lambda: _runs_no_more(PROC / str(pid) / "task"))


def _runs_no_more(threads: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it, or one of them, has ended
        return all(_state(thread) in "TZX" for thread in threads.iterdir())
    return not threads.exists()


def _state(thread: Path) -> str:
    """R runs, S sleeps, D waits for a disk, T was stopped, Z and X have ended (man 5 proc)."""
    return (thread / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
