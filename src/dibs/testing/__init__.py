"""What you need to test your own tasks, with any test runner: a queue for each test, and its clock in your hand.

Nothing but the clock is faked. Tasks are stored, claimed, run and finished by the same code as in a worker, and leave
the same history; only the threads are missing, so a test sees everything happen in order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dibs.client_base import ClientBase
from dibs.testing.clock import Clock
from dibs.testing.sandbox import Sandbox

__all__ = ["Clock", "Sandbox", "isolated"]


@contextmanager
def isolated(app: ClientBase[Any]) -> Iterator[Sandbox]:
    """Let the app use a new, empty queue inside the block, and the store it had before again afterwards.

    The queue is a SQLite file in a temporary folder, whatever the app uses otherwise.
    """
    former = app._store, app.url
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="dibs-", ignore_cleanup_errors=True) as folder:
        app.use_url(f"sqlite:///{quote((Path(folder) / 'dibs.db').as_posix())}", clock=clock)
        store = app._store
        try:
            yield Sandbox(app, clock)
        finally:
            app._store, app.url = former
            store.close()
