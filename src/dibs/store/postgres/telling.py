"""What the log says of an outage: one line a minute for the whole process, however many connections are attempted.

psycopg's pool logs every attempt of every connection, some lines a second during an outage. What it says of the pools
of dibs is dropped; the pools of the user log as before.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any

from dibs.store.postgres.sessions import AsyncPoolSession, PoolSession

logger = logging.getLogger("dibs.store")

SAY_AGAIN = 60.0
"""Seconds between two lines."""


class Outages:
    """The attempts to connect of this process that failed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said_at: float | None = None
        self.reason = ""
        """Why the last attempt failed."""

    def failed(self, reason: str) -> None:
        """Say so, unless that was done within the last minute."""
        with self._lock:
            now, self.reason = time.monotonic(), reason
            if self._said_at is not None and now - self._said_at < SAY_AGAIN:
                return
            self._said_at = now
        about = {"event": "postgres.away", "reason": reason}
        logger.warning("PostgreSQL cannot be reached (%s); calls go on trying for a while", reason, extra=about)


_outages = Outages()


def outages() -> Outages:
    """Those of this process."""
    return _outages


_pools: weakref.WeakSet[Any] = weakref.WeakSet()


def tell_for(pool: Any) -> None:
    """From now on dibs speaks for this pool."""
    _pools.add(pool)


class _Filter(logging.Filter):
    """Drops the lines about the pools of dibs, and learns from them why a connection failed."""

    def filter(self, record: logging.LogRecord) -> bool:
        about = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if isinstance(about, (PoolSession, AsyncPoolSession)):  # discarding, closing: each call tells its own error
            return False
        if not isinstance(about, str) or not any(pool.name == about for pool in list(_pools)):
            return True
        if isinstance(record.args, tuple) and isinstance(reason := record.args[-1], Exception):
            outages().failed((str(reason).strip().splitlines() or [type(reason).__name__])[0])
        return False


logging.getLogger("psycopg.pool").addFilter(_Filter())
