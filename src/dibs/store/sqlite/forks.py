"""No SQLite file is open while a process forks.

SQLite keeps its locks on a file in a table of the process. A child that inherits this table believes that it holds the
parent's locks and takes none of its own; when the parent then closes the file, what the child has written is gone. So
every store lets go of its file before a fork and opens it again after it, in parent and child alike.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol


class Forking(Protocol):
    """A store that opens files."""

    def before_fork(self) -> None:
        """Let go of the file, and let nobody open it before the fork is done."""

    def after_fork(self) -> None:
        """In parent and child alike: it may be opened again."""


_one_fork = threading.RLock()
"""Guards the two below, from the beginning of a fork to its end: two threads may fork at the same time."""

_stores: weakref.WeakSet[Forking] = weakref.WeakSet()
_forking: list[Forking] = []


def remember(store: Forking) -> None:
    """Call it before the store opens anything, and with no lock that `before_fork` takes: a fork may be under way."""
    with _one_fork:
        _stores.add(store)


def _before_fork() -> None:
    _one_fork.acquire()
    _forking.extend(_stores)
    for store in _forking:
        try:
            store.before_fork()
        except BaseException:  # Ctrl-C, say. Python tells nobody of it here: the fork goes on, and so must we
            with contextlib.suppress(Exception):
                store.before_fork()


def _after_fork() -> None:
    while _forking:
        _forking.pop().after_fork()
    with contextlib.suppress(RuntimeError):  # interrupted before it was ours
        _one_fork.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
