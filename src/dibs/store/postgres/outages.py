"""Outages of PostgreSQL: which failures are one, how long calls wait for its end, and what the log says.

The log has one entry a minute for the whole process. psycopg's pool logs every attempt of every connection, several
entries a second during an outage; entries about the pools of dibs are dropped, and the user's own pools log as before.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from typing import Any

import psycopg

from dibs.store.postgres.connection import POOL_TIMEOUT, connection_string, translate
from dibs.store.postgres.replies import Session, sessions_of
from dibs.store.postgres.sessions import AsyncPoolSession, PoolSession

logger = logging.getLogger("dibs.store")

LOG_INTERVAL = 60.0
"""Seconds between two log entries about an outage."""


class Outages:
    """The failed attempts of this process to connect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged_at: float | None = None
        self.reason = ""
        """The reason why the last attempt failed."""

    def failed(self, reason: str) -> None:
        """Log the failure, unless one was logged within the last minute."""
        with self._lock:
            now, self.reason = time.monotonic(), reason
            if self._logged_at is not None and now - self._logged_at < LOG_INTERVAL:
                return
            self._logged_at = now
        about = {"event": "postgres.away", "reason": reason}
        logger.warning("PostgreSQL cannot be reached (%s); calls are repeated for a while", reason, extra=about)


_outages = Outages()


def outages() -> Outages:
    """The outages of this process."""
    return _outages


_pools: weakref.WeakSet[Any] = weakref.WeakSet()


def log_for(pool: Any) -> None:
    """Replace the log entries of this pool by those of dibs."""
    _pools.add(pool)


class _Filter(logging.Filter):
    """Drops the entries about the pools of dibs, and takes the reason of a failure from them."""

    def filter(self, record: logging.LogRecord) -> bool:
        about = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if isinstance(
            about, (PoolSession, AsyncPoolSession)
        ):  # about a closed connection: the call raises its own error
            return False
        if not isinstance(about, str) or not any(pool.name == about for pool in list(_pools)):
            return True
        if isinstance(record.args, tuple) and isinstance(reason := record.args[-1], Exception):
            outages().failed((str(reason).strip().splitlines() or [type(reason).__name__])[0])
        return False


logging.getLogger("psycopg.pool").addFilter(_Filter())


LASTING = (
    "does not exist",
    "no such database",
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "not permitted to log in",
    "permission denied for database",
    "does not support SSL",
    "certificate verify failed",
    "invalid port number",
)
"""Messages of PostgreSQL, libpq and PgBouncer about a wrong URL. libpq has no codes for them. If the server writes its
messages in another language, the call fails as well, only later."""

_WRONG_OPTION = re.compile(r"invalid \w+ value")
"""libpq's message about an option in the URL: `invalid sslmode value: "…"`, `invalid integer value "…" for …`."""


class ServerUnreachable(Exception):
    """PostgreSQL cannot be reached now; another attempt may succeed."""


def connect(url: str) -> Session:
    """Open a connection that leaves nothing in the session of a pooler. Raises ServerUnreachable if another attempt may
    succeed."""
    try:
        return sessions_of(url).connect(connection_string(url), autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        text = str(error).strip()
        if any(reason in text for reason in LASTING) or _WRONG_OPTION.search(text):
            raise
        raise ServerUnreachable(text.splitlines()[0] if text else type(error).__name__) from error


SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two attempts, doubling: sessions that were left in the pool are replaced at once, and each caller
tries a server that stays read-only at most once a second."""


class UntilWritable:
    """The attempts of one call that PostgreSQL refuses as read-only. Such a call changed nothing, so it is repeated: a
    new session may lead to the new primary."""

    def __init__(self) -> None:
        self._until: float | None = None
        self._pause = SHORTEST / 2

    def pause_after(self, error: psycopg.errors.ReadOnlySqlTransaction) -> float:
        """Seconds to wait before the next attempt; raises StoreUnavailable after POOL_TIMEOUT seconds."""
        now = time.monotonic()
        self._until = self._until or now + POOL_TIMEOUT
        if now >= self._until:
            raise translate(error, writing=False) from error
        self._pause = min(self._pause * 2, LONGEST)
        return self._pause
