"""Forks: no SQLite file is open while a process forks.

SQLite keeps its locks on a file in a table of the process. A child that inherits this table believes that it holds the
parent's locks and takes none of its own; when the parent then closes the file, what the child has written is gone. So
every store closes its file before a fork and opens it again afterwards, in parent and child.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """A store that has a file open."""

    def before_fork(self) -> None:
        """Close the file, and prevent that it is opened before the fork has ended."""

    def after_fork(self) -> None:
        """Called in parent and child: the file may be opened again."""


_one_fork = threading.RLock()
"""Guards the two below from the beginning of a fork to its end, because two threads may fork at the same time."""

_stores: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_forking: list[ForkAware] = []


def remember(store: ForkAware) -> None:
    """Register the store. To be called before it opens anything, and without a lock that `before_fork` takes: another
    thread may be forking."""
    with _one_fork:
        _stores.add(store)


def _before_fork() -> None:
    _one_fork.acquire()
    _forking.extend(_stores)
    for store in _forking:
        try:
            store.before_fork()
        except (
            BaseException
        ):  # for example Ctrl-C. Python ignores it here and continues the fork, so the file must be closed
            with contextlib.suppress(Exception):
                store.before_fork()


def _after_fork() -> None:
    while _forking:
        _forking.pop().after_fork()
    with contextlib.suppress(RuntimeError):  # an interrupt came before the lock was taken
        _one_fork.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
